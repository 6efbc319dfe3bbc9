"""Matrix products through the units of the target; a bias is added after the rounded product."""

from __future__ import annotations

from typing import Any

from fpsim.array import Array
from ipu.frontends.torch.aten.table import Call, aten

__all__ = ["product"]


def product(call: Call, x: Array, y: Array) -> Array:
    """x @ y, with the partials of the layer's policy where the inputs allow them."""
    partials = call.device.partials_for(x.format, wanted=call.policy.partials)
    return call.device.matmul(x, y, partials=partials)


@aten("mm.default", "bmm.default", rounding="as the unit's record says, then once")
def _mm(call: Call, x: Any, y: Any) -> Any:
    if not (x.numel() and y.numel()):
        return NotImplemented
    return call.result(product(call, *call.arrays(x, y)))


@aten("mv.default", rounding="as the unit's record says, then once")
def _mv(call: Call, x: Any, y: Any) -> Any:
    a, b = call.arrays(x, y)
    if not (x.numel() and y.numel()):
        return NotImplemented
    return call.result(product(call, a, b.reshape(-1, 1)).reshape(-1))


@aten("dot.default", "vdot.default", rounding="as the unit's record says, then once")
def _dot(call: Call, x: Any, y: Any) -> Any:
    a, b = call.arrays(x, y)
    if not x.numel():
        return NotImplemented
    return call.result(product(call, a.reshape(1, -1), b.reshape(-1, 1)).reshape(()))


@aten("addmm.default", "baddbmm.default", rounding="product, then alpha, beta, and the sum")
def _addmm(call: Call, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if not (x.numel() and y.numel()):
        return NotImplemented
    c, a, b = call.arrays(bias, x, y)
    return call.result(_with_bias(call, c, product(call, a, b), beta, alpha))


@aten("addmv.default", rounding="product, then alpha, beta, and the sum")
def _addmv(call: Call, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if not (x.numel() and y.numel()):
        return NotImplemented
    c, a, b = call.arrays(bias, x, y)
    made = product(call, a, b.reshape(-1, 1)).reshape(-1)
    return call.result(_with_bias(call, c, made, beta, alpha))


def _with_bias(call: Call, bias: Array, result: Array, beta: float, alpha: float) -> Array:
    device, fmt = call.device, result.format
    if alpha != 1:
        result = device.multiply(result, call.constant(alpha, fmt))
    if beta == 0:
        return result
    if beta != 1:
        bias = device.multiply(bias, call.constant(beta, fmt))
    return device.add(result, bias)
