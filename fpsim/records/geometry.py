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
    kernel    window of the input that an output sees; of a dilated kernel with the gaps in it.
    stride    from one window to the next.
    before    zeros above and to the left of the input; negative: so much of it is not seen.
    output    number of windows.
    dilation  from one element of the kernel to the next.
    """

    image: Pair
    kernel: Pair
    stride: Pair
    before: Pair
    output: Pair
    spacing: Pair = (1, 1)
    dilation: Pair = (1, 1)

    def __hash__(self) -> int:  # plans are looked up by geometries, several for a product
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.image, *self.pairs, self.dilation))

    @cached_property
    def pairs(self) -> tuple[Pair, Pair, Pair, Pair, Pair]:
        """Kernel, stride, zeros before, outputs and spacing, as kernels take them."""
        return self.kernel, self.stride, self.before, self.output, self.spacing

    @cached_property
    def elements(self) -> Pair:
        """Rows and columns of the kernel itself.

        >>> geometry((9, 9), (3, 2), 1, "VALID", dilation=(2, 4)).elements
        (3, 2)
        """
        (kh, kw), (down, across) = self.kernel, self.dilation
        return (kh - 1) // down + 1, (kw - 1) // across + 1

    @cached_property
    def line(self) -> int:
        """Elements that a row of windows spans."""
        return (self.output[1] - 1) * self.stride[1] + self.kernel[1]

    @cached_property
    def framed(self) -> int:
        """Elements of an image in its frame of zeros, as far as windows reach.

        >>> geometry((2, 2), (3, 3), 1, "SAME").framed
        16
        """
        return ((self.output[0] - 1) * self.stride[0] + self.kernel[0]) * self.line

    def turned(self) -> Geometry:
        """Of the gradient to the input: a convolution of the gradient with the turned kernel."""
        return self._turned

    @cached_property
    def _turned(self) -> Geometry:
        (kh, kw), (top, left) = self.kernel, self.before
        return replace(
            self, image=self.output, stride=(1, 1), before=(kh - 1 - top, kw - 1 - left),
            output=self.image, spacing=self.stride,
        )


def geometry(
    image: Pair, kernel: Pair, stride: Stride, padding: Padding, dilation: Stride = 1
) -> Geometry:
    """The extents that padding, stride and dilation give.

    SAME pads so that there are ceil(size / stride) outputs, the odd zero at the end.

    Raises    ValueError for what is no stride, dilation or padding, and for kernels that do not
              fit.

    >>> geometry((32, 32), (3, 3), 2, "SAME").output
    (16, 16)
    >>> geometry((32, 32), (3, 3), 1, "VALID", dilation=4).output
    (24, 24)
    """
    if type(stride) is int and type(padding) is str and type(dilation) is int:
        return _usual(tuple(image), tuple(kernel), stride, padding, dilation)
    return _geometry(image, kernel, stride, padding, dilation)


@lru_cache(maxsize=256, typed=True)  # a bool is equal to an integer
def _usual(image: Pair, kernel: Pair, stride: int, padding: str, dilation: int) -> Geometry:
    return _geometry(image, kernel, stride, padding, dilation)


def _geometry(
    image: Pair, kernel: Pair, stride: Stride, padding: Padding, dilation: Stride
) -> Geometry:
    steps, gaps = _step("stride", stride), _step("dilation", dilation)
    window = _window(kernel[0], gaps[0]), _window(kernel[1], gaps[1])
    sides = [
        _side(n, k, step, side)
        for n, k, step, side in zip(image, window, steps, _padding(padding), strict=True)
    ]
    (top, rows), (left, columns) = sides
    if rows < 1 or columns < 1:
        dilated = f", {window[0]}x{window[1]} with dilation={dilation}," if window != kernel else ""
        raise ValueError(
            f"a kernel of {kernel[0]}x{kernel[1]}{dilated} does not fit into {image[0]}x{image[1]} "
            f"with padding={padding!r}; pad more or take a smaller kernel"
        )
    return Geometry(image, window, steps, (top, left), (rows, columns), dilation=gaps)


def _window(k: int, gap: int) -> int:
    """What k elements span that are so far apart."""
    return (k - 1) * gap + 1 if k else 0


def _side(n: int, k: int, step: int, padding: Pair | str) -> Pair:
    """Zeros before the first element, and outputs, of one axis."""
    if padding == "SAME":
        outputs = -(-n // step)
        return max((outputs - 1) * step + k - n, 0) // 2, outputs
    before, after = (0, 0) if isinstance(padding, str) else padding
    return before, (before + n + after - k) // step + 1


def _step(name: str, step: Stride) -> Pair:
    pair = (step, step) if _is_count(step, 1) else step
    if not (_is_pair(pair) and all(_is_count(s, 1) for s in pair)):
        raise ValueError(
            f"{name}={step!r} is no step; use an integer from 1 on, or two: (down, across)"
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
