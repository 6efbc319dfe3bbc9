"""Convolutions term by term: which codes meet for one output, in which order; used by tests only.

Written as loops from the text of docs/semantics.md §5 and nothing else.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fpsim.records.units import MatrixUnit

__all__ = ["ExactConvolution"]

Index = tuple[int, ...]
Codes = NDArray[Any]
#: The two codes of each product.
Terms = list[tuple[int, int]]


@dataclass(frozen=True)
class ExactConvolution:
    """One convolution: images (batch, height, width, channels), kernels as `fpsim.products.conv`
    takes them.

    stride, before    as (down, across) and (above, to the left).
    output            (height, width) of the result.
    dilation          from one element of the kernel to the next, (down, across).
    """

    unit: MatrixUnit
    stride: tuple[int, int]
    before: tuple[int, int]
    output: tuple[int, int]
    groups: int = 1
    dilation: tuple[int, int] = (1, 1)

    def order(self, kh: int, kw: int, channels: int) -> Iterator[tuple[int, int, int] | None]:
        """(ky, kx, channel) of each term; None is a zero times a zero."""
        width = channels if self.unit.calls is None else self.unit.channels // self.unit.taps
        for first in range(0, channels, width):
            for ky in range(kh):
                for left in range(0, kw, self.unit.taps):
                    for kx in range(left, left + self.unit.taps):
                        for c in range(first, first + width):
                            yield (ky, kx, c) if kx < kw and c < channels else None

    def forward(self, x: Codes, w: Codes, at: Index) -> Terms:
        """The products of output (n, oy, ox, channel)."""
        n, oy, ox, o = at
        kh, kw, channels, outputs = w.shape
        first = o // (outputs // self.groups) * channels
        terms = []
        for term in self.order(kh, kw, channels):
            if term is None:
                terms.append((0, 0))
                continue
            ky, kx, c = term
            terms.append((self._element(x, n, oy, ox, ky, kx, first + c), int(w[ky, kx, c, o])))
        return terms

    def input_gradient(self, g: Codes, w: Codes, at: Index) -> Terms:
        """The products of the gradient to x[n, y, x, channel]; K are the group's outputs."""
        n, y, x, channel = at
        kh, kw, channels, outputs = w.shape
        group, c = divmod(channel, channels)
        k_channels = outputs // self.groups
        terms = []
        for term in self.order(kh, kw, k_channels):
            if term is None:
                terms.append((0, 0))
                continue
            turned_y, turned_x, k = term
            ky, kx, o = kh - 1 - turned_y, kw - 1 - turned_x, group * k_channels + k
            oy, rest_y = divmod(y + self.before[0] - ky * self.dilation[0], self.stride[0])
            ox, rest_x = divmod(x + self.before[1] - kx * self.dilation[1], self.stride[1])
            there = rest_y == rest_x == 0
            there = there and 0 <= oy < self.output[0] and 0 <= ox < self.output[1]
            terms.append((int(g[n, oy, ox, o]) if there else 0, int(w[ky, kx, c, o])))
        return terms

    def weight_gradient(self, x: Codes, g: Codes, at: Index) -> Terms:
        """The products of the gradient to w[ky, kx, channel of a group, output]."""
        ky, kx, c, o = at
        channels = x.shape[3] // self.groups
        first = o // (g.shape[3] // self.groups) * channels
        return [
            (self._element(x, n, oy, ox, ky, kx, first + c), int(g[n, oy, ox, o]))
            for n in range(x.shape[0])
            for oy in range(self.output[0])
            for ox in range(self.output[1])
        ]

    def _element(self, x: Codes, n: int, oy: int, ox: int, ky: int, kx: int, c: int) -> int:
        """What a window's position sees: an element of x, or a zero around it."""
        row = oy * self.stride[0] + ky * self.dilation[0] - self.before[0]
        column = ox * self.stride[1] + kx * self.dilation[1] - self.before[1]
        inside = 0 <= row < x.shape[1] and 0 <= column < x.shape[2]
        return int(x[n, row, column, c]) if inside else 0
