"""Conversions: numbers and texts into a format, to integers, from format to format."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

import fpsim as fp
from fpsim import BFLOAT16, E5M2, TF32, Context
from tests.digests.contexts import seeded, status
from tests.digests.operands import FORMATS, SEED, edges, hard_codes, narrow, operands, reals
from tests.digests.registry import Item

INTEGERS = ("int32", "int64", "uint32", "uint64")


def conversions(context: Context) -> Iterator[Item]:
    """Floats of three types, integers, packed storage and texts into the format."""
    values, rng = reals(context.format), np.random.default_rng(SEED)
    whole = rng.integers(-(2**63), 2**63, 300) >> rng.integers(0, 63, 300)
    other = BFLOAT16 if context.format == TF32 else TF32
    sources: list[Any] = [
        *np.array_split(values, 6), *narrow(context.format), whole, whole.astype(np.uint64),
        whole.astype(np.int32), whole > 0, [2**70 + 1, -3, 0.1], 0.3,
        Context(E5M2).array(values[:300]).to_numpy(), Context(other).array(values[:300]),
    ]
    limits = edges(context.format)
    yield context.array(limits)
    for value in limits:
        context.clear_flags()
        context.array(value)
        yield int(context.flags)
    for source in sources:
        context.clear_flags()
        yield context.array(source)
        yield int(context.flags)
    texts = ["0.1", "-1/3", "1e-9", "65520", "-0", "3.0000000000000000000001", "1e60", "1e-60"]
    yield context.decimal(texts)
    yield context.decimal("0.7")
    yield status(context)


def integers(context: Context) -> Iterator[Item]:
    for kind, group in product(INTEGERS, operands(context.format, 1)):
        context.clear_flags()
        yield context.to_integers(context.wrap(group[0]), kind)
        yield int(context.flags)
    yield context.operation


def among_formats(rounding: Any) -> Iterator[Item]:
    """Conversions from every format to every other one."""
    for source, target in product(FORMATS.values(), FORMATS.values()):
        if source == target:
            continue
        context = seeded(source, rounding)
        x = context.wrap(operands(source, 1)[-2][0])
        yield x.to(target)
        yield status(context)
        other = seeded(target, rounding)
        yield other.array(context.wrap(fp.decode(hard_codes(source), source)))
        yield status(other)
