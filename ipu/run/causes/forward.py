"""Rules of passes forward, for programs whose losses part where no other rule says why.

Evidence    ASSUMED: the bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu.run.births.kinds import CONSTANT, ZERO
from ipu.run.causes.cancellation import cancelled
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import clause_of, name_of, place_of, share_of
from ipu.run.causes.data import lost_data
from ipu.run.causes.paths import clauses_of, path_to
from ipu.run.causes.rows import Report, Row, is_pass, shadow_rows
from ipu.run.causes.terms import MOST, is_outweighed, lost_terms
from ipu.run.sentences import capital, where_told

__all__ = ["OF_HARM"]

#: Sums whose roundings add up: calls and mean error at least, how many times as large it is as
#: what one of them rounds away, and the most that they magnify errors of others.
_SUMS, _CALLS, _OF_SUM, _ADDED_UP, _ADDS = ("add", "sub", "assignadd"), 32, 0.02, 16.0, 1.25


def _rounded_sums(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """The sum that is rounded most often: no error of it is large, and they add up."""
    rows = [
        row for row in shadow_rows(report)
        if is_pass(row["direction"]) and str(row["operation"]).lower().removeprefix("aten.")
        .startswith(_SUMS) and row.get("calls", 0) >= _CALLS and row["born"] > 0
        and row["error"] > max(_OF_SUM, _ADDED_UP * row["born"])
        and (row["amplification"] or 0.0) < _ADDS
    ]
    if rows:
        worst = max(rows, key=lambda row: float(row["error"]))
        yield Cause("sums", capital(
            f"rounding adds up in {name_of(worst)} ({place_of(worst)}): {worst['calls']:,} sums "
            f"are rounded, each by {worst['born']:.2%}, and they are wrong by "
            f"{worst['error']:.1%} in the mean"), worst, worst["error"])


def _underflowed(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Results of a pass forward most of which are flushed to zero."""
    rows = [r for r in births if r["kind"] == ZERO and is_pass(r["direction"])
            and not r["harmless"] and r["count"] > MOST * r["results"]
            and not is_outweighed(path_to(r, births)[0], report)]
    if rows:
        path = path_to(rows[0], births)
        yield Cause("underflow", capital(f"{clauses_of(path)}: {share_of(rows[0])}"), path[0])


def _changed(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """A number of the program's pass forward that is another one in its format."""
    row = next((r for r in births if r["kind"] == CONSTANT and is_pass(r["direction"])
                and not r["harmless"]), None)
    if row is not None:
        yield Cause("constant", capital(f"{clause_of(row)} ({where_told(row)})"), row)


#: Rules for programs whose losses part, where no other one says why.
OF_HARM = (lost_data, _underflowed, lost_terms, cancelled, _rounded_sums, _changed)
