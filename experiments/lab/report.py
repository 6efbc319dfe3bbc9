"""The report: every stored result on one self-contained page, and the same as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipu.experiments.lab import store
from ipu.experiments.lab.caption import caption
from ipu.experiments.lab.catalogue import Experiment, catalogue
from ipu.experiments.lab.result import Result, Table
from ipu.experiments.lab.versions import commit, processor, versions
from ipu.run.pages.rendering import data_url, png_url, write_page
from ipu.run.pages.vector import Picture, inline

#: What a page prints of a description, by type.
PRINTED: dict[str, type | tuple[type, ...]] = {
    "quick": bool, "command": str, "date": str, "commit": str, "processor": str, "threads": int,
    "versions": dict, "wall_seconds": (int, float), "budget_seconds": (int, float),
}
#: Bytes of a figure that the page still holds as SVG; a larger one is shown as PNG.
LARGEST_FIGURE = 1_500_000
#: Types of the files of a result, by their endings.
TYPES = {".json": "application/json", ".csv": "text/csv", ".txt": "text/plain"}


@dataclass(frozen=True)
class Page:
    """One experiment in the report."""

    experiment: Experiment
    result: Result
    meta: dict[str, Any]
    folder: Path

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def tables(self) -> list[Table]:
        return self.experiment.tables(self.result)

    @property
    def figure(self) -> Picture:
        """The figure as a part of the page; no svg where there is none, or one that is large."""
        path = self.folder / store.VECTOR
        if not path.exists() or path.stat().st_size > LARGEST_FIGURE:
            return Picture("", "")
        return inline(path.read_text(encoding="utf-8"), f"{self.name}-0-")

    @property
    def caption(self) -> str:
        """What the figure shows, of how much, and what ± means."""
        return caption(self.figure.svg, self.result, self.meta)

    @property
    def short_answer(self) -> str:
        """How the answer begins, for the table of questions."""
        return beginning(self.result.answer)

    @property
    def image(self) -> str:
        """The figure as a data URL, or nothing where there is none."""
        figure = self.folder / store.FIGURE
        return png_url(figure.read_bytes()) if figure.exists() else ""

    @property
    def files(self) -> list[tuple[str, str]]:
        """Names of the data files and their contents as data URLs: they travel with the page."""
        kinds = {store.DATA: "text/csv", store.LOCAL: "text/csv", store.META: "application/json"}
        kinds |= {name: TYPES[Path(name).suffix] for name in self.result.files}
        paths = {self.folder / name: kind for name, kind in kinds.items()}
        return [(p.name, data_url(kind, p.read_bytes())) for p, kind in paths.items()
                if p.exists()]

    @property
    def pictures(self) -> list[Picture]:
        """The pictures to zoom, as parts of the page."""
        paths = enumerate(store.pictures(self.folder), 1)
        return [
            inline(path.read_text(encoding="utf-8"), f"{self.name}-{number}-")
            for number, path in paths
        ]

    @property
    def time(self) -> str:
        """How long it took, where, and what a full run is expected to take."""
        meta = self.meta
        threads = f"{meta['threads']} thread{'s' if meta['threads'] != 1 else ''}"
        text = in_words(meta["wall_seconds"])
        text += f" with {threads} on {meta['processor']}, kernels compiled where needed"
        if meta["budget_seconds"]:
            budget = in_words(meta["budget_seconds"])
            text += f"; a full run on two quiet cores: {budget} at most"
        return text


def beginning(text: str, least: int = 40) -> str:
    """The first sentences of a text, as many as say something.

    >>> beginning("Yes. It stalls at 0.25 (n = 2), and FP32 does not. More seeds were run.")
    'Yes. It stalls at 0.25 (n = 2), and FP32 does not.'
    """
    for match in re.finditer(r"[.!?](?=\s+[^a-z\s])", text):
        if match.end() >= least:
            return text[: match.end()]
    return text


def in_words(seconds: float) -> str:
    """A time for people.

    >>> in_words(0.31), in_words(14.0), in_words(95.45), in_words(3600.0)
    ('0.3 s', '14 s', '1 min 35 s', '60 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    minutes, rest = divmod(round(seconds), 60)
    return " ".join(f"{n} {unit}" for n, unit in ((minutes, "min"), (rest, "s")) if n)


def pages(out: Path) -> tuple[list[Page], dict[str, str]]:
    """The complete results below a folder in the catalogue's order, and why others are missing."""
    complete, damaged = [], {}
    for experiment in catalogue().values():
        try:
            one = page(experiment, out)
        except store.DamagedError as error:
            damaged[experiment.name] = str(error)
            continue
        if one is not None:
            complete.append(one)
    return complete, damaged


def write_report(out: Path) -> Path:
    """Write index.html and index.md for what lies below `out`; returns the page's path."""
    return write_pages(out / "index", *pages(out))


def page(experiment: Experiment, out: Path) -> Page | None:
    """The complete result of one experiment below a folder; None if there is none.

    Raises    DamagedError for one that is not complete.
    """
    stored = store.load(out / experiment.name)
    if stored is None:
        return None
    _check(stored[1])
    return Page(experiment, *stored, out / experiment.name)


def _check(meta: Mapping[str, Any]) -> None:
    """The description has what a page prints; an older fpsim wrote less."""
    for name, kind in PRINTED.items():
        if not isinstance(meta.get(name), kind):
            raise store.DamagedError(f"{store.META} has no usable {name!r}")


def write_pages(path: Path, shown: list[Page], damaged: Mapping[str, str] | None = None) -> Path:
    """Write path.html and path.md with these results; returns the page's path."""
    content = {
        "pages": shown, "damaged": damaged or {}, "versions": versions(), "commit": commit(),
        "processor": processor(),
    }
    write_page(path.with_name(f"{path.name}.md"), "report", content)
    return write_page(path.with_name(f"{path.name}.html"), "report", content)
