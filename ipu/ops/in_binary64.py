"""Rules of rows that are one call of a kernel in binary64, where no cycles are counted.

A shadow (`ipu.run.lockstep`) runs each rule twice. Operation by operation that is a call of Python
and a temporary array for each; the bits of the kernels are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.kernels.by_operation import wide_rules
from fpsim.state.processor import usual_arithmetic
from ipu.machine.device import Device
from ipu.ops.rules import Saved

__all__ = ["by", "flat", "gelu", "gelu_x", "layer_norm", "layer_norm_x", "softmax", "softmax_x"]

Numbers = NDArray[np.float64]
Rule = TypeVar("Rule", bound=Callable[..., Any])


def by(wide: Callable[..., Any]) -> Callable[[Rule], Rule]:
    """Mark a rule that `wide` computes in binary64.

    wide    takes what the rule takes but the device; None: it has no kernel for that.
    """

    def mark(rule: Rule) -> Rule:
        @wraps(rule)
        def run(device: Device, x: Array, *arguments: Any, **options: Any) -> Any:
            result = None
            if type(x) is Array and x.size and _is_plain(device, x):
                result = wide(x, *arguments, **options)
            return rule(device, x, *arguments, **options) if result is None else result

        return run  # type: ignore[return-value]

    return mark


def _is_plain(device: Device, x: Array) -> bool:
    """Whether operations on x raise and count nothing, and sums are spread."""
    core = x.context.core
    return core.settings.native and core.loops is None and device.options.sums == "spread"


def _ready(*arrays: Array) -> list[Numbers]:
    """Numbers side by side in memory."""
    return [np.ascontiguousarray(x.carrier) for x in arrays]


def flat(*arrays: Array) -> list[Numbers]:
    """Numbers in the order of memory."""
    return [x.reshape(-1) for x in _ready(*arrays)]


def _rows(x: Numbers, axis: int) -> Numbers:
    """As a matrix whose rows are the axes from this one on."""
    return x.reshape(-1, math.prod(x.shape[axis:]))


def layer_norm(
    x: Array, gamma: Array, beta: Array, *, epsilon: float = 1e-3, stable: bool = False,
    unbiased: bool = False,
) -> tuple[Array, Saved] | None:
    """`ipu.ops.norms`."""
    if unbiased or x.ndim < 2 or not gamma.shape == beta.shape == x.shape[-1:]:
        return None
    values, scale, offset = _ready(x, gamma, beta)
    out, whitened, inverse = np.empty(x.shape), np.empty(x.shape), np.empty(len(values))
    wide_rules.whiten(
        _rows(values, 1), scale, offset, float(epsilon), bool(stable), _rows(out, 1),
        _rows(whitened, 1), inverse)
    saved = x.like(whitened), gamma, x.like(inverse.reshape(-1, 1, 1, 1))
    return x.like(out), saved


def layer_norm_x(gradient: Array, saved: Saved, **_: Any) -> Array | None:
    """The gradient to x of `layer_norm`."""
    whitened, gamma, inverse = saved
    if gradient.ndim < 2:
        return None
    slope, white = _ready(gradient, whitened)
    scale, deviation = flat(gamma, inverse)
    out = np.empty(gradient.shape)
    wide_rules.whitened_gradient(
        _rows(slope, 1), scale, _rows(white, 1), deviation, _rows(out, 1))
    return gradient.like(out)


@usual_arithmetic
def gelu(x: Array, slope: float, cubic: float) -> tuple[Array, Saved]:
    """`ipu.ops.activations`."""
    (values,) = flat(x)
    t, out = np.empty(values.shape), np.empty(x.shape)
    wide_rules.gelu_argument(values, slope, cubic, t)
    np.tanh(t, out=t)
    wide_rules.gelu_product(values, t, out.reshape(-1))
    return x.like(out), (x, x.like(t.reshape(x.shape)))


def gelu_x(
    gradient: Array, saved: Saved, slope: float, cubic: float, **_: Any
) -> Array:
    """The gradient to x of `gelu`."""
    out = np.empty(gradient.shape)
    wide_rules.gelu_gradient(*flat(gradient, *saved), slope / 2, 3 * cubic, out.reshape(-1))
    return gradient.like(out)


@usual_arithmetic
def softmax(x: Array) -> tuple[Array, Saved] | None:
    """`ipu.ops.probabilities`."""
    if not x.ndim:
        return None
    (values,) = _ready(x)
    powers = np.empty(x.shape)
    wide_rules.exponents(_rows(values, x.ndim - 1), _rows(powers, x.ndim - 1))
    with np.errstate(all="ignore"):
        np.exp(powers, out=powers)
    wide_rules.shares(_rows(powers, x.ndim - 1))
    y = x.like(powers)
    return y, (y,)


def softmax_x(gradient: Array, saved: Saved, **_: Any) -> Array | None:
    """The gradient to x of `softmax`."""
    if not gradient.ndim:
        return None
    last, out = gradient.ndim - 1, np.empty(gradient.shape)
    slope, share = _ready(gradient, saved[0])
    wide_rules.shares_gradient(_rows(slope, last), _rows(share, last), _rows(out, last))
    return gradient.like(out)
