"""Changing to another program: what one that comes onto the chips moves.

Source    the maker's guide on performance, §4.5.2 (one computational graph, cached executables).
"""

from __future__ import annotations

from collections.abc import Sequence

from ipu.machine.target import Target
from ipu.plan.cycles import Rates
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan

__all__ = ["switch_cost", "switched_bytes"]


def switched_bytes(plan: Plan, figures: Sequence[StageFigures]) -> int:
    """Weights and state on the chips of all replicas.

    >>> switched_bytes(Plan([abs], replicas=2), [StageFigures(parameter_bytes=100)])
    200
    """
    here = sum(
        stage.parameter_bytes * ("weights" not in plan.offloaded) + stage.state_in(plan)[0]
        for stage in figures
    )
    return here * plan.replicas


def switch_cost(plan: Plan, figures: Sequence[StageFigures], target: Target) -> str:
    """What each switch costs, in words."""
    moved, rates = switched_bytes(plan, figures), Rates(target)
    cycles = rates.cycles(2 * moved, "host")
    return f"each moves {moved} bytes out and in, {cycles:.0f} cycles ({rates.host})"
