"""Extents of a convolution: padding, stride and output size, of images NHWC and kernels HWIO.

Source    docs/semantics.md §5; TensorFlow's documentation of tf.nn.convolution (SAME, VALID).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, TypeGuard

__all__ = ["Geometry", "Padding", "Pair", "Stride", "geometry"]

Pair = tuple[int, int]
Stride = int | Pair
Padding = str | tuple[Pair, Pair]


@dataclass(frozen=True)
class Geometry:
    """A convolution in rows and columns, each as (height, width).

    image     of one input, its elements `spacing` apart (with zeros between them).
    kernel    window of the input that an output sees.
    stride    from one window to the next.
    before    zeros above and to the left of the input; negative: so much of it is not seen.
    output    number of windows.
    """

    image: Pair
    kernel: Pair
    stride: Pair
    before: Pair
    output: Pair
    spacing: Pair = (1, 1)

    def __hash__(self) -> int:  # plans are looked up by geometries, several for a product
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.image, *self.pairs))

    @cached_property
    def pairs(self) -> tuple[Pair, Pair, Pair, Pair, Pair]:
        """Kernel, stride, zeros before, outputs and spacing, as kernels take them."""
        return self.kernel, self.stride, self.before, self.output, self.spacing

    @cached_property
    def line(self) -> int:
        """Elements that a row of windows spans."""
        return (self.output[1] - 1) * self.stride[1] + self.kernel[1]

    def turned(self) -> Geometry:
        """Of the gradient to the input: a convolution of the gradient with the turned kernel."""
        return self._turned

    @cached_property
    def _turned(self) -> Geometry:
        (kh, kw), (top, left) = self.kernel, self.before
        return replace(
            self, image=self.output, stride=(1, 1), before=(kh - 1 - top, kw - 1 - left),
            output=self.image, spacing=self.stride,
        )  # fmt: skip


def geometry(image: Pair, kernel: Pair, stride: Stride, padding: Padding) -> Geometry:
    """The extents that padding and stride give.

    SAME pads so that there are ceil(size / stride) outputs, the odd zero at the end.

    Raises    ValueError for what is no stride or padding, and for kernels that do not fit.

    >>> geometry((32, 32), (3, 3), 2, "SAME").output
    (16, 16)
    """
    if type(stride) is int and type(padding) is str:  # a bool is equal to an integer
        return _usual(tuple(image), tuple(kernel), stride, padding)
    return _geometry(image, kernel, stride, padding)


@lru_cache(maxsize=256)
def _usual(image: Pair, kernel: Pair, stride: int, padding: str) -> Geometry:
    return _geometry(image, kernel, stride, padding)


def _geometry(image: Pair, kernel: Pair, stride: Stride, padding: Padding) -> Geometry:
    steps = _stride(stride)
    sides = [
        _side(n, k, step, side)
        for n, k, step, side in zip(image, kernel, steps, _padding(padding), strict=True)
    ]
    (top, rows), (left, columns) = sides
    if rows < 1 or columns < 1:
        raise ValueError(
            f"a kernel of {kernel[0]}x{kernel[1]} does not fit into {image[0]}x{image[1]} with "
            f"padding={padding!r}; pad more or take a smaller kernel"
        )
    return Geometry(image, kernel, steps, (top, left), (rows, columns))


def _side(n: int, k: int, step: int, padding: Pair | str) -> Pair:
    """Zeros before the first element, and outputs, of one axis."""
    if padding == "SAME":
        outputs = -(-n // step)
        return max((outputs - 1) * step + k - n, 0) // 2, outputs
    before, after = (0, 0) if isinstance(padding, str) else padding
    return before, (before + n + after - k) // step + 1


def _stride(stride: Stride) -> Pair:
    pair = (stride, stride) if _is_count(stride, 1) else stride
    if not (_is_pair(pair) and all(_is_count(s, 1) for s in pair)):
        raise ValueError(
            f"stride={stride!r} is no step; use an integer from 1 on, or two: (down, across)"
        )
    return pair[0], pair[1]


def _padding(padding: Padding) -> tuple[Pair | str, Pair | str]:
    if isinstance(padding, str) and padding in ("SAME", "VALID"):
        return str(padding), str(padding)
    if not isinstance(padding, str) and _are_sides(padding):
        return padding
    raise ValueError(
        f"padding={padding!r} is not known; use SAME, VALID or ((top, bottom), (left, right))"
    )


def _are_sides(padding: object) -> bool:
    return _is_pair(padding) and all(
        _is_pair(side) and all(_is_count(n, 0) for n in side) for side in padding
    )


def _is_pair(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, tuple | list) and len(value) == 2


def _is_count(n: object, least: int) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and n >= least
