"""Tensors that stand still while their shadows move."""

from __future__ import annotations

from collections.abc import Iterator

from ipu.run.causes.cancellation import BORN, MAGNIFIED
from ipu.run.causes.cause import Cause
from ipu.run.causes.rows import Report, shadow_rows
from ipu.run.motions import STILL, astray, factors_of_one

__all__ = ["drifts"]


def drifts(report: Report) -> Iterator[Cause]:
    """A tensor that stands still while its shadow moves, by steps that binary32 holds.

    Parameters are told by their updates, and what the states of their optimiser do shows there.
    """
    still = [row for row in astray(report) if row["arrived"] < STILL]
    if not still:
        return
    worst = still[0]
    shape = " × ".join(map(str, worst["shape"])) or "one number"
    what = f"{worst['name']}, which" if worst["name"] else f"a tensor of {shape} that"
    writer = f"{worst['operation']} writes ({worst['line']})"
    factor = factors_of_one(report).get(worst["line"])
    begin = "Sums" if factor is None else (
        f"The factor {factor['value']:g} of an average is 1 in {factor['format']}: sums")
    if worst["name"]:
        writer += ","
    follows = "" if worst["shape"] else _follows(report)
    owners = f", in parameters of {worst['owner']}" if worst.get("owner") else ""
    layer = worst.get("layer", worst["name"].rpartition(".")[0])
    yield Cause("drift", f"{begin} are left nearly unchanged: over {worst['steps']} steps "
                f"{what} {writer} moves by {max(worst['arrived'], 0.0):.0%} of its way in "
                f"binary64{follows}{owners}",
                {**worst, "layer": layer, "direction": "forward",
                 "is_of_copies": worst.get("is_copy", False)},
                1 - max(worst["arrived"], 0.0))


def _follows(report: Report) -> str:
    """What magnifies the error of a counter, as a remainder of it does; "" where nothing does."""
    rows = [row for row in shadow_rows(report)
            if row["error"] > BORN and (row["amplification"] or 0.0) > MAGNIFIED]
    if not rows:
        return ""
    worst = max(rows, key=lambda row: float(row["amplification"]))
    return f"; the {worst['operation'].removeprefix('aten.')} ({worst['line']}) is wrong by " \
           f"{worst['error']:.0%}"
