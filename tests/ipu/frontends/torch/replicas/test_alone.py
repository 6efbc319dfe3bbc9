"""One replica: what a session tells it, and what is refused in any session (golden)."""

from __future__ import annotations

import copy

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

from ipu.frontends.torch.replicas.alone import Alone  # isort: skip


def test_process_groups_are_refused_with_the_way_to_replicas():
    before = torch.distributed.init_process_group
    with machine(), pytest.raises(RuntimeError, match="fpsim torch --replicas R PROGRAM"):
        torch.distributed.init_process_group("gloo")
    assert torch.distributed.init_process_group is before


class Seen(Alone):
    """Notes what a session tells its replicas, and makes all gradients 1."""

    def __init__(self):
        self.told = []

    def enter(self, module):
        self.told.append(f"enter {type(module).__name__}")

    def changed(self, *, in_update):
        self.told.append(f"backward {in_update}")

    def average(self, parameters, step):
        self.told.append(f"average {len(parameters)} {step}")
        for p in parameters:
            p.grad.fill_(1.0)

    def stepped(self, step):
        self.told.append(f"step {step}")


def test_a_session_tells_its_replicas_what_happens():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    before = copy.deepcopy(net.state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    session = machine()
    session.replicas = told = Seen()
    with session:
        for _ in range(2):
            optimiser.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
            optimiser.step()
    step = ["enter Sequential", "backward False", "average 2 {}", "step {}"]
    assert told.told == [text.format(t + (i == 3)) for t in range(2) for i, text in enumerate(step)]
    assert torch.equal(net.state_dict()["0.bias"], before["0.bias"] - 0.5 - 0.5)
