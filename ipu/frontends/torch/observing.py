"""What a session looks at: losses, loss scales of gradient scalers, updates of parameters.

torch's own functions are called as they are; two public names are wrapped while a session is open,
`torch.autograd.backward` and `torch.amp.GradScaler.scale`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.frontends.common.recorder import Recorder
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.values import Memory
from ipu.machine.device import Device

__all__ = ["Observer", "following_losses", "host_values", "term"]


def host_values(x: torch.Tensor) -> NDArray[Any]:
    """The values of a tensor in binary32."""
    values = x.detach()
    return np.asarray((values if values.dtype == torch.float32 else values.float()).numpy())


def term(base: str, arguments: Sequence[Any], options: dict[str, Any]) -> NDArray[Any] | None:
    """What an addition in place adds to its first argument; None for other operations.

    Rounding  binary32 of the host: its exponent is looked at, nothing is computed with it.
    """
    if base not in ("add", "sub", "addcmul", "addcdiv"):
        return None
    operands = [host_values(x) if isinstance(x, torch.Tensor) else x for x in arguments[1:]]
    with np.errstate(all="ignore"):
        if base in ("add", "sub"):
            scale = options.get("alpha", 1)
            return np.asarray(np.multiply(operands[0], np.float32(scale)), np.float32)
        first, second = operands[:2]
        scale = operands[2] if len(operands) > 2 else options.get("value", 1)
        combined = first * second if base == "addcmul" else first / second
        return np.asarray(combined * np.float32(scale), np.float32)


class Observer:
    """Tells a recorder of results, weights and updates, where the device counts.

    recorder    what is told.
    """

    def __init__(self, recorder: Recorder, device: Device, memory: Memory, layers: Layers) -> None:
        self._recorder, self._device, self._memory = recorder, device, memory
        self._layers = layers
        self.is_on = device.counts is not None
        if self.is_on:
            memory.watch = self._watch

    def _watch(self, result: Array) -> None:
        self._recorder.result(self._device.tensor, result)

    def note_step(self, step: int) -> None:
        """A step is over, or the report is asked for in it."""
        if self._device.counts is not None:
            self._recorder.step_done(step, self._device.counts)

    def note_weights(self, parameter: torch.Tensor) -> None:
        """A parameter as it is when its layer first runs."""
        fmt = self._memory.format_of(parameter)
        if self.is_on and fmt is not None:
            layer = self._layers.layer_of(parameter)
            self._recorder.weights(layer, id(parameter), fmt, host_values(parameter))

    def writing(self, base: str, args: Any, kwargs: Any) -> Callable[[], None] | None:
        """What to do after an operation in place on these arguments; None for nothing."""
        target = args[0] if args else None
        if not (self.is_on and isinstance(target, torch.Tensor) and target.requires_grad):
            return None
        added, fmt = term(base, args, kwargs), self._memory.format_of(target)
        if added is None or fmt is None:
            return None
        before = host_values(target).copy()
        return lambda: self.note_update(target, fmt, before, added)

    def note_update(self, parameter: torch.Tensor, fmt: Format, before: Any, added: Any) -> None:
        """A parameter was `before`, and this term was added to it."""
        if self.is_on:
            layer = self._layers.layer_of(parameter) or "optimizer"
            after = host_values(parameter)
            self._recorder.update(layer, id(parameter), fmt, before, added, after)


@contextmanager
def following_losses(
    note: Callable[[torch.Tensor], None], scaled: Callable[[float], None], factor: float
) -> Iterator[None]:
    """Backward passes inside tell where they begin, and begin with this factor.

    note      called with each tensor of one element at which a backward pass begins.
    scaled    called with the scale of a gradient scaler that multiplies a loss.
    factor    of the first gradients; 1 leaves them as they are.
    """
    scaler = torch.amp.GradScaler
    backward, scale = torch.autograd.backward, scaler.scale

    def noted(tensors: Any, grad_tensors: Any = None, *rest: Any, **options: Any) -> Any:
        if torch._C._current_graph_task_id() != -1:
            # A pass inside of another one, as of a checkpointed region, begins nowhere new.
            return backward(tensors, grad_tensors, *rest, **options)
        roots = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        for root in roots:
            if root.numel() == 1:
                note(root)
        if factor != 1 and "grad_variables" not in options:
            grad_tensors = _scaled(roots, grad_tensors, factor)
        return backward(tensors, grad_tensors, *rest, **options)

    def scale_noted(self: Any, outputs: Any) -> Any:
        result = scale(self, outputs)
        scaled(float(self.get_scale()))
        return result

    torch.autograd.backward, scaler.scale = noted, scale_noted
    try:
        yield
    finally:
        torch.autograd.backward, scaler.scale = backward, scale


def _scaled(roots: Sequence[torch.Tensor], gradients: Any, factor: float) -> list[Any]:
    """The first gradients of a backward pass, times a factor."""
    if gradients is None:
        return [torch.full_like(root, factor) for root in roots]
    factors = (gradients,) if isinstance(gradients, torch.Tensor) else gradients
    return [
        torch.full_like(root, factor) if g is None else g * factor
        for root, g in zip(roots, factors, strict=True)
    ]
