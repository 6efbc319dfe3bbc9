"""What losses tell: how far they are from binary32's, and whether the training is well."""

from __future__ import annotations

from ipu.run.causes.rows import Report
from ipu.run.harm import HARM, harm_of
from ipu.run.motions import WAY_LOST, way_lost

__all__ = ["harm_of_run", "parts_at_once", "trains_well"]


def trains_well(report: Report) -> bool:
    """Whether losses and the way of the parameters show that lost digits do no harm.

    Losses of a few steps say little where the batches differ by more than the training goes; the
    way is then all that shows it. Without losses of another run to compare with nothing is known.
    """
    rows = report.get("shadow", {}).get("losses", ())
    if "harm" not in report and not rows:
        return False
    return harm_of_run(report) <= HARM and not way_lost(report) > WAY_LOST


def harm_of_run(report: Report) -> float:
    """Of the run beside binary32, where that was run; else beside its shadow, or none."""
    if "harm" in report:
        return float(report["harm"])
    rows = report.get("shadow", {}).get("losses", ())
    return harm_of([row["machine"] for row in rows], [row["shadow"] for row in rows])


def parts_at_once(report: Report, bound: float = HARM) -> bool:
    """Whether the first loss is far from binary32's already: no gradient and no update is in it.

    bound    of its distance, beside what binary32's losses go through.
    """
    theirs, losses = report.get("binary32", {}).get("losses", ()), report.get("losses", ())
    if not (len(theirs) and losses):
        return False
    return harm_of([losses[0], *theirs[1:]], theirs) * len(theirs) > bound
