"""The processor's floating-point setting around the steps that numpy computes.

Kernels look after themselves (`fpsim.kernels.guard`). The steps outside them (comparisons, the
remainder, elementary functions) would be hit by flush-to-zero or a directed rounding mode that
another library has set in the thread; they run under the usual setting and put back what they
found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fpsim.kernels.guard import HAS_STATUS, USUAL
from fpsim.kernels.status import exchange_status

__all__ = ["usual_arithmetic"]

P = ParamSpec("P")
T = TypeVar("T")


def usual_arithmetic(function: Callable[P, T]) -> Callable[P, T]:
    """The function, run to nearest even with subnormal numbers, whatever the thread has set."""
    if not HAS_STATUS:
        return function

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        previous = exchange_status(USUAL)
        try:
            return function(*arguments, **options)
        finally:
            exchange_status(previous)

    return run
