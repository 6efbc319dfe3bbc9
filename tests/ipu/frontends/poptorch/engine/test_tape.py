"""The tape of stages: what crosses, what is kept, which node comes first backward (golden)."""

from __future__ import annotations

from tests.ipu.frontends.poptorch.framework import torch

from ipu.frontends.poptorch.engine.calls import Calls, functions_told  # isort: skip
from ipu.frontends.poptorch.engine.tape import Tape, next_node, stage_heads  # isort: skip


def own_bytes(x):
    return x.numel() * x.element_size()


def test_what_enters_a_stage_counts_once_and_passes_through_the_stages_between():
    tape, weight = Tape(own_bytes), torch.nn.Parameter(torch.ones(3))
    with Calls(tape.note, lambda function, result: None):
        first = torch.tanh(torch.ones(3) * weight)
        tape.begin(next_node())
        second = torch.exp(first[:2]) * 1.0
        tape.begin(next_node())
        (first.sum() + first.sum() + second.sum()).exp()
    assert list(tape.used[0].values()) == [weight]
    assert not tape.used[1]
    assert sorted(c.bytes for c in tape.entering(1)) == [12]
    assert sorted(c.bytes for c in tape.leaving(1)) == [8, 12]
    assert sorted(c.bytes for c in tape.entering(2)) == [8, 12]
    assert tape.entering(3) == tape.leaving(2) == []


def test_saved_bytes_leave_out_what_entered_and_parameters():
    tape, weight, constant = Tape(own_bytes), torch.nn.Parameter(torch.ones(4)), torch.ones(4)
    with Calls(tape.note, lambda function, result: None):
        first = constant * weight  # keeps the constant, 16 bytes
        tape.begin(next_node())
        loss = torch.tanh(first * weight).sum()  # keeps first, weight and the tanh
    assert tape.saved_bytes(0, None) == 16
    assert tape.saved_bytes(0, None, [constant]) == 0
    assert tape.saved_bytes(1, loss) == 16
    assert tape.saved_bytes(2, loss) == 0


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_functions_of_the_users_own_are_told_too():
    tape, weight = Tape(own_bytes), torch.nn.Parameter(torch.ones(3))
    apply = torch.autograd.Function.__dict__["apply"]
    with Calls(tape.note, lambda function, result: None), functions_told(tape.note):
        first = Doubled.apply(weight)
        tape.begin(next_node())
        Doubled.apply(first)
    assert list(tape.used[0].values()) == [weight]
    assert [c.bytes for c in tape.entering(1)] == [12]
    assert torch.autograd.Function.__dict__["apply"] is apply


def test_the_latest_node_of_each_stage_is_its_head():
    weight = torch.nn.Parameter(torch.ones(3))
    first = weight * 2
    starts = [0, next_node()]
    second = torch.tanh(first)
    starts.append(next_node())
    loss = second.sum()
    heads = stage_heads(loss, starts)
    assert heads == {0: first.grad_fn, 1: second.grad_fn, 2: loss.grad_fn}


def test_calls_are_told_with_their_results_and_backward_passes_are_not():
    functions = []
    with Calls(lambda arguments: None, lambda f, result: functions.append(f)) as calls:
        torch.nn.functional.mse_loss(torch.ones(2), torch.zeros(2))
        assert torch.nn.functional.mse_loss in functions
        functions.clear()
        calls.is_backward = True
        torch.nn.functional.mse_loss(torch.ones(2), torch.zeros(2))
    assert not functions
