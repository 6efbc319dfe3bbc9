"""Matrix products through the units of the target; a bias is added after the rounded product.

Operands of float32 tensors are cast to the policy's compute format, where results are in a wider
one. Quarters (F143) have a power of two for each tensor, as `ipu.ops.fp8` chooses it, and
gradients are F152.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY16, F143, F152, Format
from ipu import ops
from ipu.frontends.torch.aten.table import Call, aten
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
    if call.dtype == torch.float32 and policy.compute != policy.activations:
        if policy.compute == F143:
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
    kinds = {x.dtype for x in tensors if x is not None}
    if len(kinds) > 1:
        raise TypeError(f"a product of {' and '.join(sorted(map(str, kinds)))}; cast one of them")


def _of_matrices(name: str, ndim: int) -> None:
    def handler(call: Call, x: Any, y: Any) -> Any:
        if x.ndim != ndim or y.ndim != ndim:
            raise ValueError(f"aten.{name} takes {ndim} dimensions, got {x.ndim} and {y.ndim}")
        if not (x.numel() and y.numel()):
            return NotImplemented
        a, b = call.arrays(x, y)
        operands = factors(call, a, b, (x, y))
        result = ops.matmul.value(call.device, operands.x, operands.y, **operands.options)
        return call.result(result)

    aten(f"{name}.default", of=ops.matmul)(handler)


_of_matrices("mm", 2)
_of_matrices("bmm", 3)


@aten("mv.default", of=ops.matmul)
def _mv(call: Call, x: torch.Tensor, y: torch.Tensor) -> Any:
    a, b = call.arrays(x, y)
    if not (x.numel() and y.numel()):
        return NotImplemented
    operands = factors(call, a, b.reshape(-1, 1), (x, y))
    column = ops.matmul.value(call.device, operands.x, operands.y, **operands.options)
    return call.result(column.reshape(-1))


@aten("dot.default", "vdot.default", of=ops.matmul)
def _dot(call: Call, x: torch.Tensor, y: torch.Tensor) -> Any:
    a, b = call.arrays(x, y)
    if not x.numel():
        return NotImplemented
    operands = factors(call, a.reshape(1, -1), b.reshape(-1, 1), (x, y))
    return call.result(ops.matmul.value(call.device, *operands[:2], **operands.options).reshape(()))


def _with_bias(shaped: Callable[[Array], Array], back: Callable[[Array], Array]) -> Any:
    """A handler of bias · beta + (x @ y) · alpha; how y and the bias become matrices, and back."""

    def handler(call: Call, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        if not (x.numel() and y.numel()):
            return NotImplemented
        of_one_type(bias, x)
        c, a, b = call.arrays(bias, x, y)
        operands = factors(call, a, shaped(b), (x, y))
        result = ops.matmul_bias.value(
            call.device, shaped(c), operands.x, operands.y, alpha=_factor(call, alpha, c.format),
            beta=_factor(call, beta, c.format), **operands.options,
        )
        return call.result(back(result))

    return handler


def _factor(call: Call, number: float, fmt: Format) -> float | Array:
    """A factor as the row takes it; 0 and 1 are no constants of the machine."""
    return number if number in (0, 1) else call.constant(number, fmt)


aten("addmm.default", "baddbmm.default", of=ops.matmul_bias)(_with_bias(lambda x: x, lambda x: x))
aten("addmv.default", of=ops.matmul_bias)(
    _with_bias(lambda x: x.reshape(-1, 1) if x.ndim else x, lambda x: x.reshape(-1))
)
