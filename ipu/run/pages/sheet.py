"""The page of one sheet on a diagnosis: cause, sites, doses, remedies, losses, the patch."""

from __future__ import annotations

import json
from pathlib import Path

from fpsim.state.files import write_whole
from ipu.run.diagnosis import Diagnosis, plain_diagnosis
from ipu.run.pages.figures import loss_figure
from ipu.run.pages.page import plain
from ipu.run.pages.rendering import data_url, write_page
from ipu.run.pages.vector import inline, to_svg
from ipu.run.responses import harm_text

__all__ = ["write_sheet"]


def write_sheet(path: Path, diagnosis: Diagnosis, patch: str, program: str) -> Path:
    """Write the page and diagnosis.json; figure and data are inside, so that it can be forwarded.

    patch      of the first remedy that cures; "": none does.
    program    its name.
    """
    figure = loss_figure({
        diagnosis.beside: diagnosis.reference, str(diagnosis.way): diagnosis.losses,
    })
    svg = "" if figure is None else inline(to_svg(figure, "losses"), "losses-").svg
    data = json.dumps(plain(plain_diagnosis(diagnosis)), indent=1, ensure_ascii=False).encode()
    write_whole(path.with_name("diagnosis.json"), data)
    return write_page(path, "sheet", {
        "data_url": data_url("application/json", data),
        "diagnosis": diagnosis, "patch": patch, "program": program, "svg": svg,
        "harm": harm_text,
    })
