"""Updates that are one call of a kernel in binary64 (`ipu.ops.in_binary64`)."""

from __future__ import annotations

import numpy as np

from fpsim.array import Array
from fpsim.kernels.by_operation import wide_rules
from fpsim.state.processor import usual_arithmetic
from ipu.ops.in_binary64 import flat
from ipu.ops.updates.row import Number, Slots, Updated

__all__ = ["adam"]


@usual_arithmetic
def adam(
    w: Array, g: Array, slots: Slots, *, power1: Number, power2: Number, rate: Number,
    beta1: Number, beta2: Number, epsilon: Number, nesterov: bool = False,
) -> Updated | None:
    """Adam of `ipu.ops.updates.tensorflow`; None with Nesterov's mean."""
    if nesterov or not w.shape == g.shape == slots[0].shape == slots[1].shape:
        return None
    with np.errstate(all="ignore"):
        alpha = np.sqrt(1.0 - _number(power2)) * _number(rate) / (1.0 - _number(power1))
    rests = 1.0 - _number(beta1), 1.0 - _number(beta2)
    results = np.empty((4, *w.shape))
    m, v, change, values = results
    rows = results.reshape(4, -1)
    before, gradient, *moments = flat(w, g, *slots)
    wide_rules.adam(
        before, gradient, tuple(moments), rests, alpha, _number(epsilon), rows[:2], rows[2],
        rows[3])
    moment = w.like(m)
    return Updated(w.like(values), (moment, w.like(v)), w.like(change), moment)


def _number(x: Number) -> np.float64:
    return np.float64(x.carrier if isinstance(x, Array) else x)
