"""Extrema over axes as methods of a Context: values of the array, nothing is rounded.

Source    IEEE 754-2019 §9.6; docs/semantics.md §3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise import order
from fpsim.elementwise.compare import extreme
from fpsim.operands import ContextOperands, Operand, Out
from fpsim.records.types import Axis
from fpsim.state.processor import usual_arithmetic_in
from fpsim.state.publish import fold, publish

__all__ = ["Extrema"]


@usual_arithmetic_in("max", "min", "argmax", "argmin")
class Extrema(ContextOperands):
    """What a Context inherits to find the largest and the smallest element."""

    def max(
        self, x: Array, axis: Axis = None, *, keepdims: bool = False, number_wins: bool = False,
        out: Out = None,
    ) -> Array:  # fmt: skip
        """The largest over axes (default: all): `maximum`, or `fmax` if `number_wins`.

        Flags     INVALID for a signalling NaN among several elements.
        Raises    ValueError for no elements.

        >>> import fpsim as fp
        >>> half = fp.Context(fp.BINARY16)
        >>> half.max(half.array([[1, 5], [7, 3]]), 0)
        Array([7., 5.], binary16)
        """
        return self._extreme_along("fmax" if number_wins else "maximum", x, axis, keepdims, out)

    def min(
        self, x: Array, axis: Axis = None, *, keepdims: bool = False, number_wins: bool = False,
        out: Out = None,
    ) -> Array:  # fmt: skip
        """The smallest over axes (default: all): `minimum`, or `fmin` if `number_wins`."""
        return self._extreme_along("fmin" if number_wins else "minimum", x, axis, keepdims, out)

    def argmax(self, x: Array, axis: int | None = None, *, keepdims: bool = False) -> NDArray[Any]:
        """Index of the first element that is the `maximum`: of a NaN if there is one; -0 < +0."""
        return self._place_along("maximum", x, axis, keepdims)

    def argmin(self, x: Array, axis: int | None = None, *, keepdims: bool = False) -> NDArray[Any]:
        """Index of the first element that is the `minimum`: of a NaN if there is one; -0 < +0."""
        return self._place_along("minimum", x, axis, keepdims)

    def _extreme_along(self, name: str, x: Array, axis: Axis, keepdims: bool, out: Out) -> Array:
        (carrier,) = self.carriers((x,))
        shape = order.reduced_shape(carrier.shape, axis, keepdims)
        rows = order.rows(carrier, axis)
        target = self.checked_target(out, shape)
        values, flags = order.extreme_along(name, rows, self.settings)
        values = publish(
            self, name, values.reshape(shape), fold(flags),
            flags.reshape(shape) if self.watched else None,
            lambda index: rows.reshape(*shape, -1)[index].tolist(), target,
        )  # fmt: skip
        return self.wrapped(values, out)

    def _place_along(self, name: str, x: Array, axis: int | None, keepdims: bool) -> NDArray[Any]:
        (carrier,) = self.carriers((x,))
        shape = order.reduced_shape(carrier.shape, axis, keepdims)
        rows = order.rows(carrier, axis)
        place, flags = order.place_along(name, rows, self.settings)
        return publish(
            self, name, place.reshape(shape), fold(flags),
            flags.reshape(shape) if self.watched else None,
            lambda index: rows.reshape(*shape, -1)[index].tolist(), in_format=False,
        )  # fmt: skip

    def clip(
        self, x: Operand, least: Operand | None = None, most: Operand | None = None, out: Out = None
    ) -> Array:
        """minimum(maximum(x, least), most); None: no bound on that side.

        Flags     INVALID for signalling NaN; a NaN anywhere gives NaN.
        """
        a, bounds = self.carriers((x,))[0], (("maximum", least), ("minimum", most))
        values, flags, read = a, np.zeros(a.shape, np.uint8), [a]
        for name, bound in bounds:
            if bound is not None:
                (b,) = self.carriers((bound,))
                read.append(b)
                values, raised = extreme(name, values, b, self.settings)
                flags = flags | raised
        return self.exact("clip", read, values.copy(), flags, out)
