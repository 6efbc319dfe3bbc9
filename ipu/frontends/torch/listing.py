"""How an operation of torch is written in the listing by which processes compare their programs."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["described"]

#: Arguments whose numbers are operands: a program may compute them from its data.
_OPERANDS = frozenset(("self", "other", "value", "fill_value", "exponent", "tensor1", "tensor2"))


def described(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, list[str], list[str]]:
    """The name of an overload; types and shapes of tensors; options with their names.

    >>> described(torch.ops.aten.elu.default, (torch.ones(2, 3), 0.5), {})
    ('elu', ['float32 (2, 3)'], ['alpha=0.5'])
    >>> described(torch.ops.aten.mul.Tensor, (torch.ones(2), 3.5), {})
    ('mul', ['float32 (2,)', 'a number'], [])
    """
    names = [argument.name for argument in func._schema.arguments]
    operands: list[str] = []
    options: list[str] = []
    for name, value in [*zip(names, args, strict=False), *sorted(kwargs.items())]:
        values = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(x, torch.Tensor) for x in values):
            operands += [_shown(x) for x in values if isinstance(x, torch.Tensor)]
        elif isinstance(value, int | float) and name in _OPERANDS:
            operands.append("a number")
        elif value is None or isinstance(value, int | float | str | list | tuple | torch.dtype):
            options.append(f"{name}={value}")
    return func._schema.name.partition("::")[2], operands, options


def _shown(x: torch.Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
