"""The report: every stored result on one self-contained page, and the same as Markdown."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import jinja2

from fpsim.state.files import write_whole
from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import Experiment, catalogue
from ipu.experiments.lab.result import Result
from ipu.experiments.lab.versions import versions

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Page:
    """One experiment in the report."""

    experiment: Experiment
    result: Result
    meta: dict[str, object]
    figure: bytes | None

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def image(self) -> str:
        """The figure as a data URL, or nothing when it has not been drawn."""
        if self.figure is None:
            return ""
        return "data:image/png;base64," + base64.b64encode(self.figure).decode()


def pages(out: Path) -> list[Page]:
    """The complete results below a folder, in the catalogue's order."""
    found = (page(experiment, out) for experiment in catalogue().values())
    return [one for one in found if one is not None]


def write_report(out: Path) -> Path:
    """Write index.html and index.md for what lies below `out`; returns the page's path."""
    return write_pages(out / "index", pages(out))


def page(experiment: Experiment, out: Path) -> Page | None:
    """The complete result of one experiment below a folder; None if there is none."""
    folder = out / experiment.name
    stored = store.load(folder)
    if stored is None:
        return None
    figure = folder / store.FIGURE
    return Page(experiment, *stored, figure.read_bytes() if figure.exists() else None)


def write_pages(path: Path, found: list[Page]) -> Path:
    """Write path.html and path.md with these results; returns the page's path."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=lambda name: name is not None and ".html" in name,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    content = {"pages": found, "versions": versions()}
    for kind in ("md", "html"):
        text = templates.get_template(f"report.{kind}.jinja").render(content)
        write_whole(path.with_name(f"{path.name}.{kind}"), text.encode())
    return path.with_name(f"{path.name}.html")
