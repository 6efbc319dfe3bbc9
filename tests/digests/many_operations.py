"""Cases that go through many operations: layouts, counters, traps, numbers of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim import BINARY16, BINARY32, Context, Flags, Format
from tests.digests.contexts import seeded, status, table, trap
from tests.digests.conversions import conversions, integers
from tests.digests.elementwise import (
    RELATIONS,
    ROUNDED,
    SELECTED,
    arithmetic,
    functions,
    selections,
)
from tests.digests.operands import SEED, SR13, matrix, operands, reals
from tests.digests.registry import Item
from tests.digests.sums import ORDERS, rounded_products, sums


def without_products(context: Context) -> Iterator[Item]:
    """All of the above that rounds but products, whose kernels take longest to compile."""
    for part in (arithmetic, conversions, sums, functions):
        yield from part(context)


def everything(context: Context) -> Iterator[Item]:
    """All of the above that rounds."""
    yield from without_products(context)
    yield from rounded_products(context)


def layouts(fmt: Format, rounding: Any) -> Iterator[Item]:
    """Strides, broadcasting, numbers as operands, outputs, operators and numpy's functions."""
    context, rng = seeded(fmt, rounding), np.random.default_rng(SEED)
    x = context.wrap(matrix(fmt, (7, 30), "ordinary", rng))
    y = context.wrap(matrix(fmt, (7, 30), "wide", rng))
    yield context.add(x.T, y.reshape(30, 7))
    yield context.multiply(x[:, None, :5], y[None, :, 3:8])
    yield context.divide(x[::2, ::-3], y[1::2, 0:1][:1])
    yield context.fma(x, 0.1, y[0])
    yield from (x + y, 3.0 - x, x * 0.3, 1 / x, x @ y.T, -x, abs(x))
    yield from (np.add(x, y), np.sqrt(abs(x)), np.sum(x, axis=0), np.mean(x), np.rint(x))
    result = context.zeros((7, 30))
    yield context.subtract(x, y, out=result)
    yield context.sqrt(y, out=y)
    x += 0.125
    x *= result
    yield from (x, context.sum(x, 1, out=result[:, 0]), result, status(context))


def counters(fmt: Format, rounding: Any, **choices: Any) -> Iterator[Item]:
    """Flags, zeros and subnormals per operation and tensor, and the results."""
    context = seeded(fmt, rounding, count=True, **choices)
    assert context.counts is not None
    yield from arithmetic(context)
    context.counts.tensor = "other"
    for part in (conversions, sums, rounded_products):
        yield from part(context)
    if not context.rounding.stochastic:
        yield from selections(context)
        yield from integers(context)
    yield from table(context.counts)


def traps(fmt: Format, rounding: Any) -> Iterator[Item]:
    """Each flag armed alone, in every operation."""
    rng = np.random.default_rng(SEED)
    for flag in Flags:
        context = seeded(fmt, rounding, traps=flag)
        calls: list[Callable[[], Any]] = []
        for name, count in ROUNDED.items():
            for group in operands(fmt, count)[::3]:
                operation = getattr(context, name)
                calls.append(partial(operation, *map(context.wrap, group)))
        x = context.wrap(matrix(fmt, (9, 20), "special", rng))
        y = context.wrap(matrix(fmt, (20, 4), "wide", rng))
        calls += [partial(context.sum, x, axis, order) for axis in (0, 1) for order in ORDERS]
        calls += [partial(context.matmul, x, y), partial(context.dot, x[0], y[:, 0])]
        calls += [partial(context.mean, x, 0), partial(context.array, reals(fmt))]
        if not context.rounding.stochastic:
            calls += [partial(context.core.compare, "less", x, x), partial(context.fmod, x, 0.0)]
            calls += [partial(context.to_integers, x, "int32"), partial(context.fmax, x, x)]
        if fmt == BINARY16:
            calls.append(partial(context.matmul, x, y, "AMP_F16_F16"))
        for call in calls:
            yield from trap(call)
            yield status(context)


def numbering(fmt: Format) -> Iterator[Item]:
    """Which operations take a number: empty ones, sums of one element, K = 0, exact ones."""
    context = seeded(fmt, SR13)
    x = context.wrap(matrix(fmt, (4, 3), "ordinary", np.random.default_rng(SEED)))
    none, one = context.zeros((0, 3)), x[:1, :1]
    calls: list[Callable[[], Any]] = [
        *(partial(getattr(context, name), *[none] * n) for name, n in ROUNDED.items()),
        *(partial(context.sum, one, 0, order) for order in ORDERS),
        *(partial(context.mean, one, 1, order) for order in ORDERS),
        *(partial(context.sum, none, axis) for axis in (0, 1, None)),
        *(partial(context.sum, x, (), order) for order in ORDERS),
        partial(context.mean, none, 1),
        *(partial(context.matmul, x, x.T, fused=fused) for fused in (False, True)),
        partial(context.matmul, x[:, :0], x.T[:0]), partial(context.matmul, none, x.T),
        partial(context.matmul, one, one), partial(context.dot, one[0], one[0]),
        partial(context.dot, one[0][:0], one[0][:0]),
        partial(context.negative, x), partial(context.absolute, x),
        *(partial(getattr(context, name), x, x) for name in SELECTED),
        *(partial(context.core.compare, name, x, x) for name in RELATIONS),
        partial(context.fmod, x, x), partial(context.ieee_remainder, x, x),
        partial(context.array, x), partial(context.array, none), partial(context.array, []),
        partial(context.round_to_integral, x), partial(context.to_integers, x, "int32"),
        partial(context.to_integers, none, "int32"), partial(context.constant, 0.1),
        partial(context.decimal, "0.1"), partial(context.exp, none),
        partial(x.to, BINARY32), partial(none.to, BINARY32),
    ]
    for call in calls:
        yield call()
        yield context.operation
        yield context.add(x, 0.1)
    yield status(context)
