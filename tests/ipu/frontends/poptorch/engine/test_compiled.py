"""Compiled models: no plan moves a bit; replicas, accumulators and errors (law, differential)."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest

from fpsim.records.flags import FloatingPointTrap
from tests.ipu.frontends.poptorch.framework import (
    STRATEGIES,
    Net,
    bits,
    data,
    options,
    poptorch,
    same,
    session_of,
    sgd,
    staged,
    torch,
    train,
)


@pytest.mark.source("S2-01", "S2-14", "S2-18")
@pytest.mark.parametrize("replicas", [1, 2])
def test_no_cut_and_no_schedule_moves_a_bit(replicas):
    """FP16, stochastic rounding, dropout, momentum, a float16 accumulator, a skip, a norm."""
    half = {"accum_type": torch.float16, "velocity_accum_type": torch.float16}
    results = {}
    for name, strategy in STRATEGIES.items():
        run_options = options(strategy(), replicas=replicas).autoRoundNumIPUs()
        model, losses = train(run_options, **half)
        results[name] = bits(model), losses
    expected, losses = results.pop("pipelined")
    for name, (single, others) in results.items():
        assert torch.equal(losses, others), name
        assert same(expected, single), name


def test_the_bits_depend_on_the_seed_and_on_stochastic_rounding():
    def own(seed, sr=True):
        return bits(train(options(STRATEGIES["unsplit"](), sr=sr).randomSeed(seed))[0])

    assert same(own(1), own(1))
    assert not same(own(1), own(2))
    assert not same(own(1), own(1, sr=False))


@pytest.mark.source("S2-07", "X-06")
@pytest.mark.source("S2-24")
def test_binary32_follows_torch():
    """Mean over G micro-batches of 3 samples is the mean over the batch; the norm is left out."""
    net, twin = Net(), Net()
    for network in (net, twin):
        network.norm, network.drop = torch.nn.Identity(), torch.nn.Identity()
    run_options = options(STRATEGIES["pipelined"](), sr=False)
    model, _ = train(run_options, net=net, half=False, steps=3)
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    for step in range(3):
        x, labels = data(21, False, step)
        optimiser.zero_grad()
        twin(x, labels)[1].backward()
        optimiser.step()
    for name, x in twin.state_dict().items():
        assert torch.allclose(bits(model)[name], x, rtol=0, atol=2e-6), name


def test_a_sum_over_micro_batches_is_the_mean_times_their_number():
    def after(kind, rate):
        run_options = options(STRATEGIES["unsplit"](), 4, sr=False)
        run_options.Training.accumulationAndReplicationReductionType(kind)
        return bits(train(run_options, half=False, steps=1, lr=rate, momentum=0)[0])

    mean = after(poptorch.ReductionType.Mean, 0.04)
    total = after(poptorch.ReductionType.Sum, 0.01)
    for name, x in mean.items():
        assert torch.allclose(x, total[name], atol=1e-6), name


@pytest.mark.source("S2-06")
def test_iterations_on_the_device_are_the_calls_of_one():
    """A call of three iterations updates three times; a call of one iteration, three times too."""
    x, labels = data(3 * 6, half=False)
    results = []
    for iterations in (3, 1):
        net = Net()
        net.norm, net.drop = torch.nn.Identity(), torch.nn.Identity()
        run_options = options(STRATEGIES["unsplit"](), 2, iterations=iterations, sr=False)
        model, _ = train(run_options, net=net, half=False, steps=0)
        rows = 6 * iterations
        losses = [
            model(x[at : at + rows], labels[at : at + rows])[1] for at in range(0, 18, rows)
        ]
        results.append((torch.cat([loss.flatten() for loss in losses]), bits(model)))
    (one, weights), (several, others) = results
    assert one.shape == (3 * 2,)
    assert torch.equal(one, several)
    assert same(weights, others)
    assert len(set(one.tolist())) == 6


@pytest.mark.source("S3-16")
def test_replicas_train_as_one_of_a_larger_batch():
    """In binary32 without a norm: R replicas with G micro-batches are one with R · G."""

    def own(replicas, count):
        net = Net()
        net.norm, net.drop = torch.nn.Identity(), torch.nn.Identity()
        run_options = options(STRATEGIES["unsplit"](), count, replicas=replicas, sr=False)
        return bits(train(run_options, net=net, half=False)[0])

    one = own(1, 8)
    for name, x in own(4, 2).items():
        assert torch.allclose(x, one[name], atol=1e-6), name


def test_moving_statistics_are_each_replicas_own():
    model, _ = train(options(STRATEGIES["unsplit"](), 2, replicas=2))
    first, second = model._executor.models
    assert torch.equal(first.a.weight, second.a.weight)
    assert first.a.weight is second.a.weight
    assert not torch.equal(first.norm.running_mean, second.norm.running_mean)


def test_float16_accumulators_keep_a_running_mean_unless_told_otherwise():
    def own(**choice):
        run_options = options(STRATEGIES["unsplit"](), sr=False)
        for strategy in choice.values():
            run_options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
        return bits(train(run_options, accum_type=torch.float16)[0])

    default = own()
    assert same(default, own(strategy=poptorch.MeanReductionStrategy.Running))
    assert not same(default, own(strategy=poptorch.MeanReductionStrategy.Post))


class Shared(torch.nn.Module):
    """One layer in two blocks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x, labels):
        with poptorch.Block("B1"):
            x = torch.relu(self.layer(x))
        with poptorch.Block("B2"):
            x = torch.relu(self.layer(x))
        with poptorch.Block("B3"):
            x = self.last(x)
            return x, torch.nn.functional.cross_entropy(x, labels)


def test_a_layer_of_two_stages_has_one_gradient():
    def own(strategy):
        return bits(train(options(strategy), net=Shared(), accum_type=torch.float16)[0])

    one = own(staged("B1 B2 B3"))
    stages = (poptorch.Stage(f"B{i + 1}").ipu(ipu) for i, ipu in enumerate((0, 1, 0)))
    assert same(one, own(poptorch.ShardedExecution(*stages)))


class Over(torch.nn.Module):
    """A tensor of the first stage that the second does not take."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.over, self.last = (torch.nn.Linear(6, n) for n in (6, 6, 3))

    def forward(self, x, labels):
        with poptorch.Block("B1"):
            over, x = torch.tanh(self.over(x)), torch.relu(self.layer(x))
        with poptorch.Block("B2"):
            x = torch.relu(x * 2)
        with poptorch.Block("B3"):
            x = self.last(x + over)
            return x, torch.nn.functional.cross_entropy(x, labels)


class Often(Over):
    """A tensor of the first stage that the second takes twice and the third once."""

    def forward(self, x, labels):
        with poptorch.Block("B1"):
            over, x = torch.tanh(self.over(x)), torch.relu(self.layer(x))
        with poptorch.Block("B2"):
            x = torch.relu(x * 1.7 + over * 0.3) - torch.sigmoid(over) * x
        with poptorch.Block("B3"):
            x = self.last(x + torch.tanh(over))
            return x, torch.nn.functional.cross_entropy(x, labels)


class Written(Over):
    """A tensor of the first stage that the second writes and the third takes."""

    def forward(self, x, labels):
        with poptorch.Block("B1"):
            over, x = self.over(x) * 1.0, torch.relu(self.layer(x))
        with poptorch.Block("B2"):
            over.mul_(3.0)
            x = torch.relu(x + over)
        with poptorch.Block("B3"):
            x = self.last(x + over)
            return x, torch.nn.functional.cross_entropy(x, labels)


@pytest.mark.parametrize("kind", [Over, Often, Written])
def test_a_tensor_of_several_stages_has_the_gradient_of_the_uncut_model(kind):
    """Summands are added latest first, also where some of them come from a later stage."""
    one, three = (
        bits(train(options(staged(*groups)).autoRoundNumIPUs(), net=kind())[0])
        for groups in (("B1 B2 B3",), ("B1", "B2", "B3"))
    )
    assert same(one, three)
    torch.manual_seed(0)
    assert not torch.equal(three["over.bias"], Over().half().over.bias)


class Doubled(torch.autograd.Function):
    """A function of the user's own, which no mode of torch sees."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Custom(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x, labels):
        with poptorch.Block("B1"):
            x = self.layer(x)
        with poptorch.Block("B2"):
            x = self.last(Doubled.apply(x))
            return x, torch.nn.functional.cross_entropy(x, labels)


def test_functions_of_the_users_own_are_cut_too():
    one, two = (bits(train(options(staged(*groups)), net=Custom())[0])
                for groups in (("B1 B2",), ("B1", "B2")))
    assert same(one, two)


class Checkpointed(Custom):
    """Each block is recomputed in its backward pass, as users call it."""

    def forward(self, x, labels):
        again = torch.utils.checkpoint.checkpoint
        with poptorch.Block("B1"):
            x = again(lambda x: torch.relu(self.layer(x)), x, use_reentrant=False)
        with poptorch.Block("B2"):
            x = again(lambda x: self.last(torch.dropout(x, 0.5, True)), x, use_reentrant=False)
            return x, torch.nn.functional.cross_entropy(x, labels)


def test_checkpointed_blocks_have_the_same_bits():
    one, two = (bits(train(options(staged(*groups)), net=Checkpointed())[0])
                for groups in (("B1 B2",), ("B1", "B2")))
    assert same(one, two)


def test_a_trap_names_the_program_and_leaves_the_model_as_it_was():
    run_options = options(STRATEGIES["pipelined"]())
    run_options.Precision.enableFloatingPointExceptions(True)
    model, _ = train(run_options, steps=1)
    before = bits(model)
    x, labels = data(21)
    x[13] = 60000.0  # the fifth micro-batch
    with pytest.raises(FloatingPointTrap, match="micro-batch 4, slot 5") as caught:
        model(x, labels)
    assert "replica 0, IPU 1, stage 1, micro" in str(caught.value)
    assert same(before, bits(model))
    model(*data(21))
    assert not same(before, bits(model))


def test_an_inference_moves_no_bits_of_a_training():
    def own(look):
        model, _ = train(options(STRATEGIES["unsplit"]()), steps=1)
        if look:
            run_options = poptorch.Options().setExecutionStrategy(STRATEGIES["unsplit"]())
            poptorch.inferenceModel(model.model, run_options)(data(3)[0])
        model(*data(21, seed=5))
        return bits(model)

    assert same(own(False), own(True))


@pytest.mark.source("S2-02")
@pytest.mark.parametrize("replicas", [1, 2])
def test_marks_come_to_every_program_of_the_plan(monkeypatch, replicas):
    """Micro-batch after micro-batch, each forward through all stages and backward through all."""
    from ipu.plan.loop import MicroBatchLoop

    marks, mark = [], MicroBatchLoop.mark

    def noted(loop, phase, stage, branch=0):
        mark(loop, phase, stage, branch)
        marks.append((loop._device.program, phase.value, stage))

    monkeypatch.setattr(MicroBatchLoop, "mark", noted)
    model, _ = train(options(STRATEGIES["pipelined"](), replicas=replicas), steps=1)
    assert model.plan.slots == 13
    wanted = []
    for m in range(7):
        for replica in range(replicas):
            programs = [p for p in model.plan.programs if p.micro_batch == m]
            wanted += [
                (f"replica {replica}, IPU {p.ipu}, stage {p.stage}, micro-batch {m}, slot {p.slot}",
                 p.phase.value, p.stage)
                for p in programs if p.phase.value in ("forward", "backward")
            ]
    # The gradients of a stage are accumulated under its own mark again.
    entered = [row for row, before in zip(marks, [None, *marks], strict=False) if row != before]
    once = [row for i, row in enumerate(entered) if row not in entered[:i]]
    assert once == wanted


class Loud(torch.nn.Module):
    """Overflows in the backward pass of the first stage, or in the forward pass."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x, labels):
        with poptorch.Block("B1"):
            x = self.layer(x) * 64.0 / 64.0 / 64.0 * 64.0
        with poptorch.Block("B2"):
            x = self.last(x)
            return x, torch.nn.functional.cross_entropy(x, labels)


def test_of_two_traps_that_of_the_first_program_is_raised():
    """Micro-batch 0 traps in its backward pass, micro-batch 1 forward: earlier in a pipeline."""

    def trap(strategy, count):
        run_options = options(strategy, count)
        run_options.Precision.enableFloatingPointExceptions(True)
        net = Loud().half()
        optimizer = sgd(net.parameters(), loss_scaling=2.0**14)
        model = poptorch.trainingModel(net, run_options, optimizer)
        x, labels = data(count)
        x[1:] *= 8000.0
        with pytest.raises(FloatingPointTrap) as caught:
            model(x, labels)
        return str(caught.value).rpartition("\n")[2]

    pipelined = trap(staged("B1", "B2"), 3)
    assert pipelined == "in Loud|forward, replica 0, IPU 0, stage 0, micro-batch 1, slot 1"
    sharded = trap(poptorch.ShardedExecution("B1", "B2"), 3)
    assert sharded == "in Loud|backward, replica 0, IPU 0, stage 0, micro-batch 0, slot 3"


def test_models_compute_in_the_thread_that_calls_them():
    threads = set()

    class Noting(Net):
        def forward(self, x, labels=None):
            threads.add(threading.get_ident())
            return super().forward(x, labels)

    train(options(STRATEGIES["pipelined"]()), net=Noting(), steps=1)
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("outside", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_what_the_program_does_around_a_call_moves_no_bit(outside):
    def own(block):
        net, samples = Net(), data(21, half=False)
        training = options(STRATEGIES["pipelined"](), sr=False)
        run_options = poptorch.Options().setExecutionStrategy(STRATEGIES["unsplit"]())
        with session_of(policy="p=f16,c=f16", sr=True):
            model = poptorch.trainingModel(net, training, sgd(net.parameters()))
            serving = poptorch.inferenceModel(net, run_options)
            with block():
                model(*samples)
                return bits(model), serving(samples[0][:3])

    (weights, outputs), (same_weights, same_outputs) = own(nullcontext), own(outside)
    assert same(weights, same_weights)
    assert torch.equal(outputs, same_outputs)


def test_the_loss_must_depend_on_a_parameter():
    net = Net()
    run_options = options(STRATEGIES["unsplit"](), 1)
    model = poptorch.trainingModel(net, run_options, sgd(net.parameters()))
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(RuntimeError, match="depends on no parameter"):
        model(*data(3, half=False))
