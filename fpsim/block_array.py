"""BlockArray: numbers as codes under shared scales, as `quantize` makes them.

Codes and scales lie as hardware reads them: the axis of the blocks last, two codes of four bits in
a byte with the first in the low half, one scale for each block. No copy in floats is kept; `values`
decodes. `fpsim.block_layouts` moves them to and from other libraries.

Source    OCP Microscaling Formats 1.0; docs/semantics.md §3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.blocks.scales import tensor_factor
from fpsim.elementwise.blocks.values import values_of_elements, values_of_scales
from fpsim.records.blocks import Block, BlockFlags
from fpsim.records.flags import Flags
from fpsim.state.processor import usual_arithmetic

__all__ = ["BlockArray", "checked_axis", "storage_axes"]


def storage_axes(ndim: int, axis: int) -> tuple[int, ...]:
    """Order in which the axes of an array are stored: that of the blocks last.

    The axis before it is the one that two-dimensional blocks extend along.
    """
    axes = [i for i in range(ndim) if i != axis]
    return (*axes, axis)


@dataclass(frozen=True, eq=False)
class BlockArray:
    """Codes of elements, and the scales of their blocks.

    codes          uint8, shape stored: `shape` with the axis of blocks last, halved where a byte
                   holds two codes.
    scales         uint8 codes of the scale's format, or binary32: one for each block, likewise.
    block          what stands under a scale, and how the scale was chosen.
    shape, axis    of the numbers, and the one along which blocks lie.
    tensor_amax    largest magnitude of the tensor, where scales are relative to one of it.
    flags          `Flags` of the roundings of the elements together; None where nobody asked.
    element_flags  of each, in the shape of `codes` before packing; None likewise.
    block_flags    `BlockFlags` of each block; likewise.

    >>> import fpsim as fp
    >>> x = fp.quantize([[1.0, -2.0, 0.3, 7.0] * 8], "mxfp4", flags=True)
    >>> x.scales, x.codes[0, :2]
    (array([[127]], dtype=uint8), array([194, 113], dtype=uint8))
    >>> x.values[0, :4].tolist(), x.flags
    ([1.0, -2.0, 0.5, 6.0], <Flags.INEXACT|UNDERFLOW|OVERFLOW: 7>)
    """

    codes: NDArray[np.uint8]
    scales: NDArray[Any]
    block: Block
    shape: tuple[int, ...]
    axis: int = -1
    tensor_amax: float | None = None
    flags: Flags | None = None
    element_flags: NDArray[np.uint8] | None = None
    block_flags: NDArray[np.uint8] | None = None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        """Refused: an array of numbers or one of bytes is meant, and numpy would make neither."""
        raise TypeError(
            f"x is a BlockArray of {self.block}; give numpy x.values (numbers in binary64), "
            "x.codes or x.scales"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales, and four of the tensor's own."""
        return self.codes.nbytes + self.scales.nbytes + (4 if self.block.tensor_scale else 0)

    @property
    def axes(self) -> tuple[int, ...]:
        """Order of the stored axes."""
        return storage_axes(self.ndim, self.axis)

    @property
    @usual_arithmetic
    def tensor_scale(self) -> float:
        """What every value is multiplied by: amax / (max * bound), as the products' last factor.

        1 where scales are relative to nothing; the inverse of what elements were multiplied by
        where amax is zero, infinite or too small for that.
        """
        if self.tensor_amax is None:
            return 1.0
        amax, aim = self.tensor_amax, self.block.element.max * self.block.bound
        factor = tensor_factor(self.block, np.float32(amax))
        with np.errstate(all="ignore"):
            usual = factor == np.float32(aim) / np.float32(amax)
        return amax / aim if usual else 1.0 / float(factor)

    @property
    def element_values(self) -> NDArray[np.float32]:
        """Values of the elements without scales, as they are stored."""
        return values_of_elements(self.codes, self.block)[..., : self._stored[-1]]

    @property
    def scale_values(self) -> NDArray[np.float64]:
        """Values of the scales, without that of the tensor, as they are stored."""
        return values_of_scales(self.scales, self.block)

    @property
    @usual_arithmetic
    def values(self) -> NDArray[np.float64]:
        """The numbers, in binary64 and in their own shape.

        Rounding  element times scale is exact; the scale of a tensor, and the inverse of `shrink`,
                  are one rounding to binary64 each.
        """
        block, stored = self.block, self._stored
        batch, columns = math.prod(stored[:-2]), stored[-1]
        across = self.scales.shape[-1]
        with np.errstate(all="ignore"):
            values = self.element_values.astype(np.float64)
            if values.size:
                tall = stored[-2] if block.rows is None else block.rows
                down = stored[-2] // tall
                scale = self.scale_values.reshape(batch, down, 1, across, 1)
                parts = values.reshape(batch, down, tall, across, columns // across)
                values = parts * scale
            if block.tensor_scale is not None:
                values *= self.tensor_scale
            if block.shrink != 1:
                values /= block.shrink
        values = values.reshape(tuple(self.shape[i] for i in self.axes))
        return np.ascontiguousarray(values.transpose(np.argsort(self.axes)))

    @property
    def _stored(self) -> tuple[int, ...]:
        """Shape of the numbers as they are stored, with two axes at least."""
        stored = tuple(self.shape[i] for i in self.axes)
        return (1, *stored) if len(stored) == 1 else stored

    @property
    def T(self) -> BlockArray:
        """The transposed matrix: the same codes and scales, blocks along the other axis.

        Raises    ValueError for other than two axes.
        """
        if self.ndim != 2:
            raise ValueError(f"x has shape {self.shape}; T is of matrices")
        return BlockArray(
            self.codes, self.scales, self.block, self.shape[::-1], 1 - self.axis,
            self.tensor_amax, self.flags, self.element_flags, self.block_flags,
        )

    def along(self, axis: int) -> BlockArray:
        """The same numbers stored along the other axis: of blocks that are square, nothing moves.

        Raises    ValueError for blocks with other sides, and for other than two axes.

        >>> import fpsim as fp
        >>> w = fp.quantize(np.arange(1024.0).reshape(32, 32), "nvfp4-2d")
        >>> bool((w.along(0).values == w.values).all()), bool((w.along(0).codes == w.codes).all())
        (True, False)
        """
        if self.ndim != 2 or self.block.rows != self.block.elements or self.block.rows is None:
            raise ValueError(
                f"block={self.block} of shape {self.block.shape} and x of shape {self.shape}: only "
                "square blocks of a matrix lie along both axes; quantize again along this one"
            )
        axis = checked_axis(axis, 2)
        if axis == self.axis:
            return self
        codes = np.ascontiguousarray(_unpacked(self.codes, self.block).T)
        if self.block.packed:
            codes = np.asarray(codes[:, ::2] | codes[:, 1::2] << 4, np.uint8)
        turned = [None if f is None else f.T for f in (self.element_flags, self.block_flags)]
        return BlockArray(
            codes, self.scales.T, self.block, self.shape, axis, self.tensor_amax, self.flags,
            *turned,
        )

    def counts(self) -> dict[str, int]:
        """Blocks, and how many have each of the `BlockFlags`; elements with each of the `Flags`.

        Raises    ValueError where flags were not asked for.
        """
        if self.block_flags is None or self.element_flags is None:
            raise ValueError("x has no flags of blocks; quantize with flags=True")
        rows: dict[str, int] = {"blocks": self.scales.size, "elements": self.size}
        for flag in BlockFlags:
            rows[str(flag.name)] = int(np.count_nonzero(self.block_flags & flag))
        for of_element in Flags:
            rows[str(of_element.name)] = int(np.count_nonzero(self.element_flags & of_element))
        return rows

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a BlockArray without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"BlockArray(shape={self.shape}, {self.block.name}, axis={self.axis})"


def _unpacked(codes: NDArray[np.uint8], block: Block) -> NDArray[np.uint8]:
    """One code in a byte."""
    if not block.packed:
        return codes
    return np.stack([codes & 15, codes >> 4], axis=-1).reshape(
        *codes.shape[:-1], 2 * codes.shape[-1]
    )


def checked_axis(axis: Any, ndim: int) -> int:
    """The axis counted from the first.

    Raises    TypeError for what is no integer, ValueError beyond the dimensions.
    """
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise TypeError(f"axis={axis!r} is not an integer; give one from {-ndim} to {ndim - 1}")
    if not -ndim <= axis < ndim:
        raise ValueError(
            f"axis={axis} is out of range for {ndim} dimensions; give {-ndim} to {ndim - 1}"
        )
    return int(axis) % ndim
