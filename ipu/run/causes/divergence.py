"""A loss that grows before any number has left its range.

Evidence    ASSUMED: the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ipu.learn.policy import FP32
from ipu.run.births.kinds import CONSTANT
from ipu.run.causes.cause import Cause
from ipu.run.causes.rows import EXCURSIONS, Report, Row

__all__ = ["diverges"]

#: A loss so many times its first value, while every number is in its range, diverges by itself.
_GROWTH = 20.0
#: An update so many times as large as its parameter's largest number is no rounding's.
_JUMP = 8.0


def diverges(report: Report, births: Sequence[Row]) -> Cause | None:
    """A loss that has grown before any number left its range, where binary32 may do so too.

    Of a program that trains in binary32, as was tried, a format is the cause.
    """
    losses = report.get("losses", ())
    if report.get("binary32") or not losses or not math.isfinite(losses[0]):
        return None
    bound = _GROWTH * abs(losses[0])
    index = next((i for i, x in enumerate(losses) if not abs(x) <= bound), None)
    if index is None:
        return None
    step, grown = index + report.get("first_step", 0), f"{losses[0]:.3g} to {losses[index]:.3g}"
    first = min((row["step"] for row in births if row["kind"] in (*EXCURSIONS, CONSTANT) and not (
        row["harmless"])), default=math.inf)
    jumps = {int(k): jump for k, jump in report.get("jumps", {}).items() if jump > _JUMP}
    jump = min((k for k in jumps if k < min(first, step)), default=None)
    if jump is not None:
        what = (f"an update of step {jump} is {jumps[jump]:.0f} times as large as its parameter, "
                f"and the loss goes from {grown} in step {step}")
    elif first > step and not any(loss < 0 for loss in losses):  # which is no distance
        what = f"the loss grew from {grown} in step {step}"
    else:
        return None
    tail = ("format, in binary32 itself" if report.get("policy") == str(FP32) else
            "format, so binary32 is expected to diverge too")
    return Cause("diverges", f"The training diverges: {what}, before any number left the range of "
                 f"its {tail}", {})
