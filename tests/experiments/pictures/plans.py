"""Plans with figures written by hand, for pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan

OWN = StageFigures(
    parameter_bytes=400, state_bytes=800, accumulator_bytes=400, input_bytes=64, output_bytes=6400,
    saved_bytes=128, infeed_bytes=640, forward_cycles=1000, backward_cycles=2000, update_cycles=300,
)
FIGURES = (OWN, replace(OWN, infeed_bytes=0))


def plan_of(**options: Any) -> Plan:
    """Two stages, four micro-batches."""
    return Plan([abs, abs], **{"count": 4, "offload": (), **options})
