"""Random bits: sources and their children, given integers, the last digit that decides."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

import fpsim as fp
from fpsim import BFLOAT16, BINARY16, F143, SR, SR_EQUAL, Context, Format
from fpsim.state.processor import usual_arithmetic
from tests.digests.contexts import seeded, status
from tests.digests.operands import (
    SEED,
    SR13,
    SR_IPU,
    Carrier,
    factors,
    matrix,
    operands,
    reals,
)
from tests.digests.registry import Item


def sources(kind: str) -> Iterator[Item]:
    """The same operations with the bits of a source, its children and its bits in other formats."""
    source: Any = fp.Xoroshiro128aox(77) if kind == "xoroshiro" else fp.Philox(2**63 + 5)
    modes: list[Any] = [SR13, SR(bits=16), SR_IPU, SR_EQUAL, SR(bits=8, residual="half")]
    if kind == "philox":
        modes += [SR(), SR(bits=20, residual="even"), SR(bits=24)]
    for rounding, fmt in product(modes, (BINARY16, F143)):
        parent = Context(fmt, rounding=rounding, bits=source)
        for context in (parent, parent.spawn(3), parent.spawn(3).spawn(2**40)):
            x, y = operands(fmt, 2)[-1]
            yield context.add(context.wrap(x), context.wrap(y))
            yield context.array(reals(fmt)[::3])
            a, b = factors(fmt, fmt, "ordinary", (5, 37), (37, 19))
            yield context.sum(a, 1)
            yield context.mean(a, 0, "kahan")
            yield context.matmul(a, b)
            yield context.matmul(a, b, fused=True)
            if fmt == BINARY16:
                yield context.matmul(a, b, "AMP_F16_F16")
                yield context.matmul(a, b, "AMP_F16_F32")
            yield status(context)
            yield context.in_format(BFLOAT16).array(reals(BFLOAT16)[::9])
            yield status(context)
            if isinstance(context.core.source, fp.Xoroshiro128aox):
                yield context.core.source.state
            else:
                yield context.core.seed or 0


def replayed() -> Iterator[Item]:
    """Integers that the caller gives, one array for each operation."""
    rng = np.random.default_rng(SEED)
    shapes = [(40,), (40,), (3, 5, 4), (1, 5, 4), (40,)]
    for rounding, most in ((SR13, 13), (SR_IPU, 16), (SR_EQUAL, 1), (SR(bits=20), 20)):
        bits = fp.Replay([rng.integers(0, 1 << most, shape) for shape in shapes])
        context = Context(BINARY16, rounding=rounding, bits=bits)
        x = context.wrap(matrix(BINARY16, (40,), "ordinary", rng))
        yield context.multiply(x, 0.1)
        yield context.array(reals(BINARY16)[:40])
        wide = context.wrap(matrix(BINARY16, (4, 5, 4), "wide", rng))
        yield context.sum(wide, 0)
        yield context.sum(wide, 0, "exact")
        yield context.sqrt(x)
        yield status(context)
        numbers = rng.integers(0, 1 << most, 60)
        values = fp.round_to(reals(BINARY16)[:60], BINARY16, rounding, random=numbers)
        yield Context(BINARY16).wrap(values)


@usual_arithmetic
def _deciding(fmt: Format, most: int) -> tuple[Carrier, Carrier, Carrier]:
    """Random integers, numbers whose last random digit decides by them, and very many others."""
    rng = np.random.default_rng(SEED)
    n = 4000
    codes = rng.integers(0, 4 << fmt.nmant, n) + (rng.integers(0, 2, n) << fmt.bits - 1)
    held = fp.decode(np.where(codes == 1 << fmt.bits - 1, 0, codes), fmt).astype(np.float64)
    numbers = rng.integers(0, 1 << most, n)
    # So many digits of the residual, next to the number at which it and the random one make 1.
    digits = np.minimum(rng.integers(most - 3, most + 2, n), most)
    near = (1 << digits) - (numbers >> (most - digits)) + rng.integers(-1, 2, n)
    near = np.ldexp(near + rng.integers(-1, 2, n) / 4, -digits)
    unit = np.array([fmt.ulp(v) for v in held])
    many = rng.integers(-(2**40), 2**40, 1 << 16) * 2.0**-40 * (2 * fmt.smallest_normal)
    return numbers, held + np.copysign(unit * near, held), many


def decided(fmt: Format, rounding: Any) -> Iterator[Item]:
    """Numbers whose last random digit decides, with given integers; and very many with Philox."""
    most = Context(fmt, rounding=rounding).core.settings.random_most
    numbers, values, many = _deciding(fmt, most)
    context = Context(fmt, rounding=rounding, bits=fp.Replay([numbers]))
    yield context.array(values)
    yield status(context)
    context = seeded(fmt, rounding)
    yield context.array(many)
    yield status(context)
