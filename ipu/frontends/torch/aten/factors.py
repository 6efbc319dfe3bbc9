"""Operands of products as the unit takes them.

Operands of float32 tensors are cast to the policy's compute format, where results are in a wider
one. Quarters (F143) have a power of two for each tensor, as `ipu.ops.fp8` chooses it, and
gradients are F152.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY16, F143, F152, Format
from ipu.frontends.torch.aten.table import Call
from ipu.ops.fp8 import quarters

__all__ = ["Factors", "factors", "of_one_type"]


class Factors(NamedTuple):
    """Operands of a product as the unit takes them, and what the rows of products want to know.

    to    the format of the layer: results of narrower partials are cast exactly.
    """

    x: Array
    y: Array
    scale: int
    partials: Format
    to: Format

    @property
    def options(self) -> dict[str, Any]:
        """Options of a row."""
        return {"partials": self.partials, "scale": self.scale, "to": self.to}

    @property
    def rounding(self) -> dict[str, Any]:
        """Options of its backward rules, which find partials among what was saved."""
        return {"scale": self.scale, "to": self.to}


def factors(call: Call, x: Array, y: Array, of: Any, verb: str = "matmul") -> Factors:
    """Operands as the unit takes them.

    of    the tensors that x and y were read from: quarters differ for gradients.
    """
    device, policy, to = call.device, call.policy, x.format
    of_one_type(*of)
    is_cast = policy.compute is not policy.activations and policy.compute != policy.activations
    if is_cast and call.dtype is torch.float32:
        if policy.in_quarters:
            a, b = (
                quarters(device, operand, F152 if call.memory.is_gradient(tensor) else F143)
                for operand, tensor in zip((x, y), of, strict=True)
            )
            return Factors(a.values, b.values, a.scale + b.scale, BINARY16, to)
        x, y = (call.memory.cast(operand, policy.compute) for operand in (x, y))
    partials = device.partials_for(x.format, verb, wanted=policy.partials)
    return Factors(x, y, 0, partials, to)


def of_one_type(*tensors: Any) -> None:
    """Refuse operands of several data types, as torch does: casts are the program's."""
    first = tensors[-1].dtype
    for x in tensors:
        if x is not None and x.dtype is not first:
            break
    else:
        return
    kinds = {str(x.dtype) for x in tensors if x is not None}
    raise TypeError(f"a product of {' and '.join(sorted(kinds))}; cast one of them")
