"""Products of matrix units, in one part and in several."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from fpsim import BINARY16, BINARY32, SR, Format
from tests.digests.contexts import seeded, status
from tests.digests.operands import KINDS, SEED, SR13, SR_IPU, UNIT_KINDS, factors, matrix
from tests.digests.registry import Item
from tests.digests.rooms import ROOMS

LEFT, RIGHT = (5, 37), (37, 19)


def pairs(unit: Any) -> list[tuple[Format, Format]]:
    """Formats of both operands."""
    return list(dict.fromkeys(product(unit.inputs, unit.inputs)))[:3]


def unit_products(name: str) -> Iterator[Item]:
    """Products of every kind of numbers, with partials to add to and scales, and narrower ones."""
    unit = ROOMS.UNITS[name]
    rng = np.random.default_rng(SEED)
    narrow = BINARY16 if unit.partials == BINARY32 else None
    for (fa, fb), kind in product(pairs(unit), UNIT_KINDS):
        a, b = factors(fa, fb, kind, LEFT, RIGHT)
        context = seeded(unit.partials)
        yield context.matmul(a, b, name)
        start = context.wrap(matrix(unit.partials, (5, 19), "ordinary", rng))
        yield context.matmul(a, b, name, accumulator=start)
        if fa.bits <= 8:
            yield from (context.matmul(a, b, name, scale=scale) for scale in (-9, 3))
        yield int(context.flags)
        for fmt in (narrow,) if narrow else ():
            for rounding, overflow in (("RNE", "infinity"), ("RTZ", "saturate")):
                other = seeded(fmt, rounding, overflow=overflow)
                yield other.matmul(a, b, name)
                yield int(other.flags)


def unit_choices(name: str) -> Iterator[Item]:
    """Batches, single rows and columns, a K below one pass, binary32 subnormals, NaN rules."""
    unit = ROOMS.UNITS[name]
    fmt = unit.inputs[0]
    shapes = [((2, 1, 5, 37), (3, 37, 19)), ((1, 37), (37, 19)), ((5, 37), (37, 1)),
              ((5, 3), (3, 19)), ((3, 70), (70, 33))]
    for left, right in shapes:
        context = seeded(unit.partials)
        yield context.matmul(*factors(fmt, fmt, "wide", left, right), name)
        yield int(context.flags)
    for choices in ({"quiet_nan_raises": True}, {"overflow": "saturate"}, {"overflow": "nan"}):
        for kind in ("special", "wide"):
            context = seeded(unit.partials, **choices)
            yield context.matmul(*factors(fmt, fmt, kind, LEFT, RIGHT), name)
            yield int(context.flags)
    for subnormals, kind in product(("keep", "flush_results", "flush_both"), ("wide", "subnormal")):
        context = seeded(unit.partials)
        a, b = factors(fmt, fmt, kind, LEFT, RIGHT)
        yield context.matmul(a, b, name, subnormals=subnormals)
        yield int(context.flags)


def unit_stochastic(name: str) -> Iterator[Item]:
    """Stochastic stores of half partials and stochastic last roundings."""
    unit = ROOMS.UNITS[name]
    fmt = unit.inputs[0]
    for kind in UNIT_KINDS:
        a, b = factors(fmt, fmt, kind, LEFT, RIGHT)
        context = seeded(BINARY16, SR_IPU)
        yield context.matmul(a, b, name)
        yield context.matmul(a, b, name)
        if unit.partials == BINARY32:
            yield context.matmul(a, b, name, stochastic_stores=False)
        yield status(context)
    left, right = factors(fmt, fmt, "ordinary", (2, 1, 5, 37), (3, 37, 19))
    context = seeded(BINARY16, SR(bits=20), overflow="saturate")
    yield context.matmul(left, right, name)
    yield status(context)


def split_products(rounding: Any) -> Iterator[Item]:
    """K in several parts, their partials added."""
    for name in ("AMP_F16_F16", "AMP_F16_F32", "AMP_F32_F32", "V100_F16_F32", "H100_F16_F16"):
        unit = ROOMS.UNITS[name]
        fmt = unit.inputs[0]
        for kind, parts in product(KINDS, (2, 3)):
            a, b = factors(fmt, fmt, kind, (5, 70), (70, 9))
            context = seeded(BINARY16, rounding)
            yield ROOMS.k_split(a, b, name, parts, context=context)
            yield status(context)
            if not context.rounding.stochastic:
                context = seeded(unit.partials, rounding)
                yield ROOMS.k_split(a, b, name, parts, context=context, subnormals="flush_both")
                yield status(context)


def unit_numbering() -> Iterator[Item]:
    """Products of nothing, and stochastic contexts whose products round nothing there."""
    for fmt, name in ((BINARY16, "AMP_F16_F16"), (BINARY16, "AMP_F16_F32")):
        for result in (BINARY16, BINARY32):
            if result == BINARY32 and name == "AMP_F16_F16":
                continue
            context = seeded(result, SR13)
            a, b = factors(fmt, fmt, "ordinary", (4, 20), (20, 3))
            for left, right in ((a, b), (a[:, :0], b[:0]), (a[:0], b), (a, b[:, :0])):
                yield context.matmul(left, right, name)
                yield context.operation
                yield ROOMS.k_split(left, right, name, 1, context=context)
                yield context.operation
            x, w = factors(fmt, fmt, "ordinary", (0, 4, 4, 2), (3, 3, 2, 2))
            yield ROOMS.conv2d(x, w, name, context=context)
            yield context.operation
            yield context.add(context.wrap(np.float32([1.0])), 0.1)
