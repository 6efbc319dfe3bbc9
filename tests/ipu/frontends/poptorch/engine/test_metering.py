"""Figures of stages: bytes that cross and stay, cycles of programs (golden)."""

from __future__ import annotations

import re
import time

import pytest

from tests.ipu.frontends.poptorch.framework import (
    STRATEGIES,
    Net,
    data,
    options,
    poptorch,
    session_of,
    sgd,
    torch,
    train,
)

from ipu.plan.cycles import timeline  # isort: skip
from ipu.plan.memory import OutOfMemoryError, lives  # isort: skip


def figures(name, **settings):
    return train(options(STRATEGIES[name](), **settings), steps=1)[0].profile_figures


@pytest.mark.source("S2-27")
def test_bytes_are_those_of_the_formats():
    """Width 8, batch 3, binary16: x is 48 bytes; the skip goes along from the second stage."""
    by_stage = figures("pipelined")
    assert [f.output_bytes for f in by_stage] == [48, 96, 96, 0]
    assert [f.input_bytes for f in by_stage] == [60, 48, 96, 96]
    weights = [2 * n for n in (6 * 8 + 8, 64 + 8 + 16, 64 + 8, 24 + 3)]
    assert [f.parameter_bytes for f in by_stage] == weights
    assert [f.state_bytes for f in by_stage] == [2 * n for n in weights]  # the velocity in binary32
    assert [f.accumulator_bytes for f in by_stage] == [2 * n for n in weights]
    assert by_stage[-1].outfeed_bytes == 3 * 3 * 2 + 2
    assert all(f.saved_bytes >= f.input_bytes for f in by_stage)


def test_what_the_first_stage_is_fed_with_is_kept_once():
    """A dense layer keeps its input alone: 4 × 50 values of binary32, of 5 micro-batches."""
    network = torch.nn.Linear(50, 2)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = network

        def forward(self, x):
            return poptorch.identity_loss(self.layer(x), "sum")

    settings = poptorch.Options()
    settings.Training.gradientAccumulation(5)
    optimizer = poptorch.optim.SGD(network.parameters(), lr=0.1)
    model = poptorch.trainingModel(Model(), settings, optimizer=optimizer)
    model(x=torch.ones(20, 50))
    (stage,) = model.profile_figures
    assert stage.infeed_bytes == stage.input_bytes == stage.saved_bytes == 4 * 50 * 4


def test_cycles_do_not_depend_on_the_cut():
    one, four = figures("unsplit"), figures("pipelined")
    for name in ("forward_cycles", "backward_cycles", "parameter_bytes", "state_bytes"):
        complete, parts = getattr(one[0], name), sum(getattr(f, name) for f in four)
        # Each stage rounds up the cycles of its vector work.
        assert abs(complete - parts) <= 4, name


@pytest.mark.source("S2-29")
def test_an_offloaded_state_is_in_remote_memory():
    from ipu.plan.memory import lives, peaks, remote_bytes

    def held(away):
        run_options = options(STRATEGIES["pipelined"]())
        if away:
            run_options.TensorLocations.setOptimizerLocation(
                poptorch.TensorLocationSettings().useOnChipStorage(False)
            )
        model, _ = train(run_options, net=Net(64), steps=1)
        rows = lives(model.plan, model.profile_figures)
        remote = remote_bytes(model.plan, model.profile_figures)
        always = sum(peak.bytes for peak in peaks([r for r in rows if r.slot == 0]).values())
        return always, remote.get("state", 0), bits_of(model)

    def bits_of(model):
        return torch.cat([x.flatten() for x in model.model.parameters()])

    here, there = held(False), held(True)
    assert there[1] > 0
    assert here[0] - there[0] == there[1]
    assert torch.equal(here[2], there[2])


def test_an_inference_is_measured_too():
    run_options = poptorch.Options().deviceIterations(4)
    run_options.setExecutionStrategy(STRATEGIES["pipelined"]())
    model = poptorch.inferenceModel(Net(), run_options)
    first = model(data(12, half=False)[0])
    by_stage = model.profile_figures
    assert [f.output_bytes for f in by_stage] == [96, 192, 192, 0]
    assert by_stage[0].backward_cycles == by_stage[0].state_bytes == 0
    assert torch.equal(first, model(data(12, half=False)[0]))


@pytest.mark.source("S2-27")
def test_a_model_that_does_not_fit_is_refused_and_nothing_has_changed(monkeypatch):
    monkeypatch.setattr("ipu.plan.explain.capacity", lambda plan, target: 700)
    net = Net().half()
    before = {name: x.clone() for name, x in net.state_dict().items()}
    run_options = options(STRATEGIES["pipelined"]())
    half = {"accum_type": torch.float16, "velocity_accum_type": torch.float16}
    model = poptorch.trainingModel(net, run_options, sgd(net.parameters(), **half))
    x, labels = data(21)
    with pytest.raises(OutOfMemoryError) as refused:
        model(x, labels)
    text = str(refused.value)
    for words in ("out of memory: the plan needs ", " bytes on IPU 1 (in slot", "stage 1: ",
                  "weights 176 (always)", "b.weight 384", "check_memory=False to run it all"):
        assert words in text
    assert "\n" not in text
    assert all(torch.equal(x, before[name]) for name, x in net.state_dict().items())
    train(options(STRATEGIES["pipelined"]()).checkMemory(False), steps=1)
    with session_of(check_memory=False):
        train(options(STRATEGIES["pipelined"]()), steps=1)


def smallest_room(model, arguments, monkeypatch, least, most):
    """The least bytes of an IPU on which a call of a new model passes, found by halving."""
    while most - least > 1:
        room = (least + most) // 2
        monkeypatch.setattr("ipu.plan.explain.capacity", lambda plan, target, room=room: room)
        try:
            model()(*arguments)
        except OutOfMemoryError:
            least = room
        else:
            most = room
    return most


@pytest.mark.source("S2-27", "S3-01")
def test_temporary_memory_of_forward_and_backward_counts(monkeypatch):
    """A call fits exactly where the largest peak of the account does, which temporaries are in."""
    arguments = data(21)

    def model():
        net = Net(64).half()
        return poptorch.trainingModel(net, options(STRATEGIES["unsplit"]()), sgd(net.parameters()))

    measured = model()
    measured(*arguments)
    rows = lives(measured.plan, measured.profile_figures)
    sizes = {}
    for row in rows:
        sizes[row.slot] = sizes.get(row.slot, 0) + row.bytes
    peak, (stage,) = max(sizes.values()), measured.profile_figures
    assert stage.work_bytes > 0
    assert any(row.kind == "work" for row in rows)
    assert smallest_room(model, arguments, monkeypatch, peak // 2, 2 * peak) == peak


@pytest.mark.tier("full")
@pytest.mark.source("S2-27")
def test_a_layer_of_400_million_numbers_is_no_layer_of_one_ipu():
    """1.6 GB of weights in binary32 on 0.94 GB; nothing of it is computed but one product."""
    layer = torch.nn.Linear(20_000, 20_000, bias=False)
    model = poptorch.inferenceModel(layer)
    with pytest.raises(OutOfMemoryError, match=r"on IPU 0 .*weights 1600000000 \(always\)"):
        model(torch.zeros(1, 20_000))


@pytest.mark.source("S3-24")
def test_a_serving_model_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("ipu.plan.explain.capacity", lambda plan, target: 400)
    run_options = poptorch.Options().setExecutionStrategy(STRATEGIES["unsplit"]())
    model = poptorch.inferenceModel(Net(), run_options)
    x, _ = data(3, half=False)
    with pytest.raises(OutOfMemoryError, match=r"IPU 0 .*b\.weight 256.*use .*more stages"):
        model(x)


@pytest.mark.source("S3-01")
def test_a_small_share_of_memory_gives_more_steps_and_fewer_temporary_bytes_on_that_ipu():
    def own(shares):
        run_options = options(STRATEGIES["pipelined"](), 1, iterations=4, sr=False)
        model = poptorch.inferenceModel(
            Net(64).half(), run_options.setAvailableMemoryProportion(shares)
        )
        return model(data(4 * 1024)[0]), model.profile_figures

    (outputs, usual), (others, small) = own({}), own({"IPU1": 0.0})
    assert torch.equal(outputs, others)
    assert small[1].work_bytes < usual[1].work_bytes
    assert small[1].forward_cycles > usual[1].forward_cycles
    assert small[0] == usual[0]
    assert small[2:] == usual[2:]


class Slow(torch.utils.data.Dataset):
    """Samples that a host needs a while for, in pixels from 0 to 255."""

    def __len__(self):
        return 42

    def __getitem__(self, i):
        time.sleep(1e-3)
        return torch.linspace(0, 255, 6) + i, i % 3


@pytest.mark.source("S3-18", "S4-48")
def test_a_report_tells_what_bounds_the_run_and_inputs_that_are_not_normalised():
    run_options = options(STRATEGIES["unsplit"]()).checkMemory(False)
    net = Net()
    model = poptorch.trainingModel(net, run_options, sgd(net.parameters()))
    for x, labels in poptorch.DataLoader(run_options, Slow(), batch_size=3):
        model(x, labels)
    report = model.report()
    (line,) = [line for line in report["plan"] if line.startswith("an update's data take")]
    assert "the host's processor bounds the run; use more host processes" in line
    assert float(re.search(r"take (\S+) s to make", line)[1]) > 42 * 1e-3 / 2
    assert report["inputs"][0].startswith("input 0 is not normalised: root mean square")
    assert report["inputs"][0] in str(report)
    other = run_options.clone()
    assert other.feeding.elements == 0


@pytest.mark.source("S3-26")
def test_a_report_tells_the_share_of_remote_memory_and_what_the_chip_would_hold():
    def text(on_chip):
        run_options = options(STRATEGIES["pipelined"]())
        run_options.TensorLocations.setOptimizerLocation(
            poptorch.TensorLocationSettings().useOnChipStorage(on_chip)
        )
        return str(train(run_options, net=Net(64), steps=1)[0].report())

    advice = re.search(r"remote memory takes (\d+)% of an IPU's cycles; offload=\(\) needs \d+ "
                       "bytes and fits", text(on_chip=False))
    assert 25 < int(advice[1]) < 100
    assert "remote memory takes" not in text(on_chip=True)


def host(model):
    """Bytes and cycles from and to the host, of the last stage alone."""
    plan, stage_figures = model.plan, model.profile_figures
    last = [p for p in plan.programs if p.phase.value == "forward" and plan.is_last(p)]
    sent = sum(map(plan.sends, last))
    cycles = sum(e.cycles for e in timeline(plan, stage_figures) if e.kind == "outfeed")
    return sent * stage_figures[-1].outfeed_bytes, cycles


@pytest.mark.source("S2-33")
def test_every_output_that_comes_back_is_transferred():
    def own(mode, period=None):
        run_options = options(STRATEGIES["pipelined"](), 8).outputMode(mode, period)
        return host(train(run_options, steps=1)[0])

    modes = poptorch.OutputMode
    bytes_of_all, cycles_of_all = own(modes.All)
    assert bytes_of_all == 8 * (3 * 3 * 2 + 2)
    for (bytes_sent, cycles), share in (
        (own(modes.EveryN, 2), 2), (own(modes.Final), 8), (own(modes.Sum), 8),
        (own(modes.Default), 8),
    ):
        assert bytes_sent * share == bytes_of_all
        assert cycles * share == pytest.approx(cycles_of_all)


@pytest.mark.source("S3-33", "S3-38")
def test_a_sharded_state_on_the_chip_takes_less_and_moves_no_bit():
    def own(shards):
        run_options = options(STRATEGIES["pipelined"](), replicas=2)
        settings = poptorch.TensorLocationSettings().useReplicatedTensorSharding(shards)
        run_options.TensorLocations.setOptimizerLocation(
            settings.minElementsForReplicatedTensorSharding(8)
        )
        model, _ = train(run_options, net=Net(64), steps=1)
        state = sum(
            row.bytes for row in lives(model.plan, model.profile_figures)
            if row.kind == "state" and not row.slot
        )
        return state, torch.cat([x.flatten() for x in model.model.parameters()])

    (complete, weights), (parts, others) = own(False), own(True)
    assert parts < 0.51 * complete
    assert torch.equal(weights, others)


@pytest.mark.source("S3-21", "S3-22")
def test_io_tiles_and_prefetch_reach_the_plan():
    run_options = options(STRATEGIES["unsplit"](), 2)
    run_options.TensorLocations.numIOTiles(64)
    run_options._Popart.set("defaultPrefetchBufferingDepth", 5)
    model, _ = train(run_options, steps=1)
    assert (model.plan.io_tiles, model.plan.prefetch) == (64, 5)
    assert any(p.phase.value == "infeed" for p in model.plan.programs)
    beside = {e.slot for e in timeline(model.plan, model.profile_figures) if e.kind == "infeed"}
    busy = {e.slot for e in timeline(model.plan, model.profile_figures) if e.lane == "compute"}
    assert beside & busy  # the next micro-batch comes while this one is computed
