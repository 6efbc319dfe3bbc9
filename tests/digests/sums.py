"""Sums and means in every order, and products without a unit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from fpsim import Context
from tests.digests.operands import KINDS, SEED, factors, matrix
from tests.digests.registry import Item

ORDERS = ("sequential", "pairwise", "blocked", "kahan", "exact")


def sums(context: Context) -> Iterator[Item]:
    """Each order over rows, columns and everything; means."""
    for kind, shape in product(KINDS, [(18, 21), (3, 37)]):
        rng = np.random.default_rng([SEED, *shape])
        x = context.wrap(matrix(context.format, shape, kind, rng))
        for order in ORDERS:
            context.clear_flags()
            for axis in (0, 1, None, (1, 0)):
                yield context.sum(x, axis, order, block=8)
            yield context.mean(x, 1, order)
            yield context.mean(x, None, order, block=5)
            yield int(context.flags)
    yield context.operation


def rounded_products(context: Context) -> Iterator[Item]:
    """Products without a unit: separate, fused and compensated."""
    chains: list[dict[str, bool]] = [{}, {"fused": True}, {"kahan": True}]
    for kind, chain in product(KINDS, chains):
        fmt = context.format
        a, b = factors(fmt, fmt, kind, (5, 37), (37, 19))
        context.clear_flags()
        yield context.matmul(a, b, **chain)
        yield int(context.flags)
        yield context.dot(a[0], b[:, 0], **chain)
    yield context.operation
