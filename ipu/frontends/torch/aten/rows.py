"""Names of overloads that are a row of the table and nothing else.

Tensors become arrays of the call's format, other arguments options of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ipu.frontends.torch.aten.table import Call, aten
from ipu.ops.primitive import Primitive

__all__ = ["gradients", "of_one", "of_terms"]


def of_terms(names: Mapping[str, Primitive]) -> None:
    """Overloads of tensors and numbers, which may read the gradient of a loss."""
    for overload, row in names.items():
        aten(overload, of=row)(_terms(row))


def _terms(row: Primitive) -> Callable[..., Any]:
    def handler(call: Call, *operands: Any) -> Any:
        return call.result(row.value(call.device, *call.terms(*operands)))

    return handler


def of_one(names: Mapping[str, Primitive], *options: str) -> None:
    """Overloads of one tensor, and of arguments that are these options of the row, in order."""
    for overload, row in names.items():
        aten(overload, of=row)(_one(row, options))


def _one(row: Primitive, options: tuple[str, ...]) -> Callable[..., Any]:
    def handler(call: Call, x: Any, *values: Any) -> Any:
        choices = dict(zip(options, values, strict=False))
        return call.result(row.value(call.device, call.array(x), **choices))

    return handler


def gradients(names: Mapping[str, Primitive], *options: str) -> None:
    """Overloads of the gradient, of what the row saves, and of arguments that are options."""
    for overload, row in names.items():
        aten(overload, of=row, gradient=True)(_gradient(row, options))


def _gradient(row: Primitive, options: tuple[str, ...]) -> Callable[..., Any]:
    def handler(call: Call, gradient: Any, saved: Any, *values: Any) -> Any:
        g, a = call.arrays(gradient, saved)
        choices = dict(zip(options, values, strict=False))
        return call.result(row.pull(0, call.device, g, (a,), **choices))

    return handler
