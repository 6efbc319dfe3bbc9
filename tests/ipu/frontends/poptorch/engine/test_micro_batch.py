"""Micro-batches: forward and backward passes in one piece, with marks of stages (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import Net, data, poptorch, torch

from ipu.frontends.poptorch.engine.micro_batch import MicroBatch  # isort: skip


class Numbers:
    """Block Bn is stage n - 1."""

    n_stages = 4

    def stage_of(self, user_id, ipu_id):
        return int(user_id.removeprefix("B")) - 1


def micro_batch(marks, **choice):
    def begin(is_backward, stage):
        marks.append(("B" if is_backward else "F") + str(stage))

    return MicroBatch(Numbers(), begin, **{"records": True} | choice)


def one(loss):
    return torch.tensor(1.0)


def test_stages_are_marked_forward_and_backward():
    net, (x, labels), marks = Net(), data(5, half=False), []
    batch = micro_batch(marks)
    batch.forward(lambda: net(x, labels))
    assert marks == ["F0", "F1", "F2", "F3"]
    batch.backward(one, list(net.parameters()))
    assert marks[4:] == ["B3", "B2", "B1", "B0"]


def test_operations_of_a_stage_run_under_its_mark():
    """Each stage's product is by a power of its own; its gradient is computed under the mark."""
    marks, operations = [], []

    class Told(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, stage):
            ctx.stage = stage
            operations.append(("F", stage, marks[-1]))
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            operations.append(("B", ctx.stage, marks[-1]))
            return gradient * 2, None

    weight = torch.nn.Parameter(torch.ones(2))

    def run():
        x = skip = weight * 1.0
        for stage in range(4):
            with poptorch.Block(f"B{stage + 1}"):
                x = Told.apply(Told.apply(x, stage), stage) + skip
        return poptorch.identity_loss(x, "sum")

    batch = micro_batch(marks)
    batch.forward(run)
    batch.backward(one, [weight])
    assert len(operations) == 16
    assert all(mark == f"{way}{stage}" for way, stage, mark in operations)


def test_a_backward_pass_has_the_gradients_of_the_model():
    net, (x, labels) = Net(), data(5, half=False)
    net.drop = torch.nn.Identity()
    batch = micro_batch([])
    batch.forward(lambda: net(x, labels))
    slopes = dict(batch.backward(one, list(net.parameters())))
    net.norm.reset_running_stats()
    _, loss = net(x, labels)
    for p, g in zip(net.parameters(), torch.autograd.grad(loss, net.parameters()), strict=True):
        assert torch.equal(slopes[p], g)


def test_a_stage_does_not_run_again():
    def back():
        with poptorch.Block("B2"):
            x = torch.ones(2) + 1
        with poptorch.Block("B1"):
            return x + 2

    with pytest.raises(ValueError, match="block 'B1' of stage 0 runs after a block of stage 1"):
        micro_batch([]).forward(back)


def test_a_block_inside_of_a_recomputed_region_begins_no_stage_again():
    weight, marks = torch.nn.Parameter(torch.ones(2)), []

    def layers(x):
        for stage in range(2):
            with poptorch.Block(f"B{stage + 1}"):
                x = torch.tanh(x * weight)
        return x

    def run():
        again = torch.utils.checkpoint.checkpoint(layers, torch.ones(2), use_reentrant=False)
        with poptorch.Block("B4"):
            return poptorch.identity_loss(again, "sum")

    batch = micro_batch(marks)
    batch.forward(run)
    ((_, gradient),) = batch.backward(one, [weight])
    assert gradient.shape == (2,)
    assert marks[:4] == ["F0", "F1", "F2", "F3"]


def test_blocks_without_a_name_count():
    names = []

    class Noting(Numbers):
        def stage_of(self, user_id, ipu_id):
            names.append((user_id, ipu_id))
            return 0

    def run():
        poptorch.Block.useAutoId()
        for ipu in (0, 1):
            with poptorch.Block(ipu_id=ipu):
                pass

    MicroBatch(Noting(), lambda is_backward, stage: None, records=False).forward(run)
    assert names == [("0", 0), ("1", 1)]


def test_a_tensor_that_was_written_is_not_used_with_its_old_values():
    x = torch.ones(3, requires_grad=True)

    def run():
        first = torch.tanh(x * 1.0)  # keeps its result for the backward pass
        with poptorch.Block("B2"):
            first.mul_(2)
        return poptorch.identity_loss(first, "sum")

    batch = micro_batch([])
    batch.forward(run)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        batch.backward(one, [x])


def test_the_gradient_mode_of_the_program_is_as_before():
    for before in (True, False):
        with torch.set_grad_enabled(before):
            batch = micro_batch([], records=not before)
            assert batch.forward(torch.is_grad_enabled) is not before
            assert torch.is_grad_enabled() is before
