"""Calls: every call of torch in a model passes here, above autograd, and is told.

Mixed operands of float16 and float32 are cast on the way. Users' own autograd functions, which no
mode of torch sees, are told by `functions_told`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ipu.frontends.poptorch.engine.casting import downcast

__all__ = ["Calls", "functions_told"]


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
