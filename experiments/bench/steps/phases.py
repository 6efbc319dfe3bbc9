"""Where the time of a training step goes: calls timed by phase, each second counted once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from threading import get_ident
from typing import Any

from fpsim import linalg
from ipu.machine.device import Device
from ipu.machine.late import Late

__all__ = ["PHASES", "shares"]

#: What a step is made of; the last is what no other phase counts: tape, queues, ledger, Python.
PHASES = ("products", "norms", "elementwise", "bookkeeping")

_PRODUCTS: dict[Any, tuple[str, ...]] = {
    linalg: ("matmul", "conv2d", "conv2d_input_gradient", "conv2d_weight_gradient"),
    Late: ("finish",),
}
_VERBS = (
    "cast", "to_integers", "add", "subtract", "multiply", "divide", "unscale", "negative", "sqrt",
    "exp", "log", "tanh", "sigmoid", "rsqrt", "erf", "maximum", "relu", "select",
    "select_positive", "reduce_sum", "reduce_squares", "reduce_max", "random_mask",
)


class _Stopwatch:
    """Seconds of this thread by phase; the phase that was entered last has the time."""

    def __init__(self) -> None:
        self._thread = get_ident()
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside = ["bookkeeping"]
        self._since = time.perf_counter()

    def _enter(self, phase: str) -> None:
        self._count()
        self._inside.append(phase)

    def _leave(self) -> None:
        self._count()
        self._inside.pop()

    def _count(self) -> None:
        now = time.perf_counter()
        self.seconds[self._inside[-1]] += now - self._since
        self._since = now

    def timed(self, function: Callable[..., Any], phase: Callable[[], str]) -> Callable[..., Any]:
        @wraps(function)
        def call(*operands: Any, **options: Any) -> Any:
            if get_ident() != self._thread:
                return function(*operands, **options)
            self._enter(phase())
            try:
                return function(*operands, **options)
            finally:
                self._leave()

        return call

    def shares(self) -> dict[str, float]:
        self._count()
        total = sum(self.seconds.values())
        return {phase: self.seconds[phase] / total for phase in PHASES}


def shares(step: Callable[[], object], device: Device) -> dict[str, float]:
    """Shares of a step's time; norms are what runs in layers of that name."""
    with _watched(device) as watch:
        step()
        return watch.shares()


@contextmanager
def _watched(device: Device) -> Iterator[_Stopwatch]:
    def vector() -> str:
        return "norms" if "norm" in device.tensor else "elementwise"

    with ExitStack() as stack:
        watch = _Stopwatch()
        for module, names in _PRODUCTS.items():
            for name in names:
                timed = watch.timed(getattr(module, name), lambda: "products")
                stack.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, timed)
        for name in _VERBS:
            timed = watch.timed(getattr(device, name), vector)
            stack.callback(delattr, device, name)
            setattr(device, name, timed)
        watch._count()
        watch.seconds.clear()
        yield watch
