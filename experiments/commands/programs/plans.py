"""Plans of a program beside its page: schedule, account and timeline as files, pictures, a page.

The page says which plan of the same stages, IPUs and micro-batches would be faster or smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipu.plan.metering import Costs
    from ipu.plan.search import Search

__all__ = ["write_plans"]


def write_plans(out: Path, plans: Sequence[Costs], front_end: str) -> list[Path]:
    """A folder `plan` for each, numbered where there are several; of long plans a few rounds.

    front_end    whose code the page writes: "poptorch" or "tensorflow".
    """
    if not plans:
        return []
    from ipu.experiments.pictures.sheet import draw_sheet
    from ipu.plan.explain import few_rounds
    from ipu.plan.trace import write_profile

    folders = []
    for number, costs in enumerate(plans):
        plan, figures = costs
        folder = out / ("plan" if len(plans) == 1 else f"plan-{number}")
        short = few_rounds(plan)
        write_profile(folder, short, figures)
        draw_sheet(short, figures).savefig(folder / "plan.png", dpi=110)
        if plan.training and all(len(position) == 1 for position in plan.positions):
            _write_search(folder / "which", costs, front_end)
        folders.append(folder)
    return folders


def _write_search(folder: Path, costs: Costs, front_end: str) -> None:
    """The page of a search over the program's own stages: they may be joined, not cut."""
    from ipu.experiments.pictures.plan_page import write_plan_page
    from ipu.plan.chain import LayerChain
    from ipu.plan.search import POPTORCH, TENSORFLOW, PlanSpace, search

    plan, figures = costs
    count = plan.count * plan.replicas
    schedules = {"poptorch": POPTORCH, "tensorflow": TENSORFLOW}[front_end]
    space = PlanSpace(
        plan.n_ipus, count, schedules, replicas=plan.replicas, shard_minimum=plan.shard_minimum,
        sends_all=plan.output_period == 1,
    )
    result = search(LayerChain.of_stages(figures, count=count), space)
    write_plan_page(folder, result, "The stages of the program", _code(result, front_end))


def _code(result: Search, front_end: str) -> str:
    """The best plan in the front end's own words."""
    best = result.best or result.smallest
    if front_end == "poptorch":
        from ipu.frontends.poptorch.plan_code import plan_code as poptorch_code

        return poptorch_code(best.plan, None)
    from ipu.frontends.tensorflow.pipelining.plan_code import plan_code

    edges = pairwise((0, *best.cuts, len(result.chain)))
    joined = [" + ".join(f"stage_{i}" for i in range(a, b)) for a, b in edges]
    return plan_code(best.plan, joined)
