"""The first step of a program, layer by layer (golden: counted by hand from shapes)."""

from __future__ import annotations

import pytest

from ipu.plan.search import POPTORCH, PlanSpace, search
from tests.ipu.frontends.torch.framework import machine, torch
from tests.ipu.plan.chains import faster_by_chance

StepMeasured = pytest.importorskip("ipu.frontends.torch.metering").StepMeasured



class Net(torch.nn.Module):
    """Two dense layers with a skip connection over the second."""

    def __init__(self, tied=False):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.second = torch.nn.Linear(8, 8)
        self.act = torch.nn.ReLU()
        self.last = torch.nn.Linear(8, 8, bias=False)
        if tied:
            self.last.weight = self.second.weight

    def forward(self, x):
        x = self.act(self.first(x))
        return self.last(x + self.act(self.second(x)))


def measured(net, steps=1, policy="fp16", passes=1, optimiser=torch.optim.AdamW):
    update = optimiser(net.parameters(), lr=0.1)
    session = machine(policy=policy)
    meter = session.measure()

    def train():
        with session:
            for _ in range(steps):
                update.zero_grad()
                for _ in range(passes):
                    net(torch.ones(4, 6)).square().mean().backward()
                update.step()

    with pytest.raises(StepMeasured):
        train()
    return meter.chain, session


def test_inputs_by_name_are_fed_as_others_are():
    """The chain is that of the same call without names, tensors that backward needs included."""

    class Named(Net):
        def forward(self, *, x):
            return super().forward(x)

    class Plain(Net):
        def forward(self, x):
            return super().forward(x)

    def chain_of(net, *, by_name):
        session = machine(policy="fp16")
        meter, update = session.measure(), torch.optim.AdamW(net.parameters(), lr=0.1)

        def train():
            with session:
                for _ in range(2):
                    x = torch.ones(4, 6)
                    (net(x=x) if by_name else net(x)).square().mean().backward()
                    update.step()

        with pytest.raises(StepMeasured):
            train()
        return meter.chain

    plain, named = chain_of(Plain(), by_name=False), chain_of(Named(), by_name=True)
    assert named.infeed_bytes == plain.infeed_bytes == 4 * 6 * 4
    assert sorted(named.activations) == sorted(plain.activations)
    assert plain.crossing(0) > 0


def test_layers_begin_with_modules_and_hold_their_variables():
    chain, _ = measured(Net())
    assert [layer.name for layer in chain.layers] == ["Net", "second", "last"]
    sizes = [sum(h.values for h in chain.holdings(i, i + 1)) for i in range(3)]
    assert sizes == [(48 + 8) * 2, (64 + 8) * 2, 64 * 2]
    first = chain.holdings(0, 1)[0]
    assert (first.accumulator, first.state, first.itemsize) == (96, (96, 96), 2)
    assert first.name == "first"
    assert chain.shared == ()
    # The host feeds binary32.
    assert (chain.infeed_bytes, chain.outfeed_bytes) == (4 * 6 * 4, 4 * 8 * 2)


def test_a_skip_connection_crosses_both_cuts():
    chain, _ = measured(Net())
    # relu(first), of 4 × 8 elements of two bytes; in `last` the sum is taken alone.
    assert [chain.crossing(cut) for cut in range(4)] == [96, 64, 64, 0]
    # first saves x (which entered) and its relu's result.
    assert chain.stage(0, 1).saved_bytes == 96 + 64
    assert chain.stage(1, 2).saved_bytes == 64 + 64


def test_cycles_are_all_that_the_machine_has_spent():
    chain, session = measured(Net())
    device = session.device
    threads = device.target.tiles.value * device.target.workers.value
    spent = device.ledger.cycles
    cycles = [layer.forward_cycles + layer.backward_cycles for layer in chain.layers]
    assert all(count > 0 for count in cycles)
    vector = -(-device.vector_cycles // threads)
    # Vector work is rounded up: of five calls of modules forward and backward, and of the update.
    assert spent + vector <= sum(cycles) + chain.update_cycles <= spent + vector + 11
    assert chain.update_cycles > 0
    assert all(layer.work_bytes > 0 for layer in chain.layers)


def test_micro_batches_are_the_backward_passes_of_an_update():
    assert measured(Net())[0].count == 1
    chain, _ = measured(Net(), passes=3)
    assert chain.count == 3
    once = measured(Net())[0]
    assert [layer[:4] for layer in chain.layers] == [layer[:4] for layer in once.layers]
    wide = measured(Net(), policy="fp32")[0]
    assert wide.stage(0, 3).parameter_bytes == 2 * chain.stage(0, 3).parameter_bytes


def test_a_variable_of_two_layers_is_one():
    chain, _ = measured(Net(tied=True))
    assert chain.shared == ((1, 2),)
    assert chain.stage(0, 3).parameter_bytes == (48 + 8 + 64 + 8) * 2


def test_what_trains_nothing_is_told():
    session = machine()
    meter = session.measure()
    with session:
        assert "no torch.nn.Module was called" in meter.why_not("a.py")
        loss = Net()(torch.ones(4, 6)).sum()
        assert "no backward pass ran" in meter.why_not("a.py")
        loss.backward()
        loss.add(1)
        assert "no optimiser of torch took a step" in meter.why_not("a.py")
        with pytest.raises(RuntimeError, match="call measure\\(\\) before it begins"):
            session.measure()
    assert meter.chain is None


def test_evaluation_before_training_is_not_measured():
    net = Net()
    session = machine()
    meter = session.measure()
    update = torch.optim.SGD(net.parameters(), 0.1)

    def train():
        with session:
            with torch.no_grad():
                net(torch.ones(32, 6))
            net(torch.ones(2, 6))  # without a backward pass
            net(torch.ones(4, 6)).sum().backward()
            update.step()

    with pytest.raises(StepMeasured):
        train()
    assert meter.chain.infeed_bytes == 4 * 6 * 4
    assert meter.chain.stage(0, 3).state_bytes == 0


@pytest.mark.tier("full")
@pytest.mark.parametrize("net", ["transformer", "residual"])
def test_no_plan_by_chance_is_faster_for_a_real_network(net):
    layers = [torch.nn.TransformerEncoderLayer(6, 2, 16, 0.0, batch_first=True) for _ in range(12)]
    if net == "residual":
        layers = [Net() if i % 2 == 0 else torch.nn.Linear(8, 6) for i in range(8)]
    chain, _ = measured(torch.nn.Sequential(*layers))
    result = search(chain, PlanSpace(4, 32, POPTORCH))
    assert len(chain) >= 8
    assert not list(faster_by_chance(result, 200))
