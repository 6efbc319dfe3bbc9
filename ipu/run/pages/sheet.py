"""The page of one sheet on a diagnosis: cause, sites, doses, remedies, losses, the patch."""

from __future__ import annotations

from pathlib import Path

from ipu.run.diagnosis import Diagnosis
from ipu.run.pages.figures import loss_figure
from ipu.run.pages.rendering import write_page
from ipu.run.pages.vector import inline, to_svg
from ipu.run.responses import harm_text

__all__ = ["write_sheet"]


def write_sheet(path: Path, diagnosis: Diagnosis, patch: str, program: str) -> Path:
    """Write the page, with its figure inside, so that it can be forwarded.

    patch      of the first remedy that cures; "": none does.
    program    its name.
    """
    figure = loss_figure({
        diagnosis.beside: diagnosis.reference, str(diagnosis.way): diagnosis.losses,
    })
    svg = "" if figure is None else inline(to_svg(figure, "losses"), "losses-").svg
    return write_page(path, "sheet", {
        "diagnosis": diagnosis, "patch": patch, "program": program, "svg": svg,
        "harm": harm_text,
    })
