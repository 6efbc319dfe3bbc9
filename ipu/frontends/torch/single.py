"""Optimisers step one tensor after the other, whatever `foreach` and `fused` say.

torch has up to three forms of one optimiser: one tensor after the other, lists of tensors, a whole
step in one kernel. A session runs the first: its operations are those of the other two in the order
of parameters, so the bits are equal under stochastic rounding too.

A gradient scaler leaves unscaling and skipping to a fused kernel; inside a session it does both, as
with any other optimiser. `_fused_*_`, called as they are, compute what torch's functions of the
same name compute without a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

__all__ = ["OneByOne", "is_fused", "run_fused", "scalers_unscale"]

#: Keys of a group that choose another form.
_FORMS = ("foreach", "fused")
#: What a fused optimiser tells a gradient scaler.
_SCALES = "_step_supports_amp_scaling"


class OneByOne:
    """The optimiser that steps now, without lists and kernels.

    >>> optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], foreach=True)
    >>> form = OneByOne()
    >>> form.start(optimiser)
    >>> optimiser.param_groups[0]["foreach"]
    False
    >>> form.end()
    >>> optimiser.param_groups[0]["foreach"]
    True
    """

    def __init__(self) -> None:
        self._changed: list[tuple[dict[str, Any], str, Any]] = []

    def start(self, optimiser: torch.optim.Optimizer) -> None:
        """Before a step."""
        self.end()
        for group in optimiser.param_groups:
            for key in _FORMS:
                if group.get(key):
                    self._changed.append((group, key, group[key]))
                    group[key] = False

    def end(self) -> None:
        """After the step, or where it was stopped: the groups are what they were."""
        for group, key, value in self._changed:
            group[key] = value
        self._changed = []


@contextmanager
def scalers_unscale() -> Iterator[None]:
    """Gradient scalers inside unscale and skip also for optimisers that are fused."""
    scaler = torch.amp.GradScaler
    before = scaler.step

    @wraps(before)
    def step(self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        is_fused = any(group.get("fused") for group in optimizer.param_groups)
        if not (is_fused and getattr(optimizer, _SCALES, False)):
            return before(self, optimizer, *args, **kwargs)
        setattr(optimizer, _SCALES, False)
        try:
            return before(self, optimizer, *args, **kwargs)
        finally:
            setattr(optimizer, _SCALES, True)

    scaler.step = step
    try:
        yield
    finally:
        scaler.step = before


# Kernels ----------------------------------------------------------------------------------------


def _moments(function: Callable[..., None]) -> Callable[..., None]:
    """Adam and AdamW by torch's function of that name."""

    def run(params: Any, grads: Any, firsts: Any, seconds: Any, largest: Any, steps: Any,
            **options: Any) -> None:
        function(params, grads, firsts, seconds, largest, _before(steps), foreach=False,
                 fused=False, **options)

    return run


def _momentum(
    params: Any, grads: Any, buffers: Any, *, is_first_step: bool, **options: Any
) -> None:
    rows: list[Any] = [None] * len(params) if is_first_step or not buffers else list(buffers)
    sgd(params, grads, rows, foreach=False, fused=False, **options)
    if is_first_step:
        for buffer, row in zip(buffers, rows, strict=False):
            buffer.copy_(row)


def _squares(params: Any, grads: Any, sums: Any, steps: Any, **options: Any) -> None:
    adagrad(params, grads, sums, _before(steps), foreach=False, fused=False, **options)


def _before(steps: Any) -> list[torch.Tensor]:
    """Numbers of steps as they are before torch's function counts this one."""
    return [torch.full((), float(step) - 1) for step in steps]


_KERNELS: dict[str, Callable[..., None]] = {
    "_fused_adam_": _moments(adam), "_fused_adamw_": _moments(adamw), "_fused_sgd_": _momentum,
    "_fused_adagrad_": _squares,
}


def is_fused(base: str) -> bool:
    """Whether an operation is a whole step of an optimiser."""
    return base in _KERNELS


def run_fused(func: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """A whole step in operations of its own; gradients are unscaled first, as a scaler does."""
    options = dict(options)
    scale, found_inf = options.pop("grad_scale", None), options.pop("found_inf", None)
    if found_inf is not None and float(found_inf):
        return
    if scale is not None:
        inverse = torch.full((), 1 / float(scale), dtype=torch.float32)
        torch._amp_foreach_non_finite_check_and_unscale_(arguments[1], torch.zeros(1), inverse)
    _KERNELS[func._schema.name.partition("::")[2]](*arguments, **options)
