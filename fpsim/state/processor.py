"""The processor's floating-point setting around the steps that numpy and Python compute.

Kernels look after themselves (`fpsim.kernels.guard`). Steps outside them would be hit by
flush-to-zero, denormals-are-zero or a directed rounding mode that another library has set in the
thread: a subnormal number is then equal to zero, is counted as one, and is lost where binary32
becomes binary64. So whatever a user calls runs under the usual setting and puts back the modes that
it found. In a class that is every method but those that are named.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

from fpsim.kernels.status import exchange_status
from fpsim.kernels.status_register import FLAGS, HAS_STATUS, USUAL

__all__ = ["usual_arithmetic", "usual_arithmetic_in"]

P = ParamSpec("P")
T = TypeVar("T")
Class = TypeVar("Class", bound=type)

#: All but the flags of exceptions, which numpy lowers around its own arithmetic too.
_MODES = ~FLAGS
_USUAL_MODES = USUAL & _MODES


def usual_arithmetic(function: Callable[P, T]) -> Callable[P, T]:
    """The function, run to nearest even with subnormal numbers, whatever the thread has set."""
    if not HAS_STATUS:
        return function
    # Names of the closure alone, since the wrapper below has the globals of the function.
    exchange, usual, modes, usual_modes = exchange_status, USUAL, _MODES, _USUAL_MODES

    def run(*arguments: P.args, **options: P.kwargs) -> T:
        previous = exchange(usual)
        try:
            return function(*arguments, **options)
        finally:
            if previous & modes != usual_modes:
                exchange(previous)

    # doctest takes a function for one of its module by its globals.
    wrapper = FunctionType(run.__code__, function.__globals__, None, None, run.__closure__)
    return cast(Callable[P, T], update_wrapper(wrapper, function))


def usual_arithmetic_in(*without: str) -> Callable[[Class], Class]:
    """A decorator of classes: every function in the class body runs as `usual_arithmetic`.

    without   names of functions that only move numbers, or only call others that run so.
    """

    def guard(cls: Class) -> Class:
        for name, member in list(vars(cls).items()):
            if isinstance(member, FunctionType) and name not in without and _computes(member):
                setattr(cls, name, usual_arithmetic(member))
        unknown = sorted(set(without) - vars(cls).keys())
        assert not unknown, f"{cls.__name__} has no {', '.join(unknown)}"
        return cls

    return guard


def _computes(function: Any) -> bool:
    """Whether a call runs the body: that of a generator runs later, piece by piece."""
    return not inspect.isgeneratorfunction(inspect.unwrap(function))
