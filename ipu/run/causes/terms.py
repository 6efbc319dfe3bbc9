"""Terms that are absorbed: sums that they leave unchanged.

Terms are no cause where the shadow shows that the sum is wrong by far more: what its operands bring
is told.

Evidence    ASSUMED: the bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu.run.births.kinds import ABSORBED, ONE
from ipu.run.causes.cause import Cause
from ipu.run.causes.clauses import name_of
from ipu.run.causes.losses import trains_well
from ipu.run.causes.rows import BESIDE_TRAINING, Report, Row, is_pass, shadow_rows_of
from ipu.run.motions import astray, is_parameter
from ipu.run.sentences import where_told
from ipu.run.shadow import OUTWEIGHS

__all__ = ["MOST", "absorbed", "constant_factors", "is_outweighed", "lost_terms"]

#: Share of the terms of a sum that change nothing, and how many there are at least; the share of
#: those of a sum that goes on, where the program is harmed.
MOST, _TERMS, _AGAIN = 0.5, 8, 0.2


def constant_factors(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Factors of averages that decay nothing, where the terms of the average are absorbed too.

    The same factor in a decay of weights costs little, and is no cause.
    """
    averages = _averages(report, births)
    for row in report.get("constants", ()) if averages else ():
        if row["becomes"] == "one" and row["direction"] == "optimizer":
            yield Cause(
                "constant", f"The factor {row['value']:g} of an average is 1 in {row['format']}, "
                f"and {averages[0]['count']:,} of {averages[0]['results']:,} terms left it "
                f"unchanged ({where_told(averages[0])})",
                {"layer": row["layer"], "detail": ONE, "operation": f"{row['value']:g}",
                 "format": row["format"], "line": row.get("line", "")},
            )
            return


def _unchanged(report: Report, births: Sequence[Row]) -> list[Row]:
    """Sums most of whose terms changed nothing, again and again."""
    return [
        r for r in births if r["kind"] == ABSORBED and not r["harmless"]
        and r["repeated"] >= _TERMS and r["count"] > MOST * r["results"]
        and not is_outweighed(r, report)
    ]


def is_outweighed(row: Row, report: Report) -> bool:
    """Whether the results of a birth are wrong by far more than what is lost there.

    Its operands bring it: a small number that keeps a divisor from zero may vanish beside one that
    is wrong already. Those of a sum that goes on bring what it has lost itself. Errors are those
    before any update, by which a result's error comes back to its operands.
    """
    if row.get("running") or not row["line"]:
        return False
    adds_up = row["repeated"] >= _TERMS or row["direction"] == "optimizer"
    lost = 0.0 if adds_up else OUTWEIGHS * row.get("lost", 0.0)
    return any(
        row["line"] in of_shadow.get("brought", ()) or 0 < lost < of_shadow.get("least", 0.0)
        for of_shadow in shadow_rows_of(row, report))


def absorbed(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Sums whose terms are too small to change them."""
    rows = [row for row in _harmful(report, births) if row["direction"] != "optimizer"]
    if not any(constant_factors(report, births)):  # of an average, whose cause is its factor
        rows += [_beside_optimiser(row, report) for row in _averages(report, births)]
    yield from _of_terms(rows)


def _averages(report: Report, births: Sequence[Row]) -> list[Row]:
    """Sums of optimisers, or beside a training, whose terms change nothing."""
    return [row for row in _harmful(report, births) if row["direction"] == "optimizer"]


def _beside_optimiser(row: Row, report: Report) -> Row:
    """A sum of an update; one that writes no parameter and no state of an optimiser is told so."""
    moved = [motion for motion in report.get("shadow", {}).get("motions", ())
             if motion["line"] == row["line"]]
    if not moved or any(is_parameter(motion) or motion["is_state"] for motion in moved):
        return row
    owners = {motion["owner"]: None for motion in astray(report)
              if motion["line"] == row["line"] and motion.get("owner")}
    return {**row, "is_of_copies": True, "phase": "beside the optimiser",
            "owners": ", ".join(owners)}


def _harmful(report: Report, births: Sequence[Row]) -> list[Row]:
    """Sums whose terms change nothing; without those that go their way.

    Where the training is well and what the program writes was followed, a sum that is no metric's
    does harm on the lines of the tensors that went astray: a small number that keeps a divisor from
    zero may vanish.
    """
    rows = _unchanged(report, births)
    if not report.get("shadow", {}).get("motions") or not trains_well(report):
        return rows
    lines = {row["line"] for row in astray(report)}
    return [row for row in rows if row["direction"] in BESIDE_TRAINING or row["line"] in lines]


def _of_terms(rows: Sequence[Row]) -> Iterator[Cause]:
    """The sums of some births that lose the most terms."""
    if rows:
        worst = max(rows, key=lambda row: row["count"])
        yield Cause("sums", f"Terms are absorbed: {worst['count']:,} of {worst['results']:,} "
                    f"terms of {name_of(worst)} left the sum unchanged in {worst['format']} "
                    f"({where_told(worst)}){_owned(worst)}", worst,
                    worst["count"] / worst["results"])


def _owned(row: Row) -> str:
    """Whose parameters a sum writes, where that is known."""
    return f", in parameters of {row['owners']}" if row.get("owners") else ""


def lost_terms(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Terms that are absorbed, as a small step beside a large number.

    Where they are added to the last sum again, what is lost adds up: fewer of them do harm.
    """
    def bound(row: Row) -> float:
        goes_on = row["repeated"] > max(_TERMS, MOST * row["count"])
        return _AGAIN if goes_on else MOST

    rows = [r for r in births if r["kind"] == ABSORBED and not r["harmless"]
            and is_pass(r["direction"]) and r["count"] > bound(r) * r["results"]
            and not is_outweighed(r, report)]
    yield from _of_terms(rows)
