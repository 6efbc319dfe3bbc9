"""Metering: what the first step of a program costs, layer by layer.

Measured are the first micro-batch whose backward pass runs, and the update behind it: cycles of
the device's declared model, bytes in the formats that tensors hold. A layer begins where a module
is entered and something was computed since the layer before it began; what runs between modules
belongs to the one that ran last. A module that is called again begins none: a block of PopTorch's
could not begin there either.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from ipu.frontends.torch.layers import Layers, Where
from ipu.frontends.torch.values import Memory, tensors_of
from ipu.machine.device import Device
from ipu.plan.chain import Activation, ChainLayer, LayerChain
from ipu.plan.loop import Spent
from ipu.plan.memory import Holding

__all__ = ["LayerMeter", "StepMeasured"]

#: Directions whose cycles belong to a layer.
_OF_LAYERS = ("forward", "backward")


class StepMeasured(BaseException):
    """The first step of a program is over; no error, and no `except Exception` takes it."""


class _Told(TorchFunctionMode):  # type: ignore[misc]
    """Tells the meter of the arguments of every call, above autograd."""

    def __init__(self, meter: LayerMeter) -> None:
        super().__init__()
        self._meter = meter

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunction():
            tensors = tensors_of(args, kwargs or {})
            self._meter.note(tensors)
        result = func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            if any(x.requires_grad for x in tensors_of((result,), {})):
                self._meter.note_parameters(tensors)
        return result


class _Stored(NamedTuple):
    """A tensor of the forward pass, by its memory, which stays alive until the step is over."""

    storage: torch.UntypedStorage
    activation: Activation


class _MeteredForward:
    """What a forward pass has told so far."""

    def __init__(self, root: torch.nn.Module, name: str, inputs: list[torch.Tensor]) -> None:
        self.root = root
        self.names, self.starts = [name], [0]
        self.calls = Counter[str]()
        self.used: list[dict[int, torch.Tensor]] = [{}]
        self.stored: dict[int, _Stored] = {}
        self.parameters = {
            p.untyped_storage().data_ptr() for p in root.parameters() if not _is_lazy(p)
        }
        self.inputs = {x.untyped_storage().data_ptr() for x in inputs}
        self.infeed = 0
        self.outputs: list[torch.Tensor] = []

    @property
    def now(self) -> int:
        """The layer that runs."""
        return len(self.names) - 1

    def begin(self, name: str, start: int) -> None:
        """A layer begins with this node."""
        self.names.append(name)
        self.starts.append(start)
        self.used.append({})

    def of_node(self, number: int) -> int:
        """The layer that created a node."""
        return max(bisect_right(self.starts, number) - 1, 0)

    def fed(self, inputs: list[torch.Tensor]) -> None:
        """What was taken of these tensors was of inputs of the model."""
        for x in inputs:
            stored = self.stored.get(x.untyped_storage().data_ptr())
            if stored is not None and stored.activation.born >= 0:
                of_input = stored.activation._replace(born=-1, last=0)
                self.stored[x.untyped_storage().data_ptr()] = stored._replace(activation=of_input)

    def keep(self, x: torch.Tensor, activation: Activation) -> None:
        """A tensor is taken, or saved, as this says."""
        storage = x.untyped_storage()
        before = self.stored.get(storage.data_ptr())
        if before is not None:
            old = before.activation
            saved = [n for n in (old.saved, activation.saved) if n >= 0]
            activation = Activation(
                max(old.bytes, activation.bytes), min(old.born, activation.born),
                max(old.last, activation.last), min(saved, default=-1),
            )
        self.stored[storage.data_ptr()] = _Stored(storage, activation)


def _is_lazy(p: torch.Tensor) -> bool:
    return isinstance(p, torch.nn.parameter.UninitializedTensorMixin)


class LayerMeter:
    """Measures a step of the program that runs in a session.

    chain    of the step, when its update is over; None before.
    """

    def __init__(self, device: Device, memory: Memory, layers: Layers) -> None:
        self._device, self._memory, self._layers = device, memory, layers
        self.chain: LayerChain | None = None
        self._forward: _MeteredForward | None = None
        self._is_measuring = self._is_done = False
        self._spent: dict[tuple[str, int], Spent] = {}
        self._key: tuple[str, int] | None = None
        self._before = Spent.start(device)
        self._passes = self._update_cycles = 0
        self._saw_backward = False
        #: Of parameters, by identity, where a front end of its own updates them.
        self._told: dict[int, Holding] = {}
        self._optimisers: list[torch.optim.Optimizer] = []

    @contextmanager
    def following(self) -> Iterator[None]:
        """Calls and what autograd saves are told inside."""
        with ExitStack() as stack:
            stack.callback(register_module_forward_pre_hook(self.enter).remove)
            stack.callback(register_module_forward_hook(self.leave, with_kwargs=True).remove)
            stack.enter_context(_Told(self))
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._save, _same))
            yield

    def _bytes(self, x: torch.Tensor) -> int:
        """Of a tensor in the format that it holds."""
        fmt = self._memory.format_of(x)
        return int(x.numel() * (x.element_size() if fmt is None else -(-fmt.bits // 8)))

    # The forward pass -----------------------------------------------------------------------

    def enter(self, module: torch.nn.Module, arguments: Any) -> None:
        """A module is entered; the outermost one begins a forward pass, or goes on with one."""
        if self._is_done or not torch.is_grad_enabled() or self._layers.in_update:
            return
        if self._saw_backward:
            self.end_backward()
            return
        name, is_outermost = self._layers.stack[-1], len(self._layers.stack) == 1
        is_again = self._forward is not None and self._forward.root is module
        if is_outermost and (self._forward is None or is_again):
            self._start(module, name, arguments)
        forward = self._forward
        if forward is None or not self._is_measuring:
            return
        if is_outermost and module is not forward.root:
            forward.parameters |= {p.untyped_storage().data_ptr() for p in module.parameters()}
        forward.calls[name] += 1
        start = torch.autograd._get_sequence_nr()
        if start > forward.starts[-1]:
            self._close()
            forward.begin(name, start)

    def _start(self, module: torch.nn.Module, name: str, arguments: Any) -> None:
        inputs = tensors_of(arguments, {})
        self._forward = _MeteredForward(module, name, inputs)
        self._forward.infeed = sum(map(self._bytes, inputs))
        self._forward.starts = [torch.autograd._get_sequence_nr()]
        self._is_measuring = True
        self._spent.clear()
        self._key = None

    def leave(
        self, module: torch.nn.Module, arguments: Any, named: dict[str, Any], result: Any
    ) -> None:
        """A module is left; which arguments it was called with by name is told only now."""
        forward = self._forward
        if self._is_measuring and forward is not None and module is forward.root:
            forward.outputs = tensors_of((result,), {})
            inputs = tensors_of((), named)
            forward.infeed += sum(map(self._bytes, inputs))
            forward.fed(inputs)

    def note(self, tensors: list[torch.Tensor]) -> None:
        """A call takes these tensors."""
        self._layers.leave_backward()
        forward = self._forward
        if forward is None or not self._is_measuring or self._layers.in_backward:
            return
        for x in tensors:
            if x.grad_fn is not None:
                born = forward.of_node(x.grad_fn._sequence_nr())
                forward.keep(x, Activation(self._bytes(x), born, forward.now))

    def note_parameters(self, tensors: list[torch.Tensor]) -> None:
        """A call whose result has a gradient took these tensors: parameters among them are used."""
        if self._forward is not None and self._is_measuring and not self._layers.in_backward:
            for x in tensors:
                if isinstance(x, torch.nn.Parameter):
                    self._forward.used[-1].setdefault(id(x), x)

    def _save(self, x: torch.Tensor) -> torch.Tensor:
        """Autograd keeps a tensor for its backward pass."""
        forward = self._forward
        if forward is None or not self._is_measuring or self._layers.in_backward:
            return x
        place = x.untyped_storage().data_ptr()
        if place not in forward.parameters:
            now = forward.now
            born = -1 if place in forward.inputs else now
            forward.keep(x, Activation(self._bytes(x), born, now if born >= 0 else 0, now))
        return x

    # Cycles ---------------------------------------------------------------------------------

    def at(self, where: Where) -> None:
        """An operation begins: what was spent since the last one belongs to that."""
        self._close()
        if where.direction == "optimizer" and self._is_done:
            self._key = "optimizer", 0
        elif self._is_measuring and self._forward is not None and where.direction in _OF_LAYERS:
            layer = self._forward.now
            if where.direction == "backward":
                self._saw_backward = True
                layer = self._layer_of(torch._C._current_autograd_node())
            self._key = where.direction, layer

    def _layer_of(self, node: Any) -> int:
        """The layer of a node of the backward pass."""
        forward = self._forward
        assert forward is not None
        variable = getattr(node, "variable", None)
        if variable is None:
            return forward.now if node is None else forward.of_node(node._sequence_nr())
        users = (i for i, used in enumerate(forward.used) if id(variable) in used)
        return next(users, 0)

    def _close(self) -> None:
        """The operation before has ended."""
        spent = Spent.by(self._device)
        if self._key is not None:
            more = spent - self._before
            self._spent[self._key] = self._spent.get(self._key, Spent()).plus(more)
            self._key = None
        self._before = Spent.start(self._device)

    # The end --------------------------------------------------------------------------------

    def end_backward(self) -> None:
        """A backward pass is over: of the first one with a model's forward all is known."""
        self._passes += 1
        if self._is_measuring:
            self._close()
            self._is_measuring, self._is_done, self._saw_backward = False, True, False

    def tell(self, holdings: dict[int, Holding], update_cycles: int, count: int) -> None:
        """What parameters hold, the cycles of an update, and its micro-batches.

        Told by a front end whose updates are no optimiser's step of torch.
        """
        self._told, self._update_cycles, self._passes = holdings, update_cycles, count

    def start_update(self, optimiser: torch.optim.Optimizer) -> None:
        """An optimiser's step begins."""
        if optimiser not in self._optimisers:
            self._optimisers.append(optimiser)

    def finish_step(self) -> None:
        """A step is over; its backward passes are the micro-batches.

        Raises    StepMeasured, if it had a forward and a backward pass.
        """
        if self._saw_backward:
            self.end_backward()
        if self._is_done and self.chain is None:
            self._close()
            self.chain = self._measured()
            raise StepMeasured
        self._passes = 0

    def why_not(self, program: str) -> str:
        """Why a program that has ended was not measured."""
        if self._forward is None:
            what = "no torch.nn.Module was called with gradients on"
        elif not self._is_done:
            what = "no backward pass ran behind the model's forward"
        else:
            what = "no optimiser of torch took a step"
        return (
            f"program={program!r} has no training step to plan: {what}; give a script that trains "
            "its model for one step or more"
        )

    def _measured(self) -> LayerChain:
        forward, target = self._forward, self._device.target
        assert forward is not None
        number = _merged([forward.calls[name] > 1 and i > 0 for i, name in
                          enumerate(forward.names)])
        layers = [ChainLayer(forward.names[number.index(i)]) for i in range(number[-1] + 1)]
        for old, new in enumerate(number):
            forth, back = (self._spent.get((d, old), Spent()) for d in _OF_LAYERS)
            layer = layers[new]
            layers[new] = ChainLayer(
                layer.name, layer.forward_cycles + forth.cycles(target),
                layer.backward_cycles + back.cycles(target),
                max(layer.work_bytes, forth.temporary, back.temporary),
                variables=(*layer.variables, *forward.used[old]),
                forward_exchange=layer.forward_exchange + forth.operands,
                backward_exchange=layer.backward_exchange + back.operands,
                forward_saving=layer.forward_saving + forth.saving,
                backward_saving=layer.backward_saving + back.saving,
            )
        activations = [
            Activation(a.bytes, *(number[n] if n >= 0 else n for n in (a.born, a.last, a.saved)))
            for a in (stored.activation for stored in forward.stored.values()) if a.born >= 0
        ]
        activations.append(Activation(forward.infeed, -1, 0, 0))
        held = {key: p for used in forward.used for key, p in used.items()}
        update = self._update_cycles + self._spent.get(("optimizer", 0), Spent()).cycles(target)
        return LayerChain(
            layers, activations, {key: self._holding(p) for key, p in held.items()},
            forward.infeed, sum(map(self._bytes, forward.outputs)), update, self._passes,
        )

    def _holding(self, p: torch.Tensor) -> Holding:
        if id(p) in self._told:
            return self._told[id(p)]
        state = [
            x for optimiser in self._optimisers for x in optimiser.state.get(p, {}).values()
            if isinstance(x, torch.Tensor) and x.dim() > 0
        ]
        sizes = tuple(map(self._bytes, state))
        accumulator = self._bytes(p.grad) if p.grad is not None else 0
        itemsize = sizes[0] // max(state[0].numel(), 1) if state else 4
        return Holding(self._bytes(p), accumulator, sizes, itemsize, self._layers.layer_of(p))


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _merged(joins: list[bool]) -> list[int]:
    """New numbers of layers of which some join the one before.

    >>> _merged([False, True, False])
    [0, 0, 1]
    """
    numbers: list[int] = []
    for is_joined in joins:
        numbers.append(numbers[-1] if is_joined else len(set(numbers)))
    return numbers
