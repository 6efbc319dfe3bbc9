"""Flights: forward passes pause where stages end, backward passes run stage by stage (law)."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.ipu.frontends.poptorch.framework import Net, data, poptorch, torch

from ipu.frontends.poptorch.engine.flight import Flight  # isort: skip


class Numbers:
    """Block Bn is stage n - 1."""

    def stage_of(self, user_id, ipu_id):
        return int(user_id.removeprefix("B")) - 1


def flight(net, x, labels, **choice):
    return Flight(
        lambda: net(x, labels), Numbers(), list(net.parameters()), nullcontext(), **choice
    )


def test_a_flight_has_the_gradients_of_the_uncut_model():
    net, (x, labels) = Net(), data(5, half=False)
    net.drop = torch.nn.Identity()
    own = flight(net, x, labels)
    for stage in range(4):
        assert not own.is_done
        own.forward(stage)
    assert own.is_done
    slopes = {}
    for stage in (3, 2, 1, 0):
        pairs = own.backward(stage, torch.tensor(1.0) if stage == 3 else None)
        slopes.update({id(p): g for p, g in pairs})
    own.close()
    net.norm.reset_running_stats()
    _, loss = net(x, labels)
    for p, g in zip(net.parameters(), torch.autograd.grad(loss, net.parameters()), strict=True):
        assert torch.equal(slopes[id(p)], g)


def test_gradients_come_with_the_stage_that_uses_the_parameter():
    net, (x, labels) = Net(), data(5, half=False)
    own = flight(net, x, labels)
    for stage in range(4):
        own.forward(stage)
    last = {id(p) for p, _ in own.backward(3, torch.tensor(1.0))}
    own.close()
    assert last == {id(p) for p in net.d.parameters()}


def test_a_stage_does_not_run_again():
    class Back(torch.nn.Module):
        def forward(self, x):
            with poptorch.Block("B2"):
                x = x + 1
            with poptorch.Block("B1"):
                return x + 2

    own = Flight(lambda: Back()(torch.ones(2)), Numbers(), [], nullcontext())
    own.forward(0)
    with pytest.raises(ValueError, match="block 'B1' of stage 0 runs after a block of stage 1"):
        own.forward(1)


def test_blocks_without_a_name_count():
    names = []

    class Noting:
        def stage_of(self, user_id, ipu_id):
            names.append((user_id, ipu_id))
            return 0

    def run():
        poptorch.Block.useAutoId()
        for ipu in (0, 1):
            with poptorch.Block(ipu_id=ipu):
                pass

    own = Flight(run, Noting(), [], nullcontext())
    own.forward(0)
    own.close()
    assert names == [("0", 0), ("1", 1)]
