"""Matrix products through the units of the target; a bias is added after the rounded product.

Those of dense layers go by the recipe of the policy, where it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu import ops
from ipu.frontends.torch.aten.dense import dense_bias, dense_product
from ipu.frontends.torch.aten.factors import factors, of_one_type
from ipu.frontends.torch.aten.table import Call, aten

__all__: list[str] = []


def _of_matrices(name: str, ndim: int) -> None:
    def handler(call: Call, x: Any, y: Any) -> Any:
        if x.ndim != ndim or y.ndim != ndim:
            raise ValueError(f"aten.{name} takes {ndim} dimensions, got {x.ndim} and {y.ndim}")
        if not (x.numel() and y.numel()):
            return NotImplemented
        a, b = call.arrays(x, y)
        operands = factors(call, a, b, (x, y))
        result = dense_product(call, name, (x, y), operands)
        if result is None:
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
    call.note_outside("mv")
    operands = factors(call, a, b.reshape(-1, 1), (x, y))
    column = ops.matmul.value(call.device, operands.x, operands.y, **operands.options)
    return call.result(column.reshape(-1))


@aten("dot.default", "vdot.default", of=ops.matmul)
def _dot(call: Call, x: torch.Tensor, y: torch.Tensor) -> Any:
    a, b = call.arrays(x, y)
    if not x.numel():
        return NotImplemented
    call.note_outside("dot")
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
            beta=_factor(call, beta, c.format), **operands.options, **dense_bias(call, x, y),
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
