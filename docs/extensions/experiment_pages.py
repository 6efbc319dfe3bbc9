"""The gallery: a page for each experiment, with its full run, and its quick run to the bit.

A page shows the recorded full run (`full_runs`), or the quick one where none is recorded. Quick
runs are computed when the site is built; they go to docs/_build/gallery, and stay until a source
file changes. Their data is compared with the records in docs/outputs/gallery; a page whose data
changed is an error of the build, with the difference. `FPSIM_RECORD=1 make site` writes these
records anew.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from full_runs import DRAWN, difference, is_current, mark_current, recorded
from sphinx.util import logging

from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import Listed, catalogue
from ipu.experiments.lab.report import Page, in_words, page
from ipu.experiments.lab.runner import run
from ipu.experiments.published.gallery import Exhibit, exhibits
from ipu.run.pages.rendering import environment

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
#: Written by a build: pages, figures, and results that stay.
PAGES, RESULTS = DOCS / "gallery", DOCS / "_build" / "gallery"
RECORDS = DOCS / "outputs" / "gallery"
#: Rows of a table that a page shows.
SHOWN = 40
#: What Markdown reads as its own.
_SIGNS = re.compile(r"([\\`*_{}\[\]<>$#|~^&])")
logger = logging.getLogger(__name__)


def compute(experiment: Listed, results: Path = RESULTS) -> Page:
    """The quick result of an experiment by these sources, computed unless it is there."""
    if not is_current(results / experiment.name):
        run(experiment, results, quick=True, seed=0)
        mark_current(results / experiment.name)
    result = page(experiment, results)
    assert result is not None
    return result


def check(shown: Page) -> None:
    """Compare the data of a page with its record, or write that."""
    data = (shown.folder / store.DATA).read_text(encoding="utf-8")
    if os.environ.get("FPSIM_RECORD"):
        RECORDS.mkdir(parents=True, exist_ok=True)
        (RECORDS / f"{shown.name}.csv").write_text(data, encoding="utf-8")
    elif told := difference(RECORDS / f"{shown.name}.csv", data):
        logger.warning("data of %s changed:\n%s", shown.name, told, type="fpsim", subtype="bits")


def plain(text: str) -> str:
    """Text in which Markdown finds nothing.

    >>> plain("2^18 of *all*")
    '2\\\\^18 of \\\\*all\\\\*'
    """
    return _SIGNS.sub(r"\\\1", " ".join(text.split()))


def table(heads: list[str], lines: list[list[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(map(plain, heads))} |"
    yield "|---" * len(heads) + "|"
    for line in lines[:SHOWN]:
        yield f"| {' | '.join(plain(str(cell)) for cell in line)} |"


def text_of(shown: Page, quick: Page, claims: list[Exhibit]) -> Iterator[str]:
    """The page of an experiment, in lines: of a run that is shown, and the quick one of a build."""
    experiment = shown.experiment
    assert isinstance(experiment, Listed)
    yield from (f"# {plain(experiment.question)}", "", plain(shown.result.answer), "")
    if shown.figure.svg:
        yield from ("```{raw} html", f":file: figures/{shown.name}.html", "```", "")
    for claim in claims:
        yield from (f"## {plain(claim.part)}: {claim.verdict}", "", plain(claim.statement), "",
                    f"Source: {plain(claim.source)}.", "")
        if claim.lines:
            yield from table(["quantity", "published", "here", "agrees"], claim.lines)
            yield ""
    for one in [] if claims else shown.tables:
        yield from (f"## {plain(one.title)}", "")
        yield from table(list(one.heads), [list(line) for line in one.lines])
        yield from ("", plain(one.note), "")
    yield from _facts(shown, quick)
    room = experiment.room.rpartition(".")[2]
    yield from ("## Code", "", "The machinery around it: [experiments](../experiments.md).", "",
                f"```{{literalinclude}} ../../experiments/{room}/{shown.name}.py",
                ":language: python", "```", "")
    assert quick.meta["quick"]


def _facts(shown: Page, quick: Page) -> Iterator[str]:
    yield from (
        "## Where it comes from", "",
        f"- Data: {{download}}`data.csv <data/{shown.name}.csv>`, {len(shown.result.rows)} rows, "
        f"SHA-256 `{shown.meta['data_sha256']}`.",
        f"- {_run_of(shown)}",
        *([] if shown is quick else [f"- {_run_of(quick)}"]),
        f"- This build compared the data of the quick run, SHA-256 `{quick.meta['data_sha256']}`, "
        "with their record, bit for bit.",
        f"- Policy: `{shown.result.policy}`",
        *(f"- Rests on: {plain(unit.name)}, **{unit.evidence}** ({plain(unit.source)})"
          for unit in shown.result.units[:SHOWN]),
        "",
    )


def _run_of(shown: Page) -> str:
    """Which run it was: command, commit, time, processor."""
    meta = shown.meta
    kind = "Quick run of this build" if meta["quick"] else "Full run"
    return (f"{kind}: `{meta['command']}`, fpsim {meta['versions']['fpsim']}, commit "
            f"{meta['commit'] or 'unknown'}, {in_words(meta['wall_seconds'])} on "
            f"{plain(meta['processor'])}.")


def figure_of(shown: Page) -> str:
    """The figure as an instrument, with its caption."""
    parts = environment().get_template("parts.html.jinja").module
    drawn = parts.instrument(  # type: ignore[attr-defined]
        shown.figure.svg, shown.experiment.question, shown.caption, shown.name)
    return f'{drawn}<p class="lead">{parts.ways()}</p>{_SCRIPT}'  # type: ignore[attr-defined]


_SCRIPT = '<script src="../_static/figure.js" defer></script>'


def index_of(pages: list[Page], missing: list[Listed]) -> Iterator[str]:
    """The first page of the gallery."""
    yield from (
        "# Gallery", "",
        "Every experiment, with answer, figure, data, code and run time. Pages show full runs: "
        "data and descriptions lie in the repository, with digest and commit, and are drawn when "
        "this site is built. Computing them takes an hour or two; `make gallery` does, and "
        "compares them bit for bit. The build computed the quick run of each experiment and "
        "compared it with its record: a page whose bits change fails the build and shows the "
        "difference. Where the last column says quick, no full run is recorded yet, and the "
        "page shows the quick one. Times were taken on two cores that others used too.", "",
        "| question | answer, in short | run |", "|---|---|---|",
    )
    for shown in pages:
        kind = "quick" if shown.meta["quick"] else f"full, {in_words(shown.meta['wall_seconds'])}"
        yield (f"| [{plain(shown.experiment.question)}]({shown.name}.md) "
               f"| {plain(shown.short_answer)} | {kind} |")
    for experiment in missing:
        yield (f"| {plain(experiment.question)} | not computed by this build, which has no "
               f"{experiment.needs}: `fpsim run {experiment.name}` | |")
    yield from ("", "```{toctree}", ":hidden:", *(shown.name for shown in pages), "```", "")


def write(folder: Path = PAGES) -> None:
    """Compute every experiment and write its page."""
    # Everybody's pages are those of the data that fpsim brings.
    os.environ.pop("FPSIM_DATA", None)
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("figures", "data"):
        (folder / name).mkdir(parents=True)
    experiments = list(catalogue().values())
    computed = {e: compute(e) for e in experiments if not e.missing}
    pages = [recorded(experiment) or quick for experiment, quick in computed.items()]
    claims = {is_quick: list(exhibits(at)) for is_quick, at in ((True, RESULTS), (False, DRAWN))}
    for shown, quick in zip(pages, computed.values(), strict=True):
        check(quick)
        mine = [x for x in claims[shown.meta["quick"]] if x.experiment == shown.name]
        text = "\n".join(text_of(shown, quick, mine))
        (folder / f"{shown.name}.md").write_text(text, encoding="utf-8")
        shutil.copy(shown.folder / store.DATA, folder / "data" / f"{shown.name}.csv")
        if shown.figure.svg:
            (folder / "figures" / f"{shown.name}.html").write_text(
                figure_of(shown), encoding="utf-8")
    missing = [experiment for experiment in experiments if experiment.missing]
    (folder / "index.md").write_text("\n".join(index_of(pages, missing)), encoding="utf-8")


def _write_static(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        for name in ("figure.js", "figure.css"):
            text = environment().get_template(name).render()
            Path(app.outdir, "_static", name).write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", lambda app: write())
    app.connect("build-finished", _write_static)
    return {"parallel_read_safe": True}
