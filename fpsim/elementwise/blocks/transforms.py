"""Hadamard transforms of numbers before they are quantised.

Source    `fpsim.records.transforms`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply
from fpsim.kernels.blocks.hadamard import hadamard
from fpsim.kernels.lanes.vectors import VECTOR_WIDTH
from fpsim.records.formats import BFLOAT16, BINARY32, Format
from fpsim.records.settings import Settings
from fpsim.records.transforms import Transform
from fpsim.state.threads import run_blocks

__all__ = ["stage_by_stage", "transformed"]

#: Results that the loop rounds to.
_COMPILED = (None, BINARY32, BFLOAT16)

#: Elements below which a second thread costs more than it gives.
_SMALLEST = 1 << 18


@lru_cache(maxsize=64)
def _settings(fmt: Format) -> Settings:
    return Settings(fmt)


def transformed(x: NDArray[np.float32], transform: Transform) -> NDArray[np.float32]:
    """x with every group of its last axis transformed.

    Rounding  each addition of a stage, and the last factor, to the transform's `sums`; then once to
              its `result`; all to nearest even.
    Raises    ValueError for an axis that is no multiple of the group.
    """
    n = transform.size
    if x.shape[-1] % n:
        raise ValueError(
            f"x has {x.shape[-1]} numbers along the axis of blocks, no multiple of the {n} of "
            f"transform {transform}; fill it up with zeros"
        )
    if n >= VECTOR_WIDTH and transform.sums == BINARY32 and transform.result in _COMPILED:
        return _compiled(x, transform)
    return stage_by_stage(x, transform)


def _compiled(x: NDArray[np.float32], transform: Transform) -> NDArray[np.float32]:
    """The same by one loop."""
    n = transform.size
    signs = np.array(transform.signs or (1,) * n, np.float32)
    flat, out = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, np.float32)
    loop = hadamard(n // VECTOR_WIDTH, transform.result == BFLOAT16)

    def work(begin: int, end: int) -> int:
        done: int = loop(flat, signs, np.float32(1 / math.sqrt(n)), out, begin, end)
        return done

    if x.size:
        run_blocks(work, 0, x.size // n, max(1, _SMALLEST // n))
    return out.reshape(x.shape)


def stage_by_stage(x: NDArray[np.float32], transform: Transform) -> NDArray[np.float32]:
    """The same by operations of any format."""
    n = transform.size
    with np.errstate(all="ignore"):
        y: NDArray[Any] = x.reshape(-1, n)
        if transform.signs is not None:
            y = y * np.array(transform.signs, np.float32)
        half = 1
        while half < n:  # stage by stage: sums and differences of numbers that are `half` apart
            pairs = y.reshape(-1, n // (2 * half), 2, half)
            low, high = pairs[:, :, 0], pairs[:, :, 1]
            stage = np.stack([
                _rounded("add", (low, high), transform.sums),
                _rounded("subtract", (low, high), transform.sums),
            ], axis=2)
            y, half = stage.reshape(-1, n), 2 * half
        factor = _rounded("convert", (np.array(1 / math.sqrt(n)),), transform.sums)
        y = _rounded("multiply", (y, factor), transform.sums)
        if transform.result is not None:
            y = _rounded("convert", (y,), transform.result)
    return np.ascontiguousarray(y, np.float32).reshape(x.shape)


def _rounded(operation: str, operands: tuple[NDArray[Any], ...], fmt: Format) -> NDArray[Any]:
    values, _ = apply(operation, operands, _settings(fmt), track=False)
    return values
