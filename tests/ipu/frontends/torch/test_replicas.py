"""Replicas of a program: means before a step, equal weights, sentences (golden, differential)."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import numpy as np
import pytest

from tests.ipu.frontends.torch.framework import machine, torch

from fpsim.records.formats import BINARY16, BINARY32  # isort: skip
from ipu.distributed.channel import Channel
from ipu.distributed.local_transport import run_local
from ipu.distributed.transport import StoppedError
from ipu.frontends.torch import replicas as replicas_module
from ipu.frontends.torch.replicas import ALONE, Replicas, _before_use_of_gradients
from ipu.frontends.torch.values import Memory
from ipu.learn.address import Numbering
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.parallel.collectives import reduce_sum

SIZE = 3
GRADIENTS = np.random.default_rng(1).standard_normal((SIZE, 2, 5)).astype(np.float16)


def device():
    return Device(control=FpCtl(), seed=4)


def replica(transport, **choices):
    memory = Memory(device(), is_plain=False)
    return Replicas(Channel(transport), memory, device, **choices), memory


def parameters(rank, dtype=torch.float32):
    """Two parameters with gradients of that replica."""
    rows = []
    for values in GRADIENTS[rank]:
        p = torch.nn.Parameter(torch.zeros(5, dtype=dtype))
        p.grad = torch.from_numpy(values.copy()).to(dtype)
        rows.append(p)
    return rows


def mean(number, fmt=BINARY16, step=0):
    """Of parameter `number` over all replicas, by the sum of `ipu.parallel`."""
    devices = [device() for _ in range(SIZE)]
    tensors = [d.from_host(GRADIENTS[r][number], fmt) for r, d in enumerate(devices)]
    numberings = [Numbering(d, r) for r, d in enumerate(devices)]
    total = reduce_sum(tensors, numberings, number)
    return devices[0].multiply(total, 1 / SIZE).values.tolist()


def in_threads(work):
    """What the work of each replica returns; names of torch are wrapped by no thread."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_before_use_of_gradients", "_refusing_process_groups"):
            patch.setattr(replicas_module, name, lambda *_: nullcontext())
        return run_local(SIZE, work)


@pytest.mark.parametrize(("dtype", "fmt"), [(torch.float16, BINARY16), (torch.float32, BINARY32)])
def test_gradients_become_the_mean_of_all_once_after_a_backward_pass(dtype, fmt):
    def work(transport):
        replicas, memory = replica(transport)
        own = parameters(transport.rank, dtype)
        for p in own:
            memory.mark(p.grad, fmt)
        replicas.average(own, 0)
        first = [p.grad.tolist() for p in own]
        replicas.average(own, 0)
        assert [p.grad.tolist() for p in own] == first
        replicas.changed(in_update=False)
        for p in own:
            p.grad.copy_(torch.full((5,), float(transport.rank)))
        replicas.average(own, 1)
        assert memory.format_of(own[0].grad) == fmt
        return first, own[0].grad.tolist()

    for means, later in in_threads(work):
        assert means == [mean(0, fmt), mean(1, fmt)]
        assert later == [1.0] * 5


def test_means_overflow_on_the_machine_and_raise_its_flags():
    def work(transport):
        replicas, memory = replica(transport)
        p = torch.nn.Parameter(torch.zeros(2, dtype=torch.float16))
        p.grad = torch.full((2,), 60000.0, dtype=torch.float16)
        replicas.average([p], 0)
        return p.grad.tolist(), bool(memory.device.status_word)

    rows = in_threads(work)
    assert [values for values, _ in rows] == [rows[0][0]] * SIZE
    assert rows[0][0][0] < 60000.0
    assert any(raised for _, raised in rows)


@pytest.mark.parametrize("shares", [False, True])
def test_the_status_of_one_is_that_of_all_where_scalers_look_at_it(shares):
    def work(transport):
        replicas, memory = replica(transport, shares_status=shares)
        memory.device.status_word = 1 << transport.rank
        replicas.average(parameters(transport.rank, torch.float16), 0)
        return memory.device.status_word & 7

    assert in_threads(work) == ([7] * SIZE if shares else [1, 2, 4])


def test_the_first_replicas_weights_are_those_of_all():
    def work(transport):
        replicas, _ = replica(transport)
        net = torch.nn.Linear(2, 2, dtype=torch.float64).double()
        with torch.no_grad():
            net.weight.fill_(transport.rank + 1)
            net.bias.fill_(transport.rank)
        with torch.no_grad():
            replicas.enter(net)
            before = net.bias.tolist()
        with torch.enable_grad():
            replicas.enter(net)
        with torch.no_grad():
            after = net.weight.tolist(), net.bias.tolist()
            net.bias.fill_(transport.rank)
        replicas.enter(net)
        return before, after, net.bias.tolist()

    for rank, (before, after, last) in enumerate(in_threads(work)):
        assert before == last == [rank, rank]
        assert after == ([[1, 1], [1, 1]], [0, 0])


def sentence(work):
    """What all replicas say when they stop."""
    said = []

    def heard(transport):
        try:
            work(transport)
        except StoppedError as stop:
            said.append(str(stop))
            raise

    with pytest.raises(StoppedError):
        in_threads(heard)
    assert len(said) == SIZE
    assert len(set(said)) == 1
    return said[0]


def test_other_parameters_in_a_step_are_named():
    def work(transport):
        replicas, _ = replica(transport)
        own = parameters(transport.rank, torch.float16)
        replicas.average(own[: 1 + (transport.rank == 1)], 0)

    assert sentence(work) == (
        "worker 1 has the gradient of parameter 1: binary16 (5,), worker 0 of fewer parameters; "
        "all replicas must run the same program and use the same parameters in each step"
    )


def test_other_weights_are_named_with_both_digests():
    def work(transport):
        replicas, _ = replica(transport)
        net = torch.nn.Linear(2, 2)
        replicas.enter(net)
        replicas.stepped(99)
        with torch.no_grad():
            net.bias[0] = transport.rank
        replicas.stepped(100)

    said = sentence(work)
    assert said.startswith("worker 1 has weights with digest ")
    assert said.endswith("after step 100; they must be equal: change them on all replicas alike")


def test_fewer_batches_on_one_replica_are_named():
    def work(transport):
        replicas, _ = replica(transport)
        with replicas.running(lambda: 1):
            if transport.rank != 2:
                replicas.average(parameters(transport.rank, torch.float16), 1)

    assert sentence(work) == (
        "worker 2 has come to its end and worker 0 has not; give every replica the same number of "
        "batches"
    )


def test_an_error_of_one_program_stops_all():
    stopped = []

    def work(transport):
        replicas, _ = replica(transport)
        with replicas.running(lambda: 0):
            if transport.rank == 1:
                raise KeyError("theirs")
            try:
                replicas.average(parameters(transport.rank, torch.float16), 0)
            except StoppedError as stop:
                stopped.append(str(stop))
                raise

    with pytest.raises(KeyError, match="theirs"):
        in_threads(work)
    assert stopped == ["worker 1 stopped: KeyError 'theirs'"] * 2


def test_what_cannot_be_averaged_is_refused():
    (replicas,) = run_local(1, lambda transport: replica(transport)[0])
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match=r"sparse gradient, .* use sparse=False"):
        replicas.average([embedding.weight], 0)
    with pytest.raises(NotImplementedError, match=r"optimizer.step\(closure\)"):
        replicas.changed(in_update=True)


def test_process_groups_are_refused_with_the_way_to_replicas():
    before = torch.distributed.init_process_group
    with machine(), pytest.raises(RuntimeError, match="fpsim torch --replicas R PROGRAM"):
        torch.distributed.init_process_group("gloo")
    assert torch.distributed.init_process_group is before


class Seen(type(ALONE)):
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
    session.replicas = seen = Seen()
    with session:
        for _ in range(2):
            optimiser.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
            optimiser.step()
    step = ["enter Sequential", "backward False", "average 2 {}", "step {}"]
    assert seen.told == [text.format(t + (i == 3)) for t in range(2) for i, text in enumerate(step)]
    assert torch.equal(net.state_dict()["0.bias"], before["0.bias"] - 1)


def test_clippers_and_scalers_see_averages():
    averaged = []

    def average(parameters):
        averaged.append(len(list(parameters)))
        for p in own:
            p.grad.fill_(2.0)

    own = parameters(0)
    optimiser = torch.optim.SGD(own, lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    before = torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.unscale_
    with _before_use_of_gradients(average):
        assert float(torch.nn.utils.clip_grad_norm_(iter(own), 1e9)) == pytest.approx(40**0.5)
        torch.nn.utils.clip_grad_value_(own[0], 1.0)
        assert own[0].grad.tolist() == [1.0] * 5
        scaler.scale(torch.ones(()))
        scaler.step(optimiser)
    assert averaged == [2, 1, 2]
    assert own[0].tolist() == [-1.0] * 5
    assert before == (torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.unscale_)
