"""Extrema over axes, and bounds: values of the array, nothing is rounded.

Source    IEEE 754-2019 §9.6; docs/semantics.md §3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.core import Core, Operand, Out
from fpsim.elementwise import order
from fpsim.elementwise.compare import extreme
from fpsim.records.types import Axis
from fpsim.state.publish import fold, publish

__all__ = ["clip", "extreme_along", "place_along"]


def extreme_along(core: Core, name: str, x: Array, axis: Axis, keepdims: bool, out: Out) -> Array:
    """maximum, minimum, fmax or fmin over axes."""
    (carrier,) = core.carriers((x,))
    shape = order.reduced_shape(carrier.shape, axis, keepdims)
    rows = order.rows(carrier, axis)
    target = core.checked_target(out, shape)
    values, flags = order.extreme_along(name, rows, core.settings)
    values = publish(
        core, name, values.reshape(shape), fold(flags),
        flags.reshape(shape) if core.watched else None,
        lambda index: rows.reshape(*shape, -1)[index].tolist(), target,
    )
    return core.wrapped(values, out)


def place_along(core: Core, name: str, x: Array, axis: int | None, keepdims: bool) -> NDArray[Any]:
    """Index of the first element that is the maximum or minimum."""
    (carrier,) = core.carriers((x,))
    shape = order.reduced_shape(carrier.shape, axis, keepdims)
    rows = order.rows(carrier, axis)
    place, flags = order.place_along(name, rows, core.settings)
    return publish(
        core, name, place.reshape(shape), fold(flags),
        flags.reshape(shape) if core.watched else None,
        lambda index: rows.reshape(*shape, -1)[index].tolist(), in_format=False,
    )


def clip(core: Core, x: Operand, least: Operand | None, most: Operand | None, out: Out) -> Array:
    """minimum(maximum(x, least), most); None: no bound on that side."""
    (values,) = core.carriers((x,))
    flags, operands = np.zeros(values.shape, np.uint8), [values]
    for name, bound in (("maximum", least), ("minimum", most)):
        if bound is not None:
            (b,) = core.carriers((bound,))
            operands.append(b)
            values, raised = extreme(name, values, b, core.settings)
            flags = flags | raised
    return core.exact("clip", operands, values.copy(), flags, out)
