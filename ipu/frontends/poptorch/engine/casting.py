"""Casts between float16 and float32 that PopTorch adds: mixed operands become float16.

torch would compute in float32, or refuse. Moving statistics of norms stay as they are, and what
converts or assigns keeps its types.

Source    Graphcore's PopTorch, user guide (half and float16 support; HalfFloatCastingBehavior).
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["downcast"]

#: Calls whose operands are not combined.
_APART = frozenset(
    (
        "to", "type", "type_as", "half", "float", "double", "copy_", "set_", "__setitem__",
        "__get__", "__set__", "allclose", "equal", "can_cast", "result_type", "promote_types",
        "is_same_size", "detach",
    )
)
#: Arguments that stay float32: moving mean and variance.
_STATISTICS = {"batch_norm": (1, 2), "instance_norm": (1, 2)}


def downcast(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, float32 tensors as float16 where any tensor is float16.

    >>> (x, y), _ = downcast(torch.add, (torch.ones(1).half(), torch.ones(1)), {})
    >>> x.dtype, y.dtype
    (torch.float16, torch.float16)
    """
    name = getattr(function, "__name__", "")
    kinds = {x.dtype for x in _flat(args, kwargs) if x.is_floating_point()}
    if not {torch.float16, torch.float32} <= kinds or name in _APART:
        return args, kwargs
    statistics = _STATISTICS.get(name, ())
    args = tuple(x if i in statistics else _half(x) for i, x in enumerate(args))
    return args, {k: x if k.startswith("running_") else _half(x) for k, x in kwargs.items()}


def _half(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.half() if x.dtype == torch.float32 else x
    if type(x) in (list, tuple):
        return type(x)(_half(item) for item in x)
    return x


def _flat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    tensors = []
    for x in (*args, *kwargs.values()):
        row = x if type(x) in (list, tuple) else (x,)
        tensors += [item for item in row if isinstance(item, torch.Tensor)]
    return tensors
