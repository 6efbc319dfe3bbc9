"""Plans of a program beside its page: schedule, account and timeline as files, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipu.plan.metering import Costs

__all__ = ["write_plans"]


def write_plans(out: Path, plans: Sequence[Costs]) -> list[Path]:
    """A folder `plan` for each, numbered where there are several; of long plans a few rounds."""
    if not plans:
        return []
    from ipu.experiments.pictures.sheet import draw_sheet
    from ipu.plan.explain import few_rounds
    from ipu.plan.trace import write_profile

    folders = []
    for number, (plan, figures) in enumerate(plans):
        folder = out / ("plan" if len(plans) == 1 else f"plan-{number}")
        short = few_rounds(plan)
        write_profile(folder, short, figures)
        draw_sheet(short, figures).savefig(folder / "plan.png", dpi=110)
        folders.append(folder)
    return folders
