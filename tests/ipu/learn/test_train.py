"""The training step: differential against a network written in numpy, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, BINARY64, FloatingPointTrap
from ipu import ops
from ipu.learn import nn
from ipu.learn.accumulate import Accumulation
from ipu.learn.address import Region
from ipu.learn.checkpoint import load, save
from ipu.learn.loss_scale import (
    LEARNING_RATE,
    AutomaticLossScale,
    DynamicLossScale,
    KerasLossScale,
    StaticLossScale,
)
from ipu.learn.mode import training
from ipu.learn.nn import batch_norm, dense
from ipu.learn.optim import SGD, Adam, RMSProp
from ipu.learn.policy import FP16, FP32, FP64, MIXED, Policy
from ipu.learn.train import Trainer
from ipu.machine import FpCtl
from tests.ipu.learn import small
from tests.ipu.learn.small import LABELS, X, codes, trained, trainer
from tests.ipu.learn.twin import Twin
from tests.threads import on_threads


@pytest.mark.source("S4-18")
def test_formats_of_parameters_and_gradients_follow_the_policy():
    for policy, param in ((FP32, BINARY32), (FP16, BINARY16), (MIXED, BINARY32)):
        run = trainer(policy=policy)
        loss = run.loss(X, LABELS)
        pairs = run.scaled_gradients(loss)
        assert loss.dtype == BINARY32
        assert {v.dtype for v in run.variables.values()} == {param}
        assert {g.format for g, _ in pairs} == {param}


@pytest.mark.source("S4-16")
def test_half_parameters_take_half_the_bytes():
    size = {}
    for policy in (FP16, MIXED):
        run, _ = trained(1, policy=policy)
        size[policy] = sum(v.array.storage_bytes for v in run.variables.values())
    assert size[MIXED] == 2 * size[FP16]


@pytest.mark.parametrize("policy", [FP32, FP16, MIXED], ids=str)
def test_training_learns(policy):
    _, losses = trained(100, policy=policy)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_single_training_is_numpy_s_bit_for_bit(momentum):
    """Network, loss, gradients and updates in numpy's float32, where the order is the same."""
    run = trainer(optimizer=SGD(0.5, momentum), f32_denormals="ieee")
    run.forward(X)
    twin = Twin({n: v.array.to_numpy() for n, v in run.variables.items()}, 0.5, momentum)
    for _ in range(4):
        assert np.float32(run.step(X, LABELS)) == twin.step(X.astype(np.float32), LABELS)
        for name, variable in run.variables.items():
            assert (variable.array.to_numpy() == twin.variables[name]).all(), name


def test_threads_do_not_show():
    def bits():
        run, _ = trained(3, policy=FP16, control=FpCtl(esr=True), optimizer=Adam(0.01,
                          epsilon=1e-4), accumulation=Accumulation(2, "mean"))
        return codes(run)

    assert on_threads(1, bits) == on_threads(2, bits)


@pytest.mark.parametrize("esr", [False, True])
def test_equal_seeds_give_equal_bits_and_only_stochastic_rounding_draws(esr):
    results = [
        trained(policy=FP16, control=FpCtl(esr=esr), seed=3, count=c)[0] for c in (False, True)
    ]
    assert codes(results[0]) == codes(results[1])
    assert results[0].slots.keys() == results[1].slots.keys()
    assert (results[0].worker.numbering.position(Region.BATCH, 0) > 0) == esr


def test_exceptions_are_counted_by_layer_and_phase():
    run, _ = trained(2, policy=FP16, count=True, loss_scale=StaticLossScale(2.0**24))
    assert run.device.counts.total("OVERFLOW", "all_vars/output/gradient") > 0
    assert run.device.counts.total("OVERFLOW", "all_vars/hidden") == 0
    assert run.device.status.oflo


def test_a_trap_in_the_backward_pass_changes_no_variable():
    run = trainer(policy=FP16, loss_scale=StaticLossScale(2.0**24), control=FpCtl(oflo=True))
    run.forward(X)
    before = codes(run)
    with pytest.raises(FloatingPointTrap, match=r"in (all_vars/output/gradient|loss)"):
        run.step(X, LABELS)
    assert codes(run) == before
    assert run.slots == {}


def test_a_first_step_that_fails_leaves_the_model_to_be_built():
    run = trainer(policy=FP16, control=FpCtl(oflo=True))
    with pytest.raises(FloatingPointTrap, match="in all_vars/hidden"):
        run.step(np.full_like(X, 60000.0), LABELS)
    assert not run.variables
    run.step(X, LABELS)
    assert codes(run) == codes(trained(1, policy=FP16)[0])


def normed(x):
    return dense(batch_norm(x, "norm"), 3, "output")


def memory(training):
    """Bits of all that a step changes."""
    slots = {name: [s.codes().tolist() for s in arrays] for name, arrays in training.slots.items()}
    return codes(training), slots, training.loss_scale, training.applied


@pytest.mark.filterwarnings("ignore:learning rate")
def test_a_trap_while_slots_are_rescaled_changes_nothing():
    scale = AutomaticLossScale(16384.0, LEARNING_RATE, bin_edge=1.0)
    run = Trainer(
        lambda x: dense(x, 2, "only"), SGD(0.05, 0.9), policy=FP16, control=FpCtl(oflo=True),
        loss_scale=scale,
    )
    x, labels = np.ones((2, 4)), np.zeros(2, int)
    run.step(x, labels)
    before = memory(run)
    with pytest.raises(FloatingPointTrap, match="multiply raised OVERFLOW"):
        run.step(x, labels)
    assert memory(run) == before


def test_an_observer_that_raises_changes_nothing():
    def observe(update):
        if update.variable.name.endswith("output/biases"):
            raise RuntimeError("stop")

    run = Trainer(normed, SGD(0.05, 0.9), observe=observe)
    run.forward(X)
    before = memory(run)
    with pytest.raises(RuntimeError, match="stop"):
        run.step(X, LABELS)
    assert memory(run) == before


@pytest.mark.parametrize("count", [1, 2])
def test_batches_are_not_empty_and_have_a_label_each(count):
    run = trainer(accumulation=Accumulation(count) if count > 1 else None)
    with pytest.raises(
        ValueError, match=r"batch of (shape .0, 8. holds no samples|0 does not make)"
    ):
        run.step(X[:0], LABELS[:0])
    with pytest.raises(ValueError, match=r"24 samples and 25 labels|of shape .25,.; give"):
        run.step(X, np.append(LABELS, 0))


@pytest.mark.parametrize(
    ("optimizer", "loss_scale"),
    [(Adam(0.01, epsilon=1e-4), KerasLossScale(64.0, frequency=2)),
     (SGD(0.05, 0.9, BINARY32), DynamicLossScale(2.0**14, LEARNING_RATE, interval=2)),
     (RMSProp(0.01, epsilon=1e-4), AutomaticLossScale(64.0, period=2))],
    ids=lambda kind: type(kind).__name__,
)
def test_a_state_goes_on_with_the_same_bits(optimizer, loss_scale):
    def training():
        return trainer(
            optimizer=optimizer, loss_scale=loss_scale, policy=FP16, seed=3,
            control=FpCtl(esr=True, nanoo=True), accumulation=Accumulation(2, "mean"),
        )

    complete, first, second = training(), training(), training()
    for step in range(5):
        complete.step(X, LABELS)
        if step < 3:
            first.step(X, LABELS)
    second.forward(X)
    second.restore(first.state())
    for _ in range(2):
        second.step(X, LABELS)
    assert codes(complete) == codes(second)
    assert complete.loss_scale == second.loss_scale


def test_an_unknown_argument_is_refused_in_the_name_of_the_trainer():
    with pytest.raises(TypeError, match=r"Trainer.*'prest'"):
        trainer(prest="exact")


def images(x):
    h = nn.conv(ops.reshape(x, shape=(len(x.array), 4, 2, 1)), 3, 2, "conv", use_bias=False)
    h = nn.max_pool(nn.relu(batch_norm(h, "norm")), 2)
    return dense(nn.gelu(nn.layer_norm(nn.flatten(h), "layer")), 3, "output")


@pytest.mark.parametrize("optimizer", [SGD(0.05, 0.9), Adam(0.01), RMSProp(0.01)])
@pytest.mark.parametrize("network", [images, None])
def test_binary64_is_a_reference_that_single_training_stays_near(optimizer, network):
    def run(policy, **options):
        trainer = Trainer(network or small.network, optimizer, policy=policy, **options)
        losses = [trainer.step(X, LABELS) for _ in range(5)]
        return trainer, losses

    single, losses = run(FP32)
    double, wanted = run(FP64, target="reference", control=FpCtl(True, True, True, esr=True))
    assert {v.dtype for v in double.variables.values()} == {BINARY64}
    assert {s.format for slots in double.slots.values() for s in slots} == {BINARY64}
    assert double.worker.numbering.position(Region.BATCH, 0) == 0
    assert losses == pytest.approx(wanted, rel=1e-5)
    assert losses != wanted
    for name, variable in single.variables.items():
        reference = double.variables[name].array.values
        np.testing.assert_allclose(variable.array.values, reference, rtol=1e-3, atol=1e-5)


def test_gradients_in_binary64_are_differences_of_losses():
    """Central differences of a step of 1e-5 agree to nine digits, far beyond binary32."""
    trainer = Trainer(images, SGD(0.1), policy=FP64, target="reference")
    with training():
        pairs = trainer.scaled_gradients(trainer.loss(X, LABELS))

        def loss_at(variable, index, value):
            values = variable.array.values.copy()
            values[index] = value
            before, variable.array = variable.array, variable.device.from_host(values, BINARY64)
            result = float(trainer.loss(X, LABELS).array)
            variable.array = before
            return result

        for gradient, variable in pairs:
            index = (0,) * len(variable.shape)
            at = variable.array.values[index]
            rise = loss_at(variable, index, at + 1e-5) - loss_at(variable, index, at - 1e-5)
            assert rise / 2e-5 == pytest.approx(gradient.values[index], rel=1e-5, abs=1e-9)


def test_binary64_goes_with_its_own_partials_and_target():
    assert str(FP64) == "p=f64,c=f64,part=f64"
    assert Policy.parse("p=f64,c=f64") == FP64
    with pytest.raises(ValueError, match="binary64 partials alone"):
        Policy.parse("p=f64,c=f64,part=f32")
    with pytest.raises(ValueError, match="reference has binary64"):
        trainer(policy=FP64).forward(X)


def test_a_reference_goes_on_from_its_state(tmp_path):
    def build():
        return Trainer(images, Adam(0.01), policy=FP64, target="reference")

    first, second = build(), build()
    first.step(X, LABELS)
    second.forward(X)
    save(tmp_path / "c", first.state())
    second.restore(load(tmp_path / "c"))
    assert first.step(X, LABELS) == second.step(X, LABELS)
    assert codes(first) == codes(second)
