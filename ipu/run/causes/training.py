"""What trainings lose to rounding: digits of gradients, and updates.

Evidence    ASSUMED: the bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu.run.births.kinds import ZERO
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import clause_of
from ipu.run.causes.losses import harm_of_run, trains_well
from ipu.run.causes.rows import Report, Row
from ipu.run.harm import HARM
from ipu.run.motions import arrival, least_arrival
from ipu.run.swallowed import lost_updates

__all__ = ["DIGITS", "swallowed", "vanished"]

#: Share of the gradients' digits that are lost to subnormal numbers and zero.
DIGITS = 0.05
#: Share of its way in binary64 that each parameter moves at least where lost updates do no harm.
_FOLLOWS = 0.9
#: Beside the largest share of results that one operation flushes, that of the one that begins it.
_BEGINS = 0.5
#: Within this factor of it lost digits of gradients do no harm.
_FAR = 1.1


def vanished(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Gradients that underflow."""
    flushed = [r for r in births if r["kind"] == ZERO and r["direction"] == "backward"]
    first = _first_that_costs(flushed)
    begins = f": it begins where {clause_of(first)}" if first else ""
    gradients = report.get("exponents", {}).get("gradients", ())
    numbers = sum(sum(h["counts"].values()) for h in gradients if h["format"] != "binary32")
    zeros = sum(h["zeros"] for h in gradients if h["format"] != "binary32")
    if flushed and zeros and not numbers:
        yield Cause("gradients vanish", f"Every gradient is zero{begins}", first)
        return
    scales = report.get("loss_scale") or {}
    if not scales or scales["best"] is None:
        return
    now, then = scales["lost"]
    if now - then > DIGITS and not (1 / _FAR < arrival(report) < _FAR or trains_well(report)):
        yield Cause("gradients vanish", f"Gradients underflow: {now:.0%} of their digits are lost "
                    f"to subnormal numbers and zero{begins}", first, now)


def _first_that_costs(flushed: Sequence[Row]) -> Row:
    """The first of the flushes of a step with a good part of its results; {} where there is none.

    A loss may lose its few smallest gradients, and a product behind it all of them.
    """
    step = min((row["step"] for row in flushed), default=0)
    rows = sorted((row for row in flushed if row["step"] == step), key=lambda row: row["number"])
    shares = [row["count"] / max(row["results"], 1) for row in rows]
    pairs = zip(rows, shares, strict=True)
    return next((row for row, share in pairs if share >= _BEGINS * max(shares)), {})


def swallowed(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Updates that nearest rounding ends; stochastically rounded ones arrive in the mean."""
    lost = lost_updates(report, is_harmed=harm_of_run(report) > HARM)
    if lost is None or least_arrival(report) > _FOLLOWS or trains_well(report):
        return
    yield Cause("updates", lost.sentence, lost.worst.row, lost.harm)
