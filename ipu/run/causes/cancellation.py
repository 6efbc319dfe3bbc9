"""Operations that magnify the error of their operands, as differences of nearly equal numbers do.

Evidence    ASSUMED: the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ipu.run.births.kinds import CONSTANT, INFINITY, SATURATED
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import clause_of, name_of, place_of
from ipu.run.causes.magnifying import magnified_as, where_grown
from ipu.run.causes.rows import Report, Row, is_pass, shadow_rows, shadow_rows_of
from ipu.run.sentences import capital, where_told
from ipu.run.shadow import WRONG

__all__ = ["BORN", "MAGNIFIED", "behind_overflow", "cancelled"]

#: Times that an operation magnifies the error of its operands, at least, where it is told as the
#: place in which precision is lost.
MAGNIFIED = 16.0
#: Error that is born in one operation, at least, where its operands have lost their digits.
BORN = 0.2


def cancelled(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """The operation going forward that magnifies errors most.

    No number leaves its range in a difference of nearly equal ones, and nearly all digits go.
    """
    forward = [row for row in shadow_rows(report) if is_pass(row["direction"])]
    rows = [row for row in forward if row["error"] > WRONG]
    magnified = _magnified(rows)
    rounded = [row for row in rows if row["born"] > BORN]  # operands lose them on the way in
    # Means over steps hide it, once the parameters have parted. One call says little by itself, as
    # of a mask: it is told of a harm that a run in binary32 has not.
    if not (magnified or rounded) and "harm" in report:
        magnified = _magnified([{**row, **row["peak"]} for row in forward if row.get("peak")])
    if magnified:  # what reads a wrong difference may magnify it once more
        begins = [row for row in magnified if row["error"] < WRONG * float(row["amplification"])]
        worst = max(begins or magnified, key=lambda row: float(row["amplification"]))
        # Calls of several lines are one row; it is the worst one's that is told.
        worst = {**worst, "line": worst.get("peak", {}).get("line") or worst["line"]}
        times = float(worst["amplification"])
        before = 100 * worst["error"] / times
        what = (f"their error of {before:.2g}% is {worst['error']:.0%} of its results, "
                f"{times:.0f} times as much")
    elif rounded:
        worst = max(rounded, key=lambda row: float(row["born"]))
        what = f"rounding them costs {worst['born']:.0%} of its results"
    else:
        return
    constant = next((row for row in births if row["kind"] == CONSTANT and not row["harmless"]
                     and row["line"] and row["line"] == worst["line"]), None)
    if constant is not None:  # the digits go with the number that the program writes there
        yield Cause("constant", capital(
            f"{clause_of(constant)} ({where_told(constant)})"), constant)
        return
    yield Cause("cancellation", capital(
        f"{name_of(worst)} loses the digits of its operands ({place_of(worst)}): {what}"
        f"{magnified_as(worst)}{where_grown(worst)}"), worst, worst["error"])


def behind_overflow(first: Cause, report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """What an overflow follows from whose results binary64 has within the range.

    As the derivative of the root of a variance that has lost its digits. Results that binary64
    has beyond the range, too, are wrong by less than their size.
    """
    if first.row.get("kind") in (INFINITY, SATURATED) and any(
            of_shadow.get("least", 0.0) > 1 for of_shadow in shadow_rows_of(first.row, report)):
        yield from cancelled(report, births)


def _magnified(rows: Iterable[Row]) -> list[Row]:
    """Operations whose operands are much less wrong than their results."""
    return [row for row in rows if (row["amplification"] or 0.0) > MAGNIFIED]
