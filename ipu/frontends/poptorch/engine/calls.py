"""Calls: every call of torch in a model passes here, above autograd, and is told.

Mixed operands of float16 and float32 become float16 on the way, as PopTorch has it, where torch
would compute in float32, or refuse. Moving statistics of norms stay as they are, and what converts
or assigns keeps its types. Users' own autograd functions, which no mode of torch sees, are told by
`functions_told`.

Source    Graphcore's PopTorch, user guide (half and float16 support; HalfFloatCastingBehavior).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["Calls", "downcast", "functions_told"]

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


class Calls(TorchFunctionMode):  # type: ignore[misc]
    """Calls while the mode is open.

    arguments    called with the arguments of each, before it runs; results: with the function and
                 what it returned.
    halves       mixed operands become float16.
    """

    def __init__(
        self, arguments: Callable[[Any], None], results: Callable[[Any, Any], None], *,
        halves: bool = True,
    ) -> None:
        super().__init__()
        self._arguments, self._results, self._halves = arguments, results, halves
        #: A backward pass runs: what it computes again has been told.
        self.is_backward = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.is_backward:
            # A look at the arguments is no call of the program.
            with torch._C.DisableTorchFunction():
                self._arguments((args, kwargs))
        if self._halves:
            args, kwargs = downcast(func, args, kwargs)
        result = func(*args, **kwargs)
        if not self.is_backward:
            self._results(func, result)
        return result


@contextmanager
def functions_told(arguments: Callable[[Any], None]) -> Iterator[None]:
    """Users' own autograd functions tell their arguments too, inside."""
    apply = torch.autograd.Function.__dict__["apply"]

    def told(cls: Any, *values: Any, **options: Any) -> Any:
        with torch._C.DisableTorchFunction():
            arguments(values)
        return apply.__func__(cls, *values, **options)

    torch.autograd.Function.apply = classmethod(told)
    try:
        yield
    finally:
        torch.autograd.Function.apply = apply


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
