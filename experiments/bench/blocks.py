"""How fast binary32 becomes blocks: against np.copyto of the same array in the same run.

float32 in, codes and scales out, in memory of their own; without flags, with a context's, and, in
rows of the topic "blocks, each", with those of every element and block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.context import Context
from fpsim.quantizers import quantize
from fpsim.records.blocks import BLOCKS, Block
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE, SR, Rounding
from ipu.experiments.bench.data import DATA, make
from ipu.experiments.bench.timing import Call, Size, TimedCase, copy

__all__ = ["NAMES", "cases"]

#: A block of each kind of element and scale.
NAMES = [
    "mxfp8", "mxfp8-rceil", "mxfp8-e5m2", "mxfp6", "mxfp4", "mxint8", "nvfp4", "nvfp4-2d",
    "nvfp4-46", "nvfp4-eps", "e4m3-128", "e4m3-128x128", "e4m3-tensor",
]
#: Columns of the matrix: whole blocks of every kind.
_COLUMNS = 1024


def _call(x: NDArray[Any], block: Block, rounding: Rounding, told: str) -> Call:
    """told: which flags; those of a context, of each element, or none."""
    if told == "context":
        context = Context(BINARY32)
        return lambda: context.quantize(x, block, rounding=rounding)
    return lambda: quantize(x, block, rounding=rounding, flags=told == "each")


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Blocks x to nearest and stochastically x data x flags."""
    rows = size.n // _COLUMNS // 128 * 128 or 1
    n = rows * _COLUMNS
    out = np.empty(n, np.float32)
    for data in DATA[:1] if quick else DATA:
        x = make(data, n)
        reference = copy(x, out)
        for name in ["mxfp8", "nvfp4"] if quick else NAMES:
            for rounding in (RNE, SR(8)):
                for told in ("none", "context", "each"):
                    yield TimedCase(
                        "blocks, each" if told == "each" else "blocks", name,
                        partial(_call, x.reshape(rows, _COLUMNS), BLOCKS[name], rounding, told),
                        reference, n, size.repeats, rounding.name,
                        8 if rounding.stochastic else None, told != "none", data,
                    )
