"""LSTM layers: the operations of torch in torch's order, a step of time as one node of autograd.

torch writes an LSTM of the CPU in single operations. In a session a step of time is one function:
its product and sums one after the other, as their handlers compute them, and the cell in one call.
Values, flags, cycles, random bits, their numbers and the calls that a report tells are those of
single operations. Gradients that meet (of weights, of hidden states) are added by autograd between
two steps, as they are between the nodes of a step.

A layer runs as torch writes it where something looks at single operations (counts, watchers,
shadows, captured steps, traps, other modes), where products go by a recipe of blocks, outside of
modules, and without gradients. Gradients of gradients are added up between the operations of a
step: a session whose backward passes are recorded runs steps in single operations, and none in one
function before it has seen a backward pass.

Source    PyTorch 2.13, aten/src/ATen/native/RNN.cpp (order of operations),
          torch/csrc/autograd (order of gradients).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from fpsim.array import Array
from ipu.frontends.torch.aten import TABLE, Call
from ipu.frontends.torch.capture.recording import StepRecording
from ipu.frontends.torch.capture.replay import StepReplay
from ipu.frontends.torch.errors import is_foreign
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.metering import LayerMeter
from ipu.frontends.torch.repeating import Tensors, repeated_on
from ipu.frontends.torch.shadowing import Shadowing
from ipu.frontends.torch.values import Memory
from ipu.machine.device import Device
from ipu.ops.cells import lstm_cell, lstm_cell_gradients, side_by_side
from ipu.ops.in_one_call import may_join
from ipu.ops.listing import Listing
from ipu.run.account import Account

__all__ = ["cells_in_one_call"]

_TENSORS = torch.Tensor, torch.nn.Parameter
_tanh_slope = torch.ops.aten.tanh_backward.default
_sigmoid_slope = torch.ops.aten.sigmoid_backward.default
#: Calls of a cell as a report tells them, and how many: those that compute, and those that move.
_FORWARD = {
    "aten.sigmoid.default": 3, "aten.tanh.default": 2, "aten.mul.Tensor": 3, "aten.add.Tensor": 1,
}
_BACKWARD = {
    "aten.mul.Tensor": 6, "aten.tanh_backward.default": 2, "aten.sigmoid_backward.default": 3,
    "aten.add.Tensor": 1,
}
_MOVED_FORWARD = {"aten.t.default": 1, "aten.unsafe_split.Tensor": 1, "aten.detach.default": 5}
_MOVED_BACKWARD = {"aten.cat.default": 1}
#: Calls by which autograd reads the results of a cell that it keeps: all, and without a gradient of
#: the hidden state those of three gates.
_READ_ALL, _READ_GATES = {"aten.detach.default": 5}, {"aten.detach.default": 3}
#: The same where the cell alone wants a gradient.
_READ_BENT = {"aten.detach.default": 1}


class RecurrentSession(Protocol):
    """What LSTM layers ask of a session."""

    device: Device
    memory: Memory
    account: Account
    layers: Layers
    listing: Listing | None
    shadowing: Shadowing | None
    capture: StepRecording | None
    replay: StepReplay | None
    meter: LayerMeter | None
    is_native: bool

    def call(self, operation: str) -> Call: ...
    def has_recipe(self, layer: str, direction: str) -> bool: ...


@contextmanager
def cells_in_one_call(session: RecurrentSession) -> Iterator[None]:
    """Inside, `torch.lstm` and torch.nn.LSTM run their cells in one call where they may."""
    torchs, lstm = torch.lstm, _named(session, torch.lstm)
    torch.lstm = torch._VF.lstm = lstm
    try:
        yield
    finally:
        torch.lstm = torchs
        del torch._VF.lstm


def _named(session: RecurrentSession, torchs: Callable[..., Any]) -> Callable[..., Any]:
    def lstm(*arguments: Any, **options: Any) -> Any:
        layers = session.layers
        is_first_order = layers.has_gone_back and not layers.records_backward
        if options or not layers.stack or not is_first_order or not is_alone(session):
            return torchs(*arguments, **options)
        if any(session.has_recipe(layers.stack[-1], way) for way in ("forward", "backward")):
            return torchs(*arguments, **options)
        stack = LstmLayers.of(*arguments)
        return torchs(*arguments) if stack is None else stack.run(session)

    return lstm


def is_alone(session: RecurrentSession) -> bool:
    """Whether nothing looks at single operations."""
    memory = session.memory
    return (
        may_join(session.device) and memory.watch is None and memory.births is None
        and session.listing is None and session.shadowing is None and session.capture is None
        and session.replay is None and session.meter is None and not session.is_native
        and session.account.watching is None and session.device.counts is None
        and torch._C._len_torch_dispatch_stack() == 1
        and torch._C._len_torch_function_stack() == 0 and peek_interpreter_stack() is None
        and forward_ad._current_level < 0 and not torch._C._is_any_autocast_enabled()
        and torch._C._get_tracing_state() is None
        and torch._C._autograd._top_saved_tensors_default_hooks(False) is None
    )


class CellParameters(NamedTuple):
    """Weights of the input and of the hidden state, and biases, if there are."""

    of_input: torch.Tensor
    of_hidden: torch.Tensor
    input_bias: torch.Tensor | None = None
    hidden_bias: torch.Tensor | None = None


class LstmState(NamedTuple):
    """Hidden state and cell."""

    hidden: torch.Tensor
    cell: torch.Tensor


class LstmLayers(NamedTuple):
    """The arguments of `torch.lstm`."""

    inputs: torch.Tensor
    states: Sequence[torch.Tensor]
    parameters: Sequence[torch.Tensor]
    has_biases: bool
    n_layers: int
    dropout: float
    is_training: bool
    is_bidirectional: bool
    is_batch_first: bool

    @classmethod
    def of(cls, *arguments: Any) -> LstmLayers | None:
        """Arguments of which cells may run in one call; None of others."""
        if len(arguments) != len(cls._fields) or not isinstance(arguments[1], (tuple, list)):
            return None
        layers = cls(*arguments)
        tensors = [layers.inputs, *layers.states, *layers.parameters]
        for x in tensors:
            if type(x) not in _TENSORS or x.dtype is not torch.float32 or is_foreign(x):
                return None
        is_recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        return layers if is_recorded and layers._has_shapes() else None

    def _has_shapes(self) -> bool:
        """Whether all shapes are those of layers without projections."""
        n = self.n_layers * (1 + self.is_bidirectional)
        if self.inputs.ndim != 3 or len(self.states) != 2 or 0 in self.inputs.shape:
            return False
        batch, width = self.inputs.shape[0 if self.is_batch_first else 1], self.inputs.shape[2]
        n_each = 4 if self.has_biases else 2
        if len(self.parameters) != n * n_each or self.parameters[1].ndim != 2:
            return False
        size = self.parameters[1].shape[1]
        for k in range(n):
            if k == 1 + self.is_bidirectional:
                width = size * k
            expected = [(4 * size, width), (4 * size, size), (4 * size,), (4 * size,)][:n_each]
            parameters = self.parameters[k * n_each : (k + 1) * n_each]
            if [tuple(x.shape) for x in parameters] != expected:
                return False
        return all(tuple(x.shape) == (n, batch, size) for x in self.states)

    def run(self, session: RecurrentSession) -> tuple[torch.Tensor, ...]:
        """Outputs of the last layer; hidden states and cells behind the last step."""
        x = self.inputs.transpose(0, 1) if self.is_batch_first else self.inputs
        n_each = 4 if self.has_biases else 2
        parameters = [
            CellParameters(*self.parameters[k : k + n_each])
            for k in range(0, len(self.parameters), n_each)
        ]
        hidden, cells = (state.unbind(0) for state in self.states)
        states = [LstmState(*pair) for pair in zip(hidden, cells, strict=True)]
        last: list[LstmState] = []
        n_ways = 1 + self.is_bidirectional
        for layer in range(self.n_layers):
            ways = slice(layer * n_ways, (layer + 1) * n_ways)
            x, behind = _layer(session, x, states[ways], parameters[ways])
            last += behind
            if self.dropout != 0 and self.is_training and layer < self.n_layers - 1:
                x = torch.dropout(x, self.dropout, True)
        after = torch.stack([state.cell for state in last], 0)  # the order of torch's compiler
        outputs = x.transpose(0, 1) if self.is_batch_first else x
        return outputs, torch.stack([state.hidden for state in last], 0), after


# Steps of time ----------------------------------------------------------------------------------


def _layer(
    session: RecurrentSession, x: torch.Tensor, states: Sequence[LstmState],
    parameters: Sequence[CellParameters],
) -> tuple[torch.Tensor, list[LstmState]]:
    """Outputs of a layer, forwards and perhaps backwards in time, and the states at the end."""
    outputs, last = [], []
    for way, (state, weights) in enumerate(zip(states, parameters, strict=True)):
        sums = torch.nn.functional.linear(x, weights.of_input, weights.input_bias).unbind(0)
        hidden = []
        for of_input in sums[:: -1 if way else 1]:
            state = _step(session, of_input, state, weights)
            hidden.append(state.hidden)
        outputs.append(torch.stack(hidden[:: -1 if way else 1], 0))
        last.append(state)
    if len(outputs) == 1:
        return outputs[0], last
    return torch.cat(outputs, outputs[0].ndim - 1), last


def _step(
    session: RecurrentSession, of_input: torch.Tensor, state: LstmState, weights: CellParameters
) -> LstmState:
    results = None
    if weights.of_hidden.requires_grad or of_input.requires_grad or state.hidden.requires_grad:
        results = _forward(session, of_input, state, weights)
    if results is not None:
        with torch._C._DisableTorchDispatch():
            turned = weights.of_hidden.t()
            arguments = weights.hidden_bias, state.hidden, turned, of_input, state.cell
            return LstmState(*_LstmStep.apply(session, results, *arguments)[:2])
    linear = torch.nn.functional.linear
    gates = linear(state.hidden, weights.of_hidden, weights.hidden_bias).add_(of_input)
    i, f, g, o = gates.unsafe_chunk(4, 1)
    i, f, g, o = i.sigmoid_(), f.sigmoid_(), g.tanh_(), o.sigmoid_()
    cell = (f * state.cell).add_(i * g)
    return LstmState(o * cell.tanh(), cell)


def _forward(
    session: RecurrentSession, of_input: torch.Tensor, state: LstmState, weights: CellParameters
) -> tuple[torch.Tensor, ...] | None:
    """Hidden state and cell behind a step, gates, and tanh; None where operations run alone."""
    call = session.call("aten.mm")
    if call.direction != "forward" or not _lie_as_usual(state.hidden, weights.of_hidden):
        return None
    with torch._C._DisableTorchDispatch():
        turned, bias = weights.of_hidden.detach().t(), weights.hidden_bias
        standing = turned, None if bias is None else bias.detach()
        return _run(session, call, _forward_by_handlers, (of_input,), state, standing)


def _run(
    session: RecurrentSession, call: Call, function: Callable[..., Tensors], tensors: Tensors,
    state: LstmState, standing: Sequence[torch.Tensor | None], options: tuple[bool, ...] = (),
) -> Tensors | None:
    """What a function gives for the state before a step, other tensors, and weights.

    None where single operations would read more than numbers of the call's format, or states from
    outside, or where something happens to results.
    """
    fmt, format_of = call.activations, call.memory.format_of
    if call.alter is not None or call.layer.startswith("aten."):
        return None
    for x in tensors:
        if x.dtype is not torch.float32 or format_of(x) != fmt:
            return None
    formats = {format_of(x) for x in state if x.dtype is torch.float32}
    if formats == {fmt}:
        return repeated_on(session).run(
            session, call, function, (*state, *tensors), standing, options
        )
    is_from_outside = all(x.dtype is torch.float32 for x in state) and formats <= {fmt, None}
    return function(session, *state, *tensors, *standing, *options) if is_from_outside else None


def _forward_by_handlers(
    session: RecurrentSession, hidden: torch.Tensor, cell: torch.Tensor, of_input: torch.Tensor,
    turned: torch.Tensor, bias: torch.Tensor | None,
) -> Tensors:
    if bias is None:
        sums = _computed(session, "mm.default", hidden, turned)
    else:
        sums = _computed(session, "addmm.default", bias, hidden, turned)
    sums = _computed(session, "add.Tensor", sums, of_input)
    call = session.call("aten.sigmoid")
    gates, before = (call.memory.read(x, call.activations) for x in (sums, cell))
    n = cell.shape[1]
    i, f, g, o = [gates.like(gates.carrier[:, k * n : (k + 1) * n]) for k in range(4)]
    results = lstm_cell(call.device, i, f, g, o, before)
    _account(session.account, _FORWARD, _MOVED_FORWARD, cell.numel())
    return tuple([call.result(x, torch.float32) for x in results])


def _lie_as_usual(hidden: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether torch has the products of gradients that `_product_gradients` has.

    Of operands that lie by columns it turns the product instead.
    """
    return bool(hidden.shape[1] > 1 and hidden.is_contiguous() and weight.is_contiguous())


def _computed(session: RecurrentSession, overload: str, *arguments: Any) -> torch.Tensor:
    """What the handler of an overload computes at the place of now."""
    name = f"aten.{overload}"
    call = session.call(name[: name.rindex(".")])
    result: torch.Tensor = TABLE[overload].handler(call, *arguments)
    session.account.add("machine", name, result.numel())
    return result


def _account(account: Account, computing: dict[str, int], moving: dict[str, int], n: int) -> None:
    for name, calls in computing.items():
        for _ in range(calls):
            account.add("machine", name, n)
    for name, calls in moving.items():
        account.add_calls("exact", name, calls)


class _LstmStep(torch.autograd.Function):  # type: ignore[misc]
    """What a step takes in to hidden state and cell behind it, gates, and tanh of the cell.

    Autograd adds the gradients that meet in the order of the arguments: that of torch's nodes.
    """

    @staticmethod
    def forward(
        ctx: Any, session: RecurrentSession, results: tuple[torch.Tensor, ...],
        bias: torch.Tensor | None, hidden: torch.Tensor, turned: torch.Tensor,
        of_input: torch.Tensor, cell: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.session, ctx.has_bias = session, bias is not None
        ctx.save_for_backward(hidden, turned, cell, *results[2:])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        session: RecurrentSession = ctx.session
        with torch._C._DisableTorchDispatch():
            hidden, turned, cell, *gates, bent = ctx.saved_tensors
        of_bias, of_hidden, of_weight, of_input, of_cell = _needed(ctx)
        wanted = _Wanted(ctx.has_bias, of_bias, of_hidden, of_weight, of_cell)
        to_hidden, to_cell, *others = gradients
        if not (of_bias or of_hidden or of_weight or of_input):
            before = _cell_gradient_by_operation(gradients, gates[1], gates[3], bent)
            _account(session.account, {}, _READ_BENT if to_hidden is not None else {}, 0)
            return *[None] * 6, before
        _account(session.account, {}, _READ_GATES if to_hidden is None else _READ_ALL, 0)
        if to_hidden is not None and all(x is None for x in others):
            tensors = (to_hidden, *gates, bent), LstmState(hidden, cell)
            slopes = _backward(session, *tensors, to_cell, turned, wanted)
            if slopes is not None:
                return None, None, *slopes
        *parts, before = _backward_by_operation(gradients, gates, bent, cell, wanted)
        of_gates = torch.cat(parts, 1)
        products = _product_gradients_by_operation(of_gates, hidden, turned, wanted)
        return None, None, *products, of_gates, before


def _needed(ctx: Any) -> list[bool]:
    """Which tensors of a step get gradients in the pass of now, which may be after few of them."""
    nodes, needed = iter(ctx.next_functions), []
    for is_tensor, is_needed in zip(
        (ctx.has_bias, True, True, True, True), ctx.needs_input_grad[2:], strict=True
    ):
        node = next(nodes)[0] if is_tensor else None
        needed.append(is_needed and (node is None or _is_executed(node)))
    return needed


def _is_executed(node: Any) -> bool:
    """Whether the pass of now comes to a node; torch refuses to tell of a leaf that it is after."""
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:
        return True


class _Wanted(NamedTuple):
    """Whether a step has a bias; what wants a gradient: it, and what else goes into the step."""

    has_bias: bool
    bias: bool
    hidden: bool
    weight: bool
    cell: bool


def _backward(
    session: RecurrentSession, tensors: Tensors, state: LstmState, to_cell: torch.Tensor | None,
    turned: torch.Tensor, wanted: _Wanted,
) -> tuple[torch.Tensor | None, ...] | None:
    """Gradients of the bias, the hidden state, the turned weight, the gates and the cell.

    tensors    as `_backward_by_handlers` takes them.

    None: operations run alone.
    """
    if torch.is_grad_enabled() or not is_alone(session):
        return None
    call = session.call("aten.mul")
    if call.direction != "backward":
        return None
    if to_cell is not None:
        tensors = *tensors, to_cell
    with torch._C._DisableTorchDispatch():
        slopes = _run(session, call, _backward_by_handlers, tensors, state, (turned,), wanted)
        if slopes is None:
            return None
        of_gates, *others = slopes
        before = others.pop(0) if wanted.cell else None
        to_hidden = others.pop(0) if wanted.hidden else None
        to_turned = others.pop(0).t() if wanted.weight else None
        to_bias = others.pop(0) if wanted.bias else None
    return to_bias, to_hidden, to_turned, of_gates, before


def _backward_by_handlers(
    session: RecurrentSession, hidden: torch.Tensor, cell: torch.Tensor, to_hidden: torch.Tensor,
    i: torch.Tensor, f: torch.Tensor, g: torch.Tensor, o: torch.Tensor, bent: torch.Tensor,
    *others: Any,
) -> Tensors:
    """Gradients of gates, and what else is wanted: of cell, hidden state, weight and bias.

    others    the gradient of the cell behind the step, if there is one; the turned weight; what
              is wanted.
    """
    n = len(others) - len(_Wanted._fields)
    *to_cell, turned = others[:n]
    call, wanted = session.call("aten.mul"), _Wanted(*others[n:])

    def read(x: torch.Tensor) -> Array:
        return call.memory.read(x, call.activations)

    after = read(to_cell[0]) if to_cell else None
    slopes = lstm_cell_gradients(
        call.device, read(to_hidden), after, tuple(map(read, (i, f, g, o))), read(bent),
        read(cell), to_before=wanted.cell,
    )
    of_gates = call.result(side_by_side(call.device, slopes[:4]), torch.float32)
    before = [call.result(x, torch.float32) for x in slopes[4:]]
    computing = _BACKWARD | {"aten.mul.Tensor": 5 + wanted.cell, "aten.add.Tensor": len(to_cell)}
    _account(session.account, computing, _MOVED_BACKWARD, cell.numel())
    return of_gates, *before, *_product_gradients(session, of_gates, hidden, turned, wanted)


def _product_gradients(
    session: RecurrentSession, of_gates: torch.Tensor, hidden: torch.Tensor, turned: torch.Tensor,
    wanted: _Wanted,
) -> list[torch.Tensor]:
    """To the hidden state, the weight and the bias, in the order of addmm, or of mm."""
    def of_weight() -> list[torch.Tensor]:
        return [_computed(session, "mm.default", of_gates.t(), hidden)] if wanted.weight else []

    slopes = [] if wanted.has_bias else of_weight()
    if wanted.hidden:
        slopes.insert(0, _computed(session, "mm.default", of_gates, turned.t()))
    if wanted.has_bias:
        slopes += of_weight()
    if wanted.bias:
        slopes.append(_computed(session, "sum.dim_IntList", of_gates, [0], True).view(-1))
        session.account.add_calls("exact", "aten.view.default", 1)
    session.account.add_calls("exact", "aten.t.default", wanted.hidden + 2 * wanted.weight)
    return slopes


def _product_gradients_by_operation(
    of_gates: torch.Tensor, hidden: torch.Tensor, turned: torch.Tensor, wanted: _Wanted
) -> tuple[torch.Tensor | None, ...]:
    """To the bias, the hidden state and the turned weight, in torch's operations."""
    to_turned = of_gates.t().mm(hidden).t() if wanted.weight and not wanted.has_bias else None
    to_hidden = of_gates.mm(turned.t()) if wanted.hidden else None
    if wanted.weight and wanted.has_bias:
        to_turned = of_gates.t().mm(hidden).t()
    to_bias = of_gates.sum((0,), True).view(-1) if wanted.bias else None
    return to_bias, to_hidden, to_turned


def _backward_by_operation(
    gradients: Sequence[torch.Tensor | None], gates: Sequence[torch.Tensor], bent: torch.Tensor,
    cell: torch.Tensor, wanted: _Wanted,
) -> tuple[torch.Tensor | None, ...]:
    """The same of the cell in torch's operations, in the order of autograd."""
    hidden, after, of_i, of_f, of_g, of_o, of_bent = gradients
    i, f, g, o = gates
    if hidden is not None:
        new_bent, new_o = hidden * o, hidden * bent
        of_o, of_bent = _sum(of_o, new_o), _sum(of_bent, new_bent)
    if of_bent is not None:
        after = _sum(after, _tanh_slope(of_bent, bent))
    before = None
    if after is not None:
        new_g, new_i = after * i, after * g
        of_i, of_g = _sum(of_i, new_i), _sum(of_g, new_g)
        before = after * f if wanted.cell else None
        new_f = after * cell
        of_f = _sum(of_f, new_f)
    sums = (
        (of_o, _sigmoid_slope, o), (of_g, _tanh_slope, g), (of_f, _sigmoid_slope, f),
        (of_i, _sigmoid_slope, i),
    )
    slopes = [torch.zeros(x.shape) if of is None else slope(of, x) for of, slope, x in sums]
    return (*slopes[::-1], before)


def _cell_gradient_by_operation(
    gradients: Sequence[torch.Tensor | None], f: torch.Tensor, o: torch.Tensor, bent: torch.Tensor
) -> torch.Tensor | None:
    """That of the cell before a step, where nothing else wants one."""
    hidden, after, *_, of_bent = gradients
    if hidden is not None:
        of_bent = _sum(of_bent, hidden * o)
    if of_bent is not None:
        after = _sum(after, _tanh_slope(of_bent, bent))
    return None if after is None else after * f


def _sum(before: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    return x if before is None else before + x
