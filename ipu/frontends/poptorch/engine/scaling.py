"""The loss scale of a training: a constant, or PopART's automatic one.

The rule of the latter is `ipu.learn.loss_scale.AutomaticLossScale`. Its statistic is of every
binary16 tensor that a backward operation computes, moves left out (ASSUMED: of autograd's
temporaries, too).

Source    PopART, automaticlossscaling.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fpsim.array import Array
from fpsim.records.formats import BINARY16
from ipu.frontends.poptorch.engine.machine import PoptorchMachine
from ipu.frontends.torch.exact import is_exact
from ipu.frontends.torch.values import Memory
from ipu.learn.loss_scale import AutomaticLossScale
from ipu.learn.loss_scale.histogram import EdgeHistogram

__all__ = ["LossScaling"]

Watching = Callable[[], AbstractContextManager[Any]]


class _CountedResults(TorchDispatchMode):  # type: ignore[misc]
    """Counts the results of operations inside."""

    def __init__(self, histogram: EdgeHistogram, machine: PoptorchMachine) -> None:
        super().__init__()
        self._histogram, self._machine = histogram, machine

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not is_exact(func):
            for x in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(x, torch.Tensor):
                    self._count(x)
        return result

    def _count(self, x: torch.Tensor) -> None:
        memory: Memory = self._machine.session.memory
        if memory.format_of(x) == BINARY16:
            context = self._machine.device.context(BINARY16)
            self._histogram.add(Array(x.detach().float().numpy(), context))


class LossScaling:
    """The factor of the loss, from step to step.

    >>> LossScaling(128.0, automatic=False).value
    128.0
    """

    def __init__(self, initial: float, *, automatic: bool) -> None:
        self._constant = initial
        self._scale = AutomaticLossScale(factor=initial) if automatic else None
        self._histogram: EdgeHistogram | None = None

    @property
    def value(self) -> float:
        """In use for the step that runs."""
        return self._constant if self._scale is None else float(self._scale.value)

    def change(self, constant: float) -> None:
        """Another constant; an automatic scale goes on as it is."""
        self._constant = constant

    def begin(self) -> None:
        """A step starts."""
        if self._scale is not None:
            self._histogram = EdgeHistogram(BINARY16.max * self._scale.bin_edge)

    def watch(self, machine: PoptorchMachine) -> Watching | None:
        """What is entered around backward passes."""
        histogram = self._histogram
        return None if histogram is None else lambda: _CountedResults(histogram, machine)

    def end(self, add: Callable[[EdgeHistogram], None] | None = None) -> None:
        """A step is over: its statistic decides about the next one.

        add    makes it that of all processes.
        """
        if self._scale is not None:
            assert self._histogram is not None
            if add is not None:
                add(self._histogram)
            self._scale = self._scale.successor((), self._histogram)

    def state(self) -> AutomaticLossScale | None:
        """What a checkpoint keeps."""
        return self._scale

    def restore(self, state: Any) -> None:
        """Go on with a kept scale."""
        self._scale = state
