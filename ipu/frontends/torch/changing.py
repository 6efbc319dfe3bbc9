"""Changes of a program while it runs: loss scale, eps, states of optimisers in binary32.

Source    `ipu.run.changes` (what each is).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.observing import LossListener, first_gradients, host_values
from ipu.frontends.torch.values import Memory, TensorMap
from ipu.ops.updates.scales import unscaled
from ipu.run.changes import Changes

__all__ = ["Changer", "Updated", "keep_counters", "undoing"]

#: A parameter whose update ran in binary32: it, its format, and its values before.
Updated = tuple[torch.Tensor, Format, Any]


class Changer:
    """Applies changes to the optimisers and parameters of a session.

    call    the operation of that name, at the present place.
    """

    def __init__(self, changes: Changes, memory: Memory, call: Callable[[str], Call]) -> None:
        self.changes = changes
        self._memory, self._call = memory, call
        self._hooks = TensorMap[Any]()
        self._epsilons: list[tuple[dict[str, Any], float]] = []
        self._narrow: list[Updated] = []
        self._is_left = False
        #: Called with a gradient, the one in its place, and the factor between them.
        self.on_scaled: Callable[[torch.Tensor, torch.Tensor, float], None] | None = None

    @property
    def widens(self) -> bool:
        """Whether parameters are rounded by `finish`, not by the optimiser's operations."""
        return self.changes.wide_states

    # Gradients ------------------------------------------------------------------------------

    def follow(self, parameter: torch.Tensor) -> None:
        """The gradients of a parameter are divided by the loss scale when they are complete."""
        if self.changes.loss_scale == 1 or not parameter.requires_grad:
            return
        if parameter not in self._hooks:
            self._hooks[parameter] = parameter.register_hook(self._unscaled)

    @contextmanager
    def leaving_scale(self) -> Iterator[None]:
        """Inside, no backward pass is scaled here: a front end does by its optimiser's scale."""
        before, self._is_left = self._is_left, True
        try:
            yield
        finally:
            self._is_left = before

    @contextmanager
    def following_grad(self, losses: LossListener) -> Iterator[None]:
        """Inside, `torch.autograd.grad` begins with the loss scale and gives gradients without it.

        Gradients that are differentiated again, and those of several roots at a time, have none.
        """
        if self.changes.loss_scale == 1:
            yield
            return
        grad, is_inside = torch.autograd.grad, False

        def followed(
            outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: Any = None,
            create_graph: bool = False, **options: Any,
        ) -> Any:
            nonlocal is_inside
            choices = options | {"retain_graph": retain_graph, "create_graph": create_graph}
            # Modes of functions call what stands in torch's module once more.
            if is_inside or self._is_left or torch._C._current_graph_task_id() != -1:
                return grad(outputs, inputs, grad_outputs, **choices)
            is_left = create_graph or bool(options.get("is_grads_batched"))
            is_inside, self._is_left = True, is_left
            try:
                if is_left:
                    return grad(outputs, inputs, grad_outputs, **choices)
                roots = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
                first = first_gradients(losses, roots, grad_outputs)
                return self._unscaled_all(inputs, grad(roots, inputs, first, **choices))
            finally:
                is_inside = self._is_left = False

        torch.autograd.grad = followed
        try:
            yield
        finally:
            torch.autograd.grad = grad

    def _unscaled_all(self, inputs: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """Gradients of tensors; those of parameters that are followed have no scale already."""
        tensors = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
        results = tuple([
            g if g is None or x in self._hooks else self._unscaled(g)
            for x, g in zip(tensors, gradients, strict=True)
        ])
        for x in tensors:
            if x.is_leaf:
                self.follow(x)
        return results

    def _unscaled(self, gradient: torch.Tensor) -> torch.Tensor:
        if self._is_left:
            return gradient
        call = self._call("aten.mul")
        held = self._memory.format_of(gradient) or BINARY32
        wide = unscaled(
            call.device, self._memory.read(gradient, held), 1 / self.changes.loss_scale
        )
        result = self._memory.write(wide, gradient.dtype)
        if self.on_scaled is not None:
            self.on_scaled(gradient, result, 1 / self.changes.loss_scale)
        return result

    # Steps ----------------------------------------------------------------------------------

    def start(self, optimiser: torch.optim.Optimizer) -> None:
        """Before a step of an optimiser."""
        changes = self.changes
        if changes.eps is not None:
            groups = [group for group in optimiser.param_groups if "eps" in group]
            self._epsilons = [(group, group["eps"]) for group in groups]
            for group in groups:
                group["eps"] = changes.eps
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                if changes.loss_scale != 1 and parameter not in self._hooks:
                    self._unscale_late(parameter)
                if changes.wide_states:
                    self._widen(parameter)

    def _unscale_late(self, parameter: torch.Tensor) -> None:
        """Of a parameter that no module has, whose first gradient came without a hook."""
        if parameter.grad is not None:
            parameter.grad = self._unscaled(parameter.grad)
        self.follow(parameter)

    def _widen(self, parameter: torch.Tensor) -> None:
        memory = self._memory
        held = memory.format_of(parameter)
        if parameter.dtype != torch.float32:
            raise ValueError(
                f"wide_states=True needs float32 tensors, got a parameter of {parameter.dtype}; "
                "add halves_by_policy=True, and make the model inside of the session"
            )
        if held in (None, BINARY32):
            return
        assert held is not None
        self._narrow.append((parameter, held, host_values(parameter).copy()))
        memory.mark(parameter, BINARY32)

    def finish(self) -> list[tuple[Updated, Any]]:
        """After a step: parameters in their formats again, each with its values in binary32."""
        self._restore_eps()
        narrowed = []
        for parameter, fmt, before in self._narrow:
            call, memory = self._call("aten.copy_"), self._memory
            values = host_values(parameter).copy()
            rounded = call.device.cast(Array(values, call.device.context(BINARY32)), fmt)
            host_values(parameter)[...] = rounded.carrier
            memory.mark(parameter, fmt)
            narrowed.append(((parameter, fmt, before), values))
        self._narrow = []
        return narrowed

    def abandon(self) -> None:
        """A step was stopped: it has not happened."""
        self._restore_eps()
        for parameter, fmt, before in self._narrow:
            host_values(parameter)[...] = before
            self._memory.mark(parameter, fmt)
        self._narrow = []

    def _restore_eps(self) -> None:
        for group, eps in self._epsilons:
            group["eps"] = eps
        self._epsilons = []

    def close(self) -> None:
        """Gradients are what they are again."""
        self.abandon()
        for hook in self._hooks.clear():
            hook.remove()


def keep_counters(optimiser: torch.optim.Optimizer, memory: Memory) -> None:
    """Counters of an optimiser, as Adam's `step`, are binary32 under every policy.

    torch makes them float32 whatever the parameters are, and reads them as Python numbers; in
    binary16 they would stand still at 2048, and with them the correction of Adam's averages.
    """
    for parameter, state in optimiser.state.items():
        single = isinstance(parameter, torch.Tensor) and not parameter.ndim
        for name, value in state.items():
            is_counter = name == "step" or not single
            if is_counter and isinstance(value, torch.Tensor) and not value.ndim:
                memory.mark(value, BINARY32)


def undoing(
    optimiser: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]
) -> Callable[[], None]:
    """A function that brings back parameters, and the optimiser's state of them, of now."""
    state = optimiser.state
    slots = {p: dict(state[p]) for p in parameters if p in state}
    tensors = [*parameters, *(s for row in slots.values() for s in row.values())]
    values = [(t.detach(), t.detach().clone()) for t in tensors if isinstance(t, torch.Tensor)]

    def undo() -> None:
        for tensor, before in values:
            tensor.copy_(before)
        for p in parameters:
            if p not in slots:
                state.pop(p, None)
                continue
            state[p].clear()
            state[p].update(slots[p])

    return undo
