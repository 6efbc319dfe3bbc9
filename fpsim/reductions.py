"""Sums and products as methods of a Context, in its format.

Source    docs/semantics.md §4 and §5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fpsim import linalg
from fpsim.array import Array
from fpsim.products.sums import Axis
from fpsim.records.units import MatrixUnit
from fpsim.state.publish import Out

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["Reductions"]


class Reductions:
    """What a Context inherits to reduce arrays; each takes `out=`, but for `dot`."""

    def sum(
        self, x: Array, axis: Axis = None, order: str = "sequential", *, block: int = 256,
        out: Out = None,
    ) -> Array:  # fmt: skip
        """Sum over axes, every addition rounded; see `fpsim.linalg.sum`.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> half.sum(half.array([2048.0, 1.0, 1.0])).values.tolist()
        2048.0
        """
        context = cast("Context", self)
        return linalg.sum(x, axis, order, context=context, block=block, out=out)

    def mean(
        self, x: Array, axis: Axis = None, order: str = "sequential", *, block: int = 256,
        out: Out = None,
    ) -> Array:  # fmt: skip
        """Sum over axes, then one division; see `fpsim.linalg.mean`."""
        context = cast("Context", self)
        return linalg.mean(x, axis, order, context=context, block=block, out=out)

    def dot(self, x: Array, y: Array, *, fused: bool = False, kahan: bool = False) -> Array:
        """Inner product of two vectors, every operation rounded; see `fpsim.linalg.dot`."""
        return linalg.dot(x, y, context=cast("Context", self), fused=fused, kahan=kahan)

    def matmul(
        self, a: Array, b: Array, unit: str | MatrixUnit | None = None, *, out: Out = None,
        **choices: Any,
    ) -> Array:  # fmt: skip
        """The product a @ b: through a unit, or without one rounded after every operation.

        choices   those of `fpsim.linalg.matmul`, or `fused` and `kahan` of `rounded_matmul`.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> row, column = half.array([[2048.0, 1.0, 1.0]]), half.array([[1.0]] * 3)
        >>> [half.matmul(row, column, u).values.tolist() for u in (None, "V100_F16_F32")]
        [[[2048.0]], [[2050.0]]]
        """
        context = cast("Context", self)
        if unit is None:
            return linalg.rounded_matmul(a, b, context=context, out=out, **choices)
        return linalg.matmul(a, b, unit, context=context, out=out, **choices)
