"""What a session looks at: losses, loss scales of gradient scalers, updates of parameters.

torch's own functions are called as they are; two public names are wrapped while a session is open,
`torch.autograd.backward` and `torch.amp.GradScaler.scale`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.frontends.torch.gradients import Gradients, Role
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.values import Memory, stored
from ipu.run.run import Run

__all__ = [
    "LossListener", "WeightObserver", "first_gradients", "following_losses", "host_values", "term",
]


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
    if base in ("add", "sub"):
        return _times(base, operands[:1], options.get("alpha", 1))
    factor = operands[2] if len(operands) > 2 else options.get("value", 1)
    return _times(base, operands[:2], factor)


def _times(verb: str, operands: Sequence[Any], factor: Any) -> NDArray[Any]:
    """factor · x, or · x y, or · x / y."""
    with np.errstate(all="ignore"):
        combined = operands[0]
        if verb == "addcmul":
            combined = combined * operands[1]
        elif verb == "addcdiv":
            combined = combined / operands[1]
        return np.asarray(np.multiply(combined, np.float32(factor)), np.float32)


class WeightObserver:
    """Tells a run of weights and updates, where it counts."""

    def __init__(
        self, run: Run, memory: Memory, layers: Layers, gradients: Gradients
    ) -> None:
        self._run, self._memory, self._layers = run, memory, layers
        self._gradients = gradients

    def note_weights(self, parameter: torch.Tensor) -> None:
        """A parameter as it is when its layer first runs."""
        fmt = self._memory.format_of(parameter)
        if self._run.is_counting and fmt is not None:
            layer = self._layers.layer_of(parameter)
            self._run.recorder.weights(layer, id(parameter), fmt, host_values(parameter))

    def note_reached(self, parameter: torch.Tensor) -> None:
        """A parameter was updated: what its numbers come from has reached the weights."""
        layer = self._layers.layer_of(parameter) or "optimizer"
        for birth in self._memory.origins(parameter).values():
            birth.weights = birth.weights or layer

    def writing(self, base: str, args: Any, kwargs: Any) -> Callable[[], None] | None:
        """What to do after an operation in place on these arguments; None for nothing.

        A term that it adds to a parameter with a gradient is an update, and as such told if it is
        lost; a copy of one may be an average.
        """
        target = args[0] if args and self._run.is_counting else None
        parameter = self._parameter_of(target) if isinstance(target, torch.Tensor) else None
        if parameter is None:
            return None
        added, fmt = term(base, args, kwargs), self._memory.format_of(parameter)
        if added is None or fmt is None:
            return None
        before = host_values(parameter).copy()
        self._run.recorder.births.is_update = self._gradients.role_of(parameter) is Role.LEAF
        return lambda: self.note_update(parameter, fmt, before, added)

    def _parameter_of(self, target: torch.Tensor) -> torch.Tensor | None:
        """The parameter that an operation in place writes, itself or through `p.data`."""
        return target if target.requires_grad else self._gradients.leaf_of(target)

    def note_update(
        self, parameter: torch.Tensor, fmt: Format, before: Any, added: Any
    ) -> None:
        """A parameter was `before`, and this term was added to it."""
        if self._run.is_counting:
            self._note(parameter, fmt, before, "add", (added,), 1.0, host_values(parameter))

    def note_move(
        self, parameter: torch.Tensor, verb: str, before: Array, operands: Sequence[Array],
        factor: float, after: Array,
    ) -> None:
        """An update moved a parameter by factor times what a verb makes of the operands."""
        if self._run.is_counting:
            self._note(
                parameter, before.format, before.carrier, verb, [x.carrier for x in operands],
                factor, after.carrier,
            )

    def _note(
        self, parameter: torch.Tensor, fmt: Format, before: Any, verb: str,
        operands: Sequence[Any], factor: float, after: Any,
    ) -> None:
        """See `Recorder.move`."""
        layer = self._layers.layer_of(parameter) or "optimizer"
        self.note_reached(parameter)
        self._run.recorder.move(
            layer, id(parameter), fmt, before, verb, operands, factor, after,
            self._layers.parameter_name(parameter))


class LossListener(Protocol):
    """What is told of losses."""

    def note_loss(self, root: torch.Tensor) -> None:
        """A backward pass begins at a tensor of one element."""

    def note_scale(self, scale: float) -> None:
        """A gradient scaler multiplies a loss."""

    def root_gradient(self, root: torch.Tensor, incoming: torch.Tensor | None) -> torch.Tensor:
        """The first gradient of a backward pass; `incoming` is the program's, or None for ones."""

    def scaling(self) -> AbstractContextManager[None]:
        """Around the product of a loss and the scale of a gradient scaler."""


@contextmanager
def following_losses(losses: LossListener) -> Iterator[None]:
    """Backward passes inside tell where they begin, and with which gradient."""
    scaler = torch.amp.GradScaler
    backward, scale = torch.autograd.backward, scaler.scale

    def noted(tensors: Any, grad_tensors: Any = None, *rest: Any, **options: Any) -> Any:
        if torch._C._current_graph_task_id() != -1 or "grad_variables" in options:
            # A pass inside of another one, as of a checkpointed region, begins nowhere new.
            return backward(tensors, grad_tensors, *rest, **options)
        roots = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        for root in roots:
            if isinstance(root, torch.Tensor) and root.numel() == 1:
                losses.note_loss(root)
        return backward(roots, first_gradients(losses, roots, grad_tensors), *rest, **options)

    def scale_noted(self: Any, outputs: Any) -> Any:
        with losses.scaling():
            result = scale(self, outputs)
        losses.note_scale(float(self.get_scale()))
        return result

    torch.autograd.backward, scaler.scale = noted, scale_noted
    try:
        yield
    finally:
        torch.autograd.backward, scaler.scale = backward, scale


def first_gradients(
    losses: LossListener, roots: Sequence[torch.Tensor], gradients: Any
) -> Any:
    """The first gradients of a backward pass; those that torch refuses are left to it."""
    single = gradients is None or isinstance(gradients, torch.Tensor)
    rows = [gradients] * len(roots) if single else list(gradients)
    if len(rows) != len(roots) or (len(roots) > 1 and isinstance(gradients, torch.Tensor)):
        return gradients
    return [
        losses.root_gradient(root, row) if _begins(root, row) else row
        for root, row in zip(roots, rows, strict=True)
    ]


def _begins(root: Any, gradient: Any) -> bool:
    """Whether a backward pass may begin at a tensor, of real numbers, with this gradient."""
    if not isinstance(root, torch.Tensor) or not root.dtype.is_floating_point:
        return False
    if not root.requires_grad or stored(root) is None:
        return False
    return bool(root.numel() == 1) if gradient is None else isinstance(gradient, torch.Tensor)
