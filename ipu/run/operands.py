"""What quantising did to the operands of products: by layer, product and operand.

Numbers are compared with what their blocks hold, behind the transform where there is one. A row
sums up over all steps that were counted.

snr          10 log10(sum x**2 / sum (q - x)**2), in dB; None where nothing was lost.
gain         sum q x / sum x**2: below 1 the operand shrinks.
flushed      share of the numbers that are not zero and became zero, under a scale that is not.
clipped      share that was cut to the largest value.
zero_scale   share of the numbers, zeros left out, that stand under a zero scale.
lag          of delayed scales: largest magnitude times the scale over the format's largest value,
             the largest and the smallest of all moments; above 1 numbers saturate.

Source    docs/block-scaled.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fpsim.block_array import BlockArray
from fpsim.elementwise.blocks.transforms import transformed
from fpsim.records.flags import Flags
from fpsim.state.processor import usual_arithmetic_in
from ipu.ops.dense import OperandEvent

__all__ = ["OperandStatistics"]


@dataclass
class _Sums:
    """Sums over what an operand was."""

    block: str = ""
    numbers: int = 0
    nonzero: int = 0
    clipped: int = 0
    flushed: int = 0
    zero_scale: int = 0
    not_finite: int = 0
    square: float = 0.0
    error: float = 0.0
    product: float = 0.0
    reach: list[float] = field(default_factory=list)


@usual_arithmetic_in()
class OperandStatistics:
    """Statistics of one run."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], _Sums] = {}

    def add(self, event: OperandEvent) -> None:
        """An operand has become blocks."""
        row = self._rows.setdefault((event.layer, event.product, event.operand), _Sums())
        x, q, blocks = _numbers(event), event.blocks.values, event.blocks
        finite = np.isfinite(x) & np.isfinite(q)
        row.not_finite += int(x.size - np.count_nonzero(finite))
        if not finite.all():
            x, q = np.where(finite, x, 0.0), np.where(finite, q, 0.0)
        nonzero = x != 0
        under_zero = nonzero & (_scales(blocks) == 0)
        row.block = str(blocks.block)
        row.numbers += x.size
        row.nonzero += int(np.count_nonzero(nonzero))
        row.zero_scale += int(np.count_nonzero(under_zero))
        row.flushed += int(np.count_nonzero(nonzero & (q == 0) & ~under_zero))
        row.clipped += _clipped(blocks)
        row.square += float(np.sum(x * x))
        row.error += float(np.sum(np.square(q - x)))
        row.product += float(np.sum(q * x))
        if blocks.block.shape == (None, None) and x.size:
            scale = float(blocks.scale_values[0, 0])
            row.reach.append(float(np.abs(x).max()) / scale / float(blocks.block.element.max))

    def summary(self) -> list[dict[str, Any]]:
        """A row for each layer, product and operand."""
        return [
            {"layer": layer, "product": product, "operand": operand, **_told(sums)}
            for (layer, product, operand), sums in self._rows.items()
        ]


def _numbers(event: OperandEvent) -> np.ndarray:
    """The operand as it was quantised, in binary64."""
    x = np.asarray(event.numbers.carrier, np.float32)
    if event.transform is not None:
        along = x if event.axis == 1 else x.T
        turned = transformed(np.ascontiguousarray(along), event.transform)
        x = turned if event.axis == 1 else turned.T
    return x.astype(np.float64)


def _scales(blocks: BlockArray) -> np.ndarray:
    """The scale of each number."""
    stored = tuple(blocks.shape[i] for i in blocks.axes)
    scales = blocks.scale_values
    wide = np.repeat(np.repeat(scales, stored[0] // scales.shape[0], axis=0),
                     stored[1] // scales.shape[1], axis=1)
    return wide if blocks.axis == 1 else wide.T


def _clipped(blocks: BlockArray) -> int:
    flags = blocks.element_flags
    return 0 if flags is None else int(np.count_nonzero(flags & Flags.OVERFLOW))


def _told(sums: _Sums) -> dict[str, Any]:
    share = {
        name: getattr(sums, name) / max(sums.nonzero, 1)
        for name in ("clipped", "flushed", "zero_scale")
    }
    snr = 10 * math.log10(sums.square / sums.error) if sums.square and sums.error else None
    return {
        "block": sums.block, "numbers": sums.numbers, "not_finite": sums.not_finite, "snr": snr,
        "gain": sums.product / sums.square if sums.square else 1.0, **share,
        "lag": [min(sums.reach), max(sums.reach)] if sums.reach else None,
    }
