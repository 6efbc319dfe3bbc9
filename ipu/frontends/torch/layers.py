"""Layers: which module, direction and micro-batch an operation belongs to.

forward     the innermost module whose `forward` runs: its path in the outermost module; the
            outermost module itself has the name of its class. Outside every module an operation is
            a layer of its own by its name, so that a diagnostic one moves no other's random bits.
backward    the layer of the forward operation that the autograd node belongs to. Nodes are
            numbered in the order in which the forward pass creates them, so entering and leaving a
            module is enough to know the layer of each.
optimizer   from a step's beginning to its end, but for the passes that its closure runs; and what
            else is part of an update (`gradients`).
evaluation  in an outermost block without gradients (`blocks`), with the layers of the forward.
            micro_batch is the block's number since the last step.
other       outside every module, in another thread than that of an open block, where gradients
            are not recorded.

A block that begins inside of a module whose outermost call began with gradients on, of a
checkpointed region, of a backward pass or of an optimiser's step is part of that.

Two names of torch without documentation are used: the number of the next node and the node that
runs now. Their presence is checked when a session begins.
"""

from __future__ import annotations

import gc
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ipu.frontends.torch.blocks import Blocks
from ipu.frontends.torch.values import TensorMap, is_lazy

__all__ = ["Layers", "Where"]

#: Spans of nodes that are remembered; older ones are of graphs that are gone.
_SPANS = 1 << 18
#: Of nodes that accumulate gradients, which have no number.
_NO_NUMBER = 1 << 62


class Where(NamedTuple):
    """The layer, direction and micro-batch of an operation."""

    layer: str
    direction: str
    micro_batch: int


def _next_node() -> int:
    number: int = torch.autograd._get_sequence_nr()
    return number


def _check_torch() -> None:
    missing = [
        name
        for owner, name in (
            (torch.autograd, "_get_sequence_nr"),
            (torch._C, "_current_autograd_node"),
            (torch._C, "_current_graph_task_id"),
        )
        if not hasattr(owner, name)
    ]
    if missing:
        raise RuntimeError(
            f"torch {torch.__version__} has no {missing[0]}, by which layers of the backward pass "
            "are known; use torch 2.13"
        )


class Layers:
    """Where the program is.

    enter       called with each module before its forward.
    finish      called after each step of an optimiser.
    start_backward  called at the first operation of each backward pass.
    end_backward    called before the first operation after it.
    start_update    called with an optimiser before its step.
    end_block       called after a block without gradients in which something was computed.
    """

    def __init__(
        self, enter: Callable[[torch.nn.Module], None],
        start_update: Callable[[torch.optim.Optimizer], None], finish: Callable[[], None],
        start_backward: Callable[[], None], end_backward: Callable[[], None],
        end_block: Callable[[], None],
    ) -> None:
        _check_torch()
        self._start_backward, self._end_backward = start_backward, end_backward
        self._enter, self._start_update, self._finish = enter, start_update, finish
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        #: The layer of each parameter of a module, and its name there.
        self._parameters = TensorMap[tuple[str, str]]()
        self.stack: list[str] = []
        self.in_update = False
        #: The operation that runs now is part of an update outside of an optimiser of torch.
        self.is_updating = False
        self.blocks = Blocks(self._may_open, end_block)
        self.is_replaying = False
        #: Checkpointed regions that run now, whose gradients are recorded later.
        self.regions = 0
        #: `backward()` calls since the last step of an optimiser.
        self.micro_batch = 0
        self._in_backward = False
        #: Whether a backward pass has computed, and whether one was recorded for another one.
        self.has_gone_back = self.records_backward = False
        #: The layer of the loss, while the first gradient is made.
        self._root: str | None = None
        # Spans of nodes: the number of the first, its layer, its micro-batch.
        self._starts: list[int] = [0]
        self._spans: list[tuple[str, int]] = [("", 0)]
        self._handles: list[Any] = []

    # Hooks ----------------------------------------------------------------------------------

    def attach(self) -> None:
        """Follow every module and optimiser from now on."""
        self._handles = [
            register_module_forward_pre_hook(self._on_enter),
            register_module_forward_hook(self._on_leave, always_call=True),
            register_optimizer_step_pre_hook(self._before_update),
            register_optimizer_step_post_hook(self._after_update),
        ]

    def detach(self) -> None:
        """Follow them no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.stack.clear()
        self.in_update = False

    def _on_enter(self, module: torch.nn.Module, arguments: Any) -> None:
        self.leave_backward()
        self.stack.append(self.name_of(module))
        self._span()
        self._enter(module)

    def _on_leave(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        if self.stack:
            self.stack.pop()
        self._span()

    def _before_update(self, optimiser: torch.optim.Optimizer, *_: Any) -> None:
        self.leave_backward()
        self.in_update = True
        self._start_update(optimiser)

    def _after_update(self, *_: Any) -> None:
        self.end_step()

    def _may_open(self) -> bool:
        """Whether gradients that are switched off now begin a block of the program."""
        is_part = self.stack or self.in_update or self.regions or self.is_replaying
        return not is_part and torch._C._current_graph_task_id() == -1

    def exchange(self, flow: dict[str, Any]) -> dict[str, Any]:
        """Go on where another flow of the program stands; the flow before."""
        before = {name: getattr(self, name) for name in flow}
        for name, value in flow.items():
            setattr(self, name, value)
        return before

    @staticmethod
    def new_flow(micro_batch: int) -> dict[str, Any]:
        """A flow in which nothing has happened, of a micro-batch; in no block of the program."""
        return {
            "blocks": Blocks(lambda: False, lambda: None),
            "stack": [], "micro_batch": micro_batch, "is_replaying": False, "regions": 0,
            "_in_backward": False, "_starts": [0], "_spans": [("", micro_batch)],
        }

    def end_step_before_forward(self) -> None:
        """A step ended before the forward operation that runs now, whose node is numbered."""
        self.end_step()
        self._spans[-1] = self._spans[-1][0], 0

    def end_step(self) -> None:
        """A step of an optimiser is over, or was skipped."""
        self.in_update = False
        self.micro_batch = 0
        self.blocks.end_step()
        self._finish()

    def name_of(self, module: torch.nn.Module) -> str:
        """The path of a module; one that was never part of another has its class's name."""
        name = self._names.get(module)
        if name is not None:
            return name
        if not self.stack:
            for path, inner in module.named_modules():
                self._names.setdefault(inner, path or type(module).__name__)
                for local_name, parameter in inner.named_parameters(recurse=False):
                    if parameter not in self._parameters:
                        self._parameters[parameter] = self._names[inner], local_name
        else:
            self._names[module] = f"{self.stack[-1]}.{type(module).__name__}"
        return self._names[module]

    def with_weights(self, module: torch.nn.Module) -> list[str]:
        """Names of a module's layers whose weights products take, as they stand in it."""
        embeddings = torch.nn.Embedding, torch.nn.EmbeddingBag
        return [
            self.name_of(inner)
            for inner in module.modules()
            if not isinstance(inner, embeddings)
            and any(is_lazy(p) or p.ndim > 1 for p in inner.parameters(recurse=False))
        ]

    @property
    def names(self) -> set[str]:
        """The names of the modules that ran, and of those inside of them."""
        return set(self._names.values())

    def waiting(self) -> set[str]:
        """Names that modules without one would have if the program called them."""
        named = self._names
        modules = [x for x in gc.get_objects() if issubclass(type(x), torch.nn.Module)]
        inner = {id(child) for module in modules for child in module.children()}
        return {
            path or type(root).__name__
            for root in modules
            if id(root) not in inner
            for path, module in root.named_modules()
            if module not in named
        }

    def layer_of(self, parameter: torch.Tensor | None) -> str:
        """The layer that a parameter belongs to; "" of one that no module has."""
        return self._parameters.get(parameter, ("", ""))[0]

    def parameter_name(self, parameter: torch.Tensor) -> str:
        """The name of a parameter in its layer; "" of one that no module has."""
        return self._parameters.get(parameter, ("", ""))[1]

    def _span(self) -> None:
        """Nodes from here on belong to the present layer."""
        start, layer = _next_node(), self.stack[-1] if self.stack else ""
        if self._starts[-1] == start:
            self._spans[-1] = layer, self.micro_batch
            return
        if len(self._starts) > _SPANS:
            del self._starts[: _SPANS // 2], self._spans[: _SPANS // 2]
        self._starts.append(start)
        self._spans.append((layer, self.micro_batch))

    # Where ----------------------------------------------------------------------------------

    def where(self, operation: str) -> Where:
        """Of the operation that runs now; its name is the layer outside every module."""
        if self._root is not None:
            self._begin_backward()
            return Where(self._root, "backward", self.micro_batch)
        if torch._C._current_graph_task_id() != -1 and not self.is_replaying:
            self._begin_backward()
            self.has_gone_back = True
            if torch.is_grad_enabled():
                self.records_backward = True
            layer, micro_batch = self._of_node(torch._C._current_autograd_node())
            return Where(layer or operation, "backward", micro_batch)
        if self._in_backward:
            self.leave_backward()
        if self.is_updating:
            return Where("optimizer", "optimizer", 0)
        if self.blocks.opener is not None and self.blocks.is_open and not self.in_update:
            layer = self.stack[-1] if self.stack else operation
            return Where(layer, "evaluation", self.blocks.number())
        if self.stack:
            return Where(self.stack[-1], "forward", self.micro_batch)
        if self.in_update:
            return Where("optimizer", "optimizer", 0)
        is_other = self.blocks.opener is not None and not (torch.is_grad_enabled() or self.regions)
        return Where(operation, "other" if is_other else "forward", self.micro_batch)

    def _begin_backward(self) -> None:
        if not self._in_backward:
            self._in_backward = True
            self._start_backward()

    @contextmanager
    def beginning(self, layer: str) -> Iterator[None]:
        """Operations inside make the first gradient of a backward pass from this layer's loss."""
        self.leave_backward()
        self._root = layer
        try:
            yield
        finally:
            self._root = None

    def layer_of_node(self, node: Any) -> str:
        """The layer of the forward operation that an autograd node belongs to, or ""."""
        return self._of_node(node)[0]

    def leave_backward(self) -> None:
        """Count the backward pass that has ended since the last operation."""
        if self._in_backward and torch._C._current_graph_task_id() == -1:
            self._in_backward = False
            self.micro_batch += 1
            self._span()
            self._end_backward()

    @property
    def in_backward(self) -> bool:
        """Whether the last operation belonged to a backward pass."""
        return self._in_backward

    @contextmanager
    def region(self) -> Iterator[None]:
        """Operations inside are recorded, although torch records them in the recomputation."""
        self.regions += 1
        try:
            yield
        finally:
            self.regions -= 1

    @contextmanager
    def replaying(self, stack: tuple[str, ...], micro_batch: int) -> Iterator[None]:
        """Operations inside repeat those of a forward pass that were in these modules."""
        before = self.stack, self.micro_batch, self.is_replaying
        self.stack, self.micro_batch, self.is_replaying = list(stack), micro_batch, True
        self._span()
        try:
            with self.region():
                yield
        finally:
            self.stack, self.micro_batch, self.is_replaying = before
            self._span()

    def _of_node(self, node: Any) -> tuple[str, int]:
        number = -1 if node is None else node._sequence_nr()
        if number < 0:
            return "", self.micro_batch
        if number >= _NO_NUMBER:
            return self.layer_of(getattr(node, "variable", None)), self.micro_batch
        return self._spans[max(bisect_right(self._starts, number) - 1, 0)]
