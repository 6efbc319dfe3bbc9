"""A search in words: its front as rows of text, what binds the best plan, what else would fit."""

from __future__ import annotations

from collections.abc import Iterator

from ipu.plan.binding import bounds, filled
from ipu.plan.cycles import Rates
from ipu.plan.search import PlanRow, Search

__all__ = ["HEADS", "cells", "search_lines", "verdict"]

HEADS = (
    "", "ms", "peak MB", "of an IPU", "IPUs", "replicas", "micro-batches", "schedule",
    "recomputed", "remote", "shards", "stages begin with",
)
_BOUNDS = 3


def _milliseconds(search: Search, cycles: float) -> float:
    clock: float = search.target.clock.value
    return 1e3 * cycles / clock


def cells(search: Search, row: PlanRow) -> tuple[str, ...]:
    """A row of the front as text, by `HEADS`; the best one has a star."""
    plan = row.plan
    names = [search.chain.layers[cut].name for cut in row.cuts]
    return (
        "*" if row == search.best else "", f"{_milliseconds(search, row.cycles):.3f}",
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
    facts = "; ".join(map(str, Rates(search.target).facts))
    yield f"{search.tried} of {search.of_all} plans were tried; all make one update of "\
        f"{search.space.micro_batches} micro-batches, and plans of one number of replicas have "\
        "the same bits"
    yield f"a declared model, not promised time; it rests on {facts}"


def verdict(search: Search) -> Iterator[str]:
    """Which plan, and what binds it; where none fits, the nearest and by how much."""
    best = search.best
    if best is None:
        nearest = search.smallest
        over = nearest.bytes - search.room
        share = search.room / nearest.bytes
        yield (
            f"no plan fits: the smallest needs {nearest.bytes} bytes in {filled(search, nearest)}, "
            f"{over} more than the {search.room} of an IPU of {search.target.name}"
        )
        yield (
            f"use more IPUs, smaller micro-batches (at most {share:.2f} of the samples, if "
            "activations fill it), or formats of fewer bits"
        )
        return
    plan = best.plan
    yield (
        f"use the plan with *: {_milliseconds(search, best.cycles):.3f} ms for an update on "
        f"{plan.n_ipus} IPU{'s' * (plan.n_ipus > 1)}, {best.bytes / search.room:.0%} of an IPU's "
        f"memory, most in {filled(search, best)}"
    )
    limits = bounds(search, best)[:_BOUNDS]
    for number, bound in enumerate(limits):
        word = "it is bound by" if not number else "then by"
        yield f"{word} {bound.name}: {bound.share:.1%} of its time; {bound.remedy}"
