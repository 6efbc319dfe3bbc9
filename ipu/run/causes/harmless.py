"""What numbers lose without harm: no cause says it, and it needs nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ipu.run.causes.losses import trains_well
from ipu.run.causes.rows import Report, Row
from ipu.run.causes.training import DIGITS
from ipu.run.motions import way_lost
from ipu.run.swallowed import lost_updates

__all__ = ["harmless", "harmless_losses"]


def harmless(report: Report) -> list[Row]:
    """Births that died in operations whose results they did not change."""
    return [row for row in report.get("births", ()) if row["harmless"]]


def harmless_losses(report: Report) -> Iterator[str]:
    """Digits that the run loses without harm, in words: no cause says them, and they need nothing.

    As updates that leave their parameter as it was, where the losses are binary32's and the
    parameters go nearly all of their way.
    """
    if not trains_well(report):
        return
    clauses = []
    lost, scales = lost_updates(report), report.get("loss_scale") or {}
    if lost is not None:
        clauses.append(lost.clause)
    if scales and scales["best"] is not None and scales["lost"][0] - scales["lost"][1] > DIGITS:
        clauses.append(f"gradients lose {scales['lost'][0]:.0%} of their digits to subnormal "
                       "numbers and zero")
    far = 1 - way_lost(report)
    effect = "" if math.isnan(far) else f"; parameters go {far:.0%} of their way in binary64"
    yield from (f"{clause}{effect}" for clause in clauses)
