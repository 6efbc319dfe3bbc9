"""How fast functions of one operand are, rounded correctly: against one np.copyto."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from fpsim.context import Context
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, Format
from fpsim.records.rounding import RNE, SR, Rounding
from ipu.experiments.bench.round import bits_of
from ipu.experiments.bench.timing import Call, Size, TimedCase, copy

__all__ = ["FUNCTIONS", "SIZES", "cases"]

#: n elements, as an activation has them.
SIZES = Size(n=1 << 17, repeats=9), Size(n=1 << 12, repeats=3)

#: Methods of a context.
FUNCTIONS = ("exp", "log", "tanh", "sigmoid", "erf", "rsqrt")


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Each function in formats of 16 bits and in binary32, to nearest and stochastically."""
    for name in FUNCTIONS[:1] if quick else FUNCTIONS:
        for fmt in (BINARY16,) if quick else (BINARY16, BFLOAT16, BINARY32):
            for rounding in (RNE, SR(13)):
                values = np.abs(np.random.default_rng(0).standard_normal(size.n, np.float32)) + 0.1
                yield TimedCase(
                    f"function {name}", fmt.name, partial(_call, name, fmt, rounding, values),
                    copy(values, np.empty_like(values)), size.n, size.repeats, rounding.name,
                    bits_of(rounding, fmt), flags=True, data="normal",
                )


def _call(name: str, fmt: Format, rounding: Rounding, values: np.ndarray) -> Call:
    context = Context(fmt, rounding=rounding, seed=0)
    return partial(getattr(context, name), context.array(values))
