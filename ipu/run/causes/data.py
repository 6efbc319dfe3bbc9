"""What numbers from outside and whole numbers lose in their format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu.run.births.kinds import DATA_DIGITS, DATA_ZERO, INTEGERS
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import clause_of
from ipu.run.causes.losses import harm_of_run
from ipu.run.causes.rows import Report, Row, is_pass, shadow_rows
from ipu.run.harm import HARM
from ipu.run.sentences import capital, where_told
from ipu.run.shadow import WRONG

__all__ = ["integers", "lost_data"]


def integers(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Positions and counts that the format has not, where results are wrong by them."""
    row = next((r for r in births if r["kind"] == INTEGERS), None)
    if row is not None and (harm_of_run(report) > HARM or _is_wrong(report)):
        yield Cause("integers", f"Whole numbers up to {row['detail']} are rounded: {row['format']} "
                    f"does not hold {row['count']:,} of them, positions or counts "
                    f"({row['layer'] or 'outside of modules'}, {where_told(row)})", row,
                    row["count"] / row["results"])


def lost_data(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Data whose digits the format has not."""
    row = next((r for r in births if r["kind"] in (DATA_ZERO, DATA_DIGITS)), None)
    if row is not None:
        yield Cause("data", capital(clause_of(row)), row, row["count"] / row["results"])


def _is_wrong(report: Report) -> bool:
    """Whether results of passes forward are far from binary64's; so without a shadow."""
    rows = shadow_rows(report)
    return not rows or any(
        is_pass(row["direction"]) and row["error"] > WRONG for row in rows)
