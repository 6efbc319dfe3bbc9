"""A result for a paper: the figure as SVG and PDF, tables as LaTeX, a citation as BibTeX."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpsim.state.files import write_whole
from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import Experiment
from ipu.experiments.lab.result import Result, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["citation", "latex", "write_paper"]

#: Characters that LaTeX reads as its own, and those that its default fonts lack.
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≤": r"$\le$", "≥": r"$\ge$", "∞": r"$\infty$",
    "→": r"$\to$", "·": r"$\cdot$", "½": r"$\frac12$", "√": r"$\surd$", "\u202f": r"\,",
}
#: As far as the repository's CITATION.cff goes; a test compares them.
_TITLE = "fpsim: a numerical precision laboratory"


def write_paper(experiment: Experiment, result: Result, meta: Mapping[str, Any],
                folder: Path) -> list[Path]:
    """Write NAME.svg, NAME.pdf, NAME-table-1.tex, … and NAME.bib; returns their paths.

    Raises    OSError where the folder cannot be written.
    """
    from ipu.run.pages.vector import to_svg

    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, bytes] = {}
    figure = experiment.plot(result)
    if figure is not None:
        contents["pdf"] = _pdf(figure)
        contents["svg"] = to_svg(figure, experiment.question).encode()
    paths = []
    for ending, content in contents.items():
        paths.append(folder / f"{experiment.name}.{ending}")
        write_whole(paths[-1], content)
    for number, table in enumerate(experiment.tables(result) or [_rows(result)], 1):
        paths.append(folder / f"{experiment.name}-table-{number}.tex")
        write_whole(paths[-1], latex(table, f"tab:{experiment.name}-{number}").encode())
    paths.append(folder / f"{experiment.name}.bib")
    write_whole(paths[-1], citation(experiment.name, meta).encode())
    return paths


def _pdf(figure: Figure) -> bytes:
    """The figure as PDF with letters as letters, and no date, so that its bytes repeat."""
    from matplotlib import rc_context

    file = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}):
        figure.savefig(file, format="pdf", metadata={"CreationDate": None})
    return file.getvalue()


def _rows(result: Result, most: int = 30) -> Table:
    """The data of a result without tables of its own, its first rows."""
    columns = list(dict.fromkeys(name for row in result.rows for name in row))
    lines = [[str(row.get(name, "")) for name in columns] for row in result.rows[:most]]
    total = len(result.rows)
    return Table("Data", columns, lines, f"The first {most} of {total} rows." * (total > most))


def latex(table: Table, label: str) -> str:
    r"""A table as LaTeX, with rules of the package booktabs.

    >>> print(latex(Table("Sums of 50 %", ["n", "sum"], [["1", "−0.5 ± 0.1"]], "A note."), "tab:s"))
    \begin{table}
      \caption{Sums of 50 \%. A note.}
      \label{tab:s}
      \begin{tabular}{ll}
        \toprule
        n & sum \\
        \midrule
        1 & $-$0.5 $\pm$ 0.1 \\
        \bottomrule
      \end{tabular}
    \end{table}
    <BLANKLINE>
    """
    return "\n".join(_lines(table, label)) + "\n"


def _lines(table: Table, label: str) -> Iterator[str]:
    yield r"\begin{table}"
    caption = f"{table.title}. {table.note}".strip()
    yield rf"  \caption{{{_escaped(caption)}}}"
    yield rf"  \label{{{label}}}"
    yield rf"  \begin{{tabular}}{{{'l' * len(table.heads)}}}"
    yield r"    \toprule"
    yield f"    {_row(table.heads)}"
    yield r"    \midrule"
    for line in table.lines:
        yield f"    {_row(line)}"
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def _row(cells: Any) -> str:
    return " & ".join(map(_escaped, cells)) + r" \\"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def citation(name: str, meta: Mapping[str, Any]) -> str:
    """A BibTeX entry of the version that computed a result, with what computes it again.

    >>> meta = {"versions": {"fpsim": "0.1.0"}, "date": "2026-01-02", "commit": "abc",
    ...         "command": "fpsim run swamping --seed 0", "data_sha256": "12ef"}
    >>> print(citation("swamping", meta), end="")
    @software{fpsim_swamping,
      author  = {{the fpsim developers}},
      title   = {fpsim: a numerical precision laboratory},
      version = {0.1.0},
      year    = {2026},
      note    = {\\texttt{fpsim run swamping -{}-seed 0}, commit abc, data SHA-256 12ef},
    }
    """
    # Two hyphens would become a dash.
    command = _escaped(str(meta["command"])).replace("--", "-{}-")
    facts = [rf"\texttt{{{command}}}"]
    facts += [f"commit {meta['commit']}"] if meta.get("commit") else []
    facts.append(f"data SHA-256 {meta['data_sha256']}")
    return (
        f"@software{{fpsim_{re.sub(r'[^a-z0-9_]', '_', name)},\n"
        "  author  = {{the fpsim developers}},\n"
        f"  title   = {{{_TITLE}}},\n"
        f"  version = {{{meta['versions']['fpsim']}}},\n"
        f"  year    = {{{str(meta['date'])[:4]}}},\n"
        f"  note    = {{{', '.join(facts)}}},\n"
        "}\n"
    )


def stored(experiment: Experiment, results: Path) -> tuple[Result, dict[str, Any]]:
    """The stored result of an experiment.

    Raises    ValueError where there is none, or a damaged one.
    """
    pair = store.load(results / experiment.name)
    if pair is None:
        raise ValueError(
            f"results={str(results)!r} has no result of {experiment.name}; compute it with: "
            f"fpsim run {experiment.name} --out {results}"
        )
    return pair
