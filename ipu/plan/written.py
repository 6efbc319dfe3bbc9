"""A search in words: its front as rows of text, what binds the best plan, what else would fit."""

from __future__ import annotations

from collections.abc import Iterator

from fpsim.records.evidence import Fact
from ipu.plan.binding import bounds, filled
from ipu.plan.cycles import Rates, update_time
from ipu.plan.memory import code_bytes
from ipu.plan.search import PlanRow, Search

__all__ = ["HEADS", "cells", "constants", "evidence", "search_lines", "times", "update_cycles",
           "verdict"]

HEADS = (
    "", "ms", "peak MB", "of an IPU", "IPUs", "replicas", "micro-batches", "schedule",
    "recomputed", "remote", "shards", "stages begin with",
)
_BOUNDS = 3


def times(search: Search, row: PlanRow) -> tuple[float, float]:
    """Milliseconds of an update, by the fastest and by the slowest rates of our sources."""
    fast, slow = (1e3 * cycles / clock for cycles, clock in update_cycles(search, row))
    return fast, slow


def update_cycles(search: Search, row: PlanRow) -> list[tuple[float, float]]:
    """Cycles of an update and the clock in Hz, by the fastest and by the slowest rates."""
    figures = row.figures(search.chain)
    return [
        (float(update_time(row.plan, figures, rates)), float(rates.target.clock.value))
        for rates in Rates.span(search.target)
    ]


def _interval(ends: tuple[float, float]) -> str:
    return " … ".join(dict.fromkeys(f"{end:.3g}" for end in ends))


def cells(search: Search, row: PlanRow) -> tuple[str, ...]:
    """A row of the front as text, by `HEADS`; the best one has a star."""
    plan = row.plan
    names = [search.chain.layers[cut].name for cut in row.cuts]
    return (
        "*" if row == search.best else "", _interval(times(search, row)),
        f"{row.bytes / 1e6:.1f}", f"{row.bytes / search.room:.0%}", str(plan.n_ipus),
        str(plan.replicas), str(plan.count), _schedule(row),
        plan.recomputation or "-", " ".join(sorted(plan.offloaded)) or "-",
        "state" if plan.shard_state else "-", ", ".join(names) or "-",
    )


def _schedule(row: PlanRow) -> str:
    return str(getattr(row.plan.schedule, "value", row.plan.schedule)) if row.cuts else "-"


def search_lines(search: Search) -> Iterator[str]:
    """The front, the fastest plan first, and what the search says of it."""
    table = [HEADS, *(cells(search, row) for row in search.rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        texts = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        yield "  ".join(texts).rstrip()
    yield ""
    yield from verdict(search)
    yield f"{search.tried} of {search.of_all} plans were tried; all make one update of "\
        f"{search.space.micro_batches} micro-batches, and plans of one number of replicas have "\
        "the same bits"
    yield "a declared model, not promised time; where sources disagree, or none says, both ends:"
    yield from evidence(search)


def evidence(search: Search) -> Iterator[str]:
    """What times rest on, each constant by its fast and its slow end."""
    for name, *ends in constants(search):
        yield f"{name}: " + " … ".join(dict.fromkeys(map(str, ends)))
    low, high = code_bytes(search.smallest.plan)
    yield f"code, bytes of an IPU: {low} … {high} (DOCUMENTED of BERT-Large, ASSUMED of others)"


def constants(search: Search) -> Iterator[tuple[str, Fact, Fact]]:
    """Names of the constants of times, with the fast and the slow end of each."""
    names = (
        "clock, Hz", "link between IPUs, bytes/s", "remote memory, bytes/s", "host, bytes/s",
        "operands of products", "products with a split K",
    )
    fast, slow = Rates.span(search.target)
    yield from zip(names, fast.facts, slow.facts, strict=True)


def verdict(search: Search) -> Iterator[str]:
    """Which plan, and what binds it; where none fits, the nearest and by how much."""
    best = search.best
    if best is None:
        nearest = search.smallest
        room = search.room - code_bytes(nearest.plan)[0]
        share = room / nearest.bytes
        yield (
            f"no plan fits: the smallest needs {nearest.bytes} bytes in {filled(search, nearest)}, "
            f"{nearest.bytes - room} more than the {room} that an IPU of {search.target.name} has "
            "beside its code"
        )
        yield (
            f"use more IPUs, smaller micro-batches (at most {share:.2f} of the samples, if "
            "activations fill it), or formats of fewer bits"
        )
        return
    plan = best.plan
    yield (
        f"use the plan with *: {_interval(times(search, best))} ms for an update on "
        f"{plan.n_ipus} IPU{'s' * (plan.n_ipus > 1)}, {best.bytes / search.room:.0%} of an IPU's "
        f"memory, most in {filled(search, best)}"
    )
    if not search.fits(best, surely=True):
        low, high = code_bytes(plan)
        yield (
            f"it fits if its code takes less than {search.room - best.bytes} bytes of an IPU; that "
            f"may be {low} … {high}, so prefer a plan with a lower peak if one is nearly as fast"
        )
    limits = bounds(search, best)[:_BOUNDS]
    for number, bound in enumerate(limits):
        word = "it is bound by" if not number else "then by"
        yield f"{word} {bound.name}: {bound.share:.1%} of its time; {bound.remedy}"
