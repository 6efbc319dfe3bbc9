"""Replicas of a program: means before a step, equal weights, sentences (golden, differential)."""

from __future__ import annotations

import io
from contextlib import nullcontext

import numpy as np
import pytest

from tests.ipu.frontends.torch.framework import machine, torch

from fpsim.records.formats import BINARY16, BINARY32  # isort: skip
from ipu.frontends.torch.replicas import several
from ipu.frontends.torch.replicas.several import SeveralReplicas, before_use_of_gradients
from ipu.frontends.torch.values import Memory
from ipu.learn.address import Numbering
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.members.channel import Channel
from ipu.members.local_transport import local_transports, run_local
from ipu.members.members import Members
from ipu.members.transport import JoinError, StoppedError
from ipu.ops.listing import Listing
from ipu.plan.collectives import reduce_sum

SIZE = 3
GRADIENTS = np.random.default_rng(1).standard_normal((SIZE, 2, 5)).astype(np.float16)


def device():
    return Device(control=FpCtl(), seed=4)


def replica(transport, **choices):
    memory = Memory(device(), is_plain=False)
    return SeveralReplicas(Members(Channel(transport)), memory, **choices), memory


def parameters(rank, dtype=torch.float32):
    """Two parameters with gradients of that replica."""
    rows = []
    for values in GRADIENTS[rank]:
        p = torch.nn.Parameter(torch.zeros(5, dtype=dtype))
        p.grad = torch.from_numpy(values.copy()).to(dtype)
        rows.append(p)
    return rows


def mean(number, fmt=BINARY16, step=0):
    """Of parameter `number` over all replicas, by the sum of `ipu.plan`."""
    devices = [device() for _ in range(SIZE)]
    tensors = [d.from_host(GRADIENTS[r][number], fmt) for r, d in enumerate(devices)]
    numberings = [Numbering(d, r) for r, d in enumerate(devices)]
    total = reduce_sum(tensors, numberings, number)
    return devices[0].multiply(total, 1 / SIZE).values.tolist()


def in_threads(work):
    """What the work of each replica returns; names of torch are wrapped by no thread."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("before_use_of_gradients", "refusing_process_groups"):
            patch.setattr(several, name, lambda *_: nullcontext())
        return run_local(SIZE, work)


@pytest.mark.parametrize(("dtype", "fmt"), [(torch.float16, BINARY16), (torch.float32, BINARY32)])
def test_gradients_become_the_mean_of_all_once_after_a_backward_pass(dtype, fmt):
    def work(transport):
        replicas, memory = replica(transport)
        variables = parameters(transport.rank, dtype)
        for p in variables:
            memory.mark(p.grad, fmt)
        replicas.average(variables, 0)
        first = [p.grad.tolist() for p in variables]
        replicas.average(variables, 0)
        assert [p.grad.tolist() for p in variables] == first
        replicas.changed(in_update=False)
        for p in variables:
            p.grad.copy_(torch.full((5,), float(transport.rank)))
        replicas.average(variables, 1)
        assert memory.format_of(variables[0].grad) == fmt
        return first, variables[0].grad.tolist()

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
    messages = []

    def heard(transport):
        try:
            work(transport)
        except StoppedError as stop:
            messages.append(str(stop))
            raise

    with pytest.raises(StoppedError):
        in_threads(heard)
    assert len(messages) == SIZE
    assert len(set(messages)) == 1
    return messages[0]


def test_other_parameters_in_a_step_are_named():
    def work(transport):
        replicas, _ = replica(transport)
        variables = parameters(transport.rank, torch.float16)
        replicas.average(variables[: 1 + (transport.rank == 1)], 0)

    assert sentence(work) == (
        "worker 1 has the gradient of parameter 1: binary16 (5,), worker 0 nothing more, in step "
        "0; run the same program on all processes, with the same parameters in each step"
    )


def test_other_programs_are_named_before_anything_is_added():
    def work(transport):
        replicas, _ = replica(transport)
        replicas.members.program.add("1 forward", ["relu", "tanh"][transport.rank % 2], ["(2,)"])
        variables = parameters(transport.rank, torch.float16)
        with pytest.raises(JoinError) as error:
            replicas.average(variables, 0)
        assert [p.grad.tolist() for p in variables] == GRADIENTS[transport.rank].tolist()
        return str(error.value)

    errors = in_threads(work)
    assert errors[1] == (
        "worker 1 has 1 forward: tanh of (2,), worker 0 has 1 forward: relu of (2,); start all "
        "workers alike"
    )


def test_a_session_lists_modules_and_backward_passes_alone():
    session = machine("f16")
    session.listing = listing = Listing()
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ELU(0.5))
    with session:
        data = torch.ones(4, 2) / 3.0
        with torch.no_grad():
            net(data)
        (net(data).sum() * 1.5).backward()
    places = [line.partition(":")[0] for line in listing.lines]
    assert dict.fromkeys(places[:2]) == dict.fromkeys(["0 forward"])
    assert "1 forward: elu of float32 (4, 3), alpha=0.5" in listing.lines
    assert any(place.endswith("backward") for place in places)
    assert not any(place.endswith("evaluation") or place.startswith("div") for place in places)
    assert not any("1.5" in line for line in listing.lines)


def test_other_weights_are_named_with_both_digests():
    def work(transport):
        replicas, _ = replica(transport)
        net = torch.nn.Linear(2, 2)
        replicas.enter(net)
        replicas.stepped(99)
        with torch.no_grad():
            net.bias[0] = transport.rank
        replicas.stepped(100)

    message = sentence(work)
    assert message.startswith("worker 1 has weights with digest ")
    assert message.endswith("after step 100; they must be equal: change them on all processes "
                            "alike")


def test_fewer_batches_on_one_replica_are_named():
    def work(transport):
        replicas, _ = replica(transport)
        with replicas.running(lambda: 1):
            if transport.rank != 2:
                replicas.average(parameters(transport.rank, torch.float16), 1)

    assert sentence(work) == (
        "worker 2 has come to its end, worker 0 to the gradients in step 1; run the same program "
        "on all processes, with the same number of batches"
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
    assert stopped == ["worker 1 stopped: KeyError: 'theirs'"] * 2


@pytest.mark.parametrize("saves", [True, False])
def test_a_replica_that_is_lost_is_told_with_step_and_checkpoint(saves):
    first, second = local_transports(2)
    second.close()
    replicas, before = replica(first)[0], torch.save

    def program():
        with replicas.running(lambda: 5):
            if saves:
                torch.save({"w": torch.ones(2)}, io.BytesIO())
            replicas.average(parameters(0), 5)

    with pytest.raises(StoppedError) as stop:
        program()
    expected = "worker 1 is gone (step 5); " + (
        "the last checkpoint is step 5" if saves else "there is no checkpoint"
    )
    assert str(stop.value) == expected
    assert torch.save is before


def test_what_cannot_be_averaged_is_refused():
    (replicas,) = run_local(1, lambda transport: replica(transport)[0])
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match=r"sparse gradient, .* use sparse=False"):
        replicas.average([embedding.weight], 0)
    with pytest.raises(NotImplementedError, match=r"optimizer.step\(closure\)"):
        replicas.changed(in_update=True)


def test_clippers_and_scalers_see_averages():
    averaged = []

    def average(parameters):
        averaged.append(len(list(parameters)))
        for p in variables:
            p.grad.fill_(2.0)

    variables = [torch.nn.Parameter(torch.zeros(5)) for _ in range(2)]
    for p in variables:
        p.grad = torch.zeros(5)
    optimiser = torch.optim.SGD(variables, lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    before = torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.unscale_
    with before_use_of_gradients(average):
        assert float(torch.nn.utils.clip_grad_norm_(iter(variables), 1e9)) == pytest.approx(40**0.5)
        torch.nn.utils.clip_grad_value_(variables[0], 1.0)
        assert variables[0].grad.tolist() == [1.0] * 5
        scaler.scale(torch.ones(()))
        scaler.step(optimiser)
    assert averaged == [2, 1, 2]
    assert variables[0].tolist() == [-1.0] * 5
    assert before == (torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.unscale_)
