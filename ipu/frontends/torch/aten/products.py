"""Matrix products through the units of the target; a bias is added after the rounded product.

Operands of float32 tensors are cast to the policy's compute format, where results are in a wider
one. Quarters (F143) have a power of two for each tensor, as `ipu.ops.fp8` chooses it, and
gradients are F152.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY16, F143, F152, Format
from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.fp8 import quarters

__all__ = ["Factors", "factors", "of_one_type", "product"]


class Factors(NamedTuple):
    """Operands of a product: its value is x · y · 2**scale.

    out    the format in which the product is rounded; narrower than the layer's if the unit's
           partials are, and then cast exactly.
    """

    x: Array
    y: Array
    scale: int
    partials: Format
    out: Format


def factors(call: Call, x: Array, y: Array, of: Any, verb: str = "matmul") -> Factors:
    """Operands as the unit takes them.

    of    the tensors that x and y were read from: quarters differ for gradients.
    """
    device, policy, scale, out = call.device, call.policy, 0, x.format
    of_one_type(*of)
    if call.dtype == torch.float32 and policy.compute != policy.activations:
        if policy.compute == F143:
            a, b = (
                quarters(device, operand, F152 if call.memory.is_gradient(tensor) else F143)
                for operand, tensor in zip((x, y), of, strict=True)
            )
            return Factors(a.values, b.values, a.scale + b.scale, BINARY16, BINARY16)
        x, y = (call.memory.cast(operand, policy.compute) for operand in (x, y))
    partials = device.partials_for(x.format, verb, wanted=policy.partials)
    return Factors(x, y, scale, partials, min(out, partials, key=lambda fmt: fmt.precision))


def of_one_type(*tensors: Any) -> None:
    """Refuse operands of several data types, as torch does: casts are the program's."""
    kinds = {x.dtype for x in tensors if x is not None}
    if len(kinds) > 1:
        raise TypeError(f"a product of {' and '.join(sorted(map(str, kinds)))}; cast one of them")


def product(call: Call, x: Array, y: Array, of: Any) -> Array:
    """x @ y, with the partials of the layer's policy where the inputs allow them."""
    known = factors(call, x, y, of)
    result = call.device.matmul(
        known.x, known.y, partials=known.partials, to=known.out, scale=known.scale
    )
    return call.device.cast(result, x.format)


def _of_matrices(name: str, ndim: int) -> None:
    def handler(call: Call, x: Any, y: Any) -> Any:
        if x.ndim != ndim or y.ndim != ndim:
            raise ValueError(f"aten.{name} takes {ndim} dimensions, got {x.ndim} and {y.ndim}")
        if not (x.numel() and y.numel()):
            return NotImplemented
        a, b = call.arrays(x, y)
        return call.result(product(call, a, b, (x, y)))

    aten(f"{name}.default", rounding="as the unit's record says, then once")(handler)


_of_matrices("mm", 2)
_of_matrices("bmm", 3)


@aten("mv.default", rounding="as the unit's record says, then once")
def _mv(call: Call, x: Any, y: Any) -> Any:
    a, b = call.arrays(x, y)
    if not (x.numel() and y.numel()):
        return NotImplemented
    return call.result(product(call, a, b.reshape(-1, 1), (x, y)).reshape(-1))


@aten("dot.default", "vdot.default", rounding="as the unit's record says, then once")
def _dot(call: Call, x: Any, y: Any) -> Any:
    a, b = call.arrays(x, y)
    if not x.numel():
        return NotImplemented
    return call.result(product(call, a.reshape(1, -1), b.reshape(-1, 1), (x, y)).reshape(()))


@aten("addmm.default", "baddbmm.default", rounding="product, then alpha, beta, and the sum")
def _addmm(call: Call, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if not (x.numel() and y.numel()):
        return NotImplemented
    of_one_type(bias, x)
    c, a, b = call.arrays(bias, x, y)
    return call.result(_with_bias(call, c, product(call, a, b, (x, y)), beta, alpha))


@aten("addmv.default", rounding="product, then alpha, beta, and the sum")
def _addmv(call: Call, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if not (x.numel() and y.numel()):
        return NotImplemented
    of_one_type(bias, x)
    c, a, b = call.arrays(bias, x, y)
    column = product(call, a, b.reshape(-1, 1), (x, y)).reshape(-1)
    return call.result(_with_bias(call, c, column, beta, alpha))


def _with_bias(call: Call, bias: Array, result: Array, beta: float, alpha: float) -> Array:
    device, fmt = call.device, result.format
    if alpha != 1:
        result = device.multiply(result, call.constant(alpha, fmt))
    if beta == 0:
        return result
    if beta != 1:
        bias = device.multiply(bias, call.constant(beta, fmt))
    return device.add(result, bias)
