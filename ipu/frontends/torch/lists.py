"""Operations on lists of tensors (`_foreach_…`): the same operation on one tensor after the other.

The clipping of gradients uses them.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["is_of_lists", "one_by_one"]

_PREFIX = "_foreach_"
#: Names that differ, and those of the same operation with a number.
_NAMES = {"norm": "linalg_vector_norm"}
_WITH_NUMBER = {"maximum": "clamp_min", "minimum": "clamp_max"}
#: Operations whose last number is the keyword argument `value`.
_WITH_VALUE = ("addcmul", "addcdiv")


def is_of_lists(base: str) -> bool:
    """Whether an operation has lists of tensors, by its name."""
    return base.startswith(_PREFIX)


def one_by_one(func: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> list[Any] | None:
    """The operation on one tensor after the other; None in place.

    Shapes    lists of one length; other arguments go to every tensor.
    """
    base = func._schema.name.partition("::")[2].removeprefix(_PREFIX)
    in_place = base.endswith("_")
    name = base.removesuffix("_")
    last = arguments[-1] if arguments else None
    if isinstance(last, torch.Tensor) and last.ndim == 1:
        arguments = (*arguments[:-1], last.tolist())
    if name == "norm" and len(arguments) > 2:  # its third argument is a keyword elsewhere
        options = {**options, "dtype": arguments[2]}
        arguments = arguments[:2]
    results = []
    for i in range(len(arguments[0])):
        values = [a[i] if isinstance(a, (list, tuple)) else a for a in arguments]
        keywords = dict(options)
        if name in _WITH_VALUE and len(values) > 3:
            keywords["value"] = values.pop()
        results.append(_single(name, in_place, values)(*values, **keywords))
    return None if in_place else results


def _single(name: str, in_place: bool, values: list[Any]) -> Any:
    """The operation on one tensor; where torch has none in place, its result is copied."""
    if name in _WITH_NUMBER and not isinstance(values[1], torch.Tensor):
        name = _WITH_NUMBER[name]
    name = _NAMES.get(name, name)
    if not in_place:
        return getattr(torch.ops.aten, name)
    if hasattr(torch.ops.aten, f"{name}_"):
        return getattr(torch.ops.aten, f"{name}_")
    compute = getattr(torch.ops.aten, name)
    return lambda target, *others: target.copy_(compute(target, *others))
