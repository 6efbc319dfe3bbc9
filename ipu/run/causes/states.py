"""States of optimisers: squares of gradients that are flushed to zero, and divided by.

Evidence    ASSUMED: the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ipu.run.births.kinds import ZERO
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import clause_of, share_of
from ipu.run.causes.losses import parts_at_once
from ipu.run.causes.rows import EXCURSIONS, Report, Row
from ipu.run.motions import arrival

__all__ = ["overshot_updates", "small_divisors"]

#: Times its way that a parameter moves at least of an optimiser whose divisors are too small, and
#: the share of the optimiser's results that are flushed to zero.
_OVERSHOT, _FLUSHED = 2.0, 0.1
#: Times binary32's update of the same step of such an optimiser's.
_TIMES = 4.0
#: Ends of names of optimisers that divide by nothing.
_DIVIDES_BY_NOTHING = ("sgd", "momentum", "descent", "lion", "rprop")
#: Distance of a first loss from binary32's that explains an update which is many times as large.
_MOSTLY = 0.5


def small_divisors(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Squares of gradients that underflow in an optimiser, which divides by their roots."""
    times = arrival(report)
    rows = [] if parts_at_once(report, _MOSTLY) else _flushed_divisors(births)
    if rows and times > _OVERSHOT:
        worst = max(rows, key=lambda row: row["count"])
        yield Cause("states", f"Divisors of the optimiser are too small: {clause_of(worst)}, "
                    f"{share_of(worst)}, and parameters move {times:.1f} times as far as in "
                    "binary64", worst, 1 - 1 / times)


def _flushed_divisors(births: Sequence[Row]) -> list[Row]:
    """Results of optimisers that divide, a good part of which are flushed to zero."""
    return [
        row for row in births if row["kind"] == ZERO and row["direction"] == "optimizer"
        and row["count"] > _FLUSHED * row["results"]
        and not str(row["operation"]).lower().endswith(_DIVIDES_BY_NOTHING)
    ]


def overshot_updates(
    report: Report, births: Sequence[Row], symptom: Sequence[Cause]
) -> Iterator[Cause]:
    """Divisors of an optimiser that are too small, before any number leaves its range.

    Its update is then many times binary32's of the same step; what leaves the range later follows.
    """
    if parts_at_once(report, _MOSTLY):  # a wrong loss has wrong gradients
        return
    jumps = {int(step): jump for step, jump in report.get("jumps", {}).items()}
    theirs = {int(step): jump for step, jump in report.get("binary32", {}).get("jumps", {}).items()}
    flushed = _flushed_divisors(births)
    beyond = [row for row in births if row["kind"] in EXCURSIONS and not row["harmless"]]
    first = min((row["step"] for row in beyond), default=math.inf)
    step = next((step for step, jump in sorted(jumps.items()) if step < first
                 and jump > _TIMES * theirs.get(step, math.inf)), None)
    if step is None or not flushed:
        return
    worst = max(flushed, key=lambda row: row["count"])
    sentence = (
        f"Divisors of the optimiser are too small: {clause_of(worst)}, {share_of(worst)}, and the "
        f"update of step {step} is {jumps[step] / theirs[step]:.0f} times as large as binary32's")
    follows = [cause.sentence for cause in symptom] or [
        clause_of(min(beyond, key=lambda row: (row["step"], row["number"])))] if beyond else []
    if follows:
        sentence += f". What follows: {follows[0]}"
    yield Cause("states", sentence, worst)
