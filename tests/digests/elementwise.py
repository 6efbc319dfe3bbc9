"""Elementwise operations: those that round, those that round nothing, elementary functions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

import fpsim as fp
from fpsim import Context
from tests.digests.operands import SEED, Carrier, hard_codes, operands, similar_codes, singles
from tests.digests.registry import Item

ROUNDED = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "fma": 3,
    "round_to_integral": 1,
}
SELECTED = ("maximum", "minimum", "fmax", "fmin")
RELATIONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def arithmetic(context: Context) -> Iterator[Item]:
    """Every operation that rounds, with the flags of each group of operands."""
    for name, count in ROUNDED.items():
        for group in operands(context.format, count):
            context.clear_flags()
            yield getattr(context, name)(*map(context.wrap, group))
            yield int(context.flags)
        yield list(one_by_one(context, name, singles(context.format, count)))
    yield context.operation


def one_by_one(context: Context, name: str, group: tuple[Carrier, ...]) -> Iterator[int]:
    """The flags of each element; together, they hide one another."""
    for i in range(group[0].size):
        context.clear_flags()
        getattr(context, name)(*(context.wrap(x[i : i + 1]) for x in group))
        yield int(context.flags)


def selections(context: Context) -> Iterator[Item]:
    """Operations that round nothing."""
    for (x,) in operands(context.format, 1):
        yield from (context.negative(context.wrap(x)), context.absolute(context.wrap(x)))
    for pair in operands(context.format, 2):
        x, y = map(context.wrap, pair)
        for name in (*SELECTED, "fmod", "ieee_remainder"):
            context.clear_flags()
            yield getattr(context, name)(x, y)
            yield int(context.flags)
        for name, signalling in product(RELATIONS, (None, False, True)):
            context.clear_flags()
            yield context.core.compare(name, x, y, signalling)
            yield int(context.flags)
    yield context.operation


def functions(context: Context) -> Iterator[Item]:
    """Elementary functions."""
    fmt = context.format
    rng = np.random.default_rng(SEED)
    codes = [hard_codes(fmt), similar_codes(fmt, 300, rng), rng.integers(0, fmt.n_codes, 300)]
    for name, code_set in product(("exp", "log", "tanh", "sigmoid", "rsqrt", "erf"), codes):
        context.clear_flags()
        yield getattr(context, name)(context.wrap(fp.decode(code_set, fmt)))
        yield int(context.flags)
    yield context.operation
