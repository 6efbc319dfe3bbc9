"""Diagnosis of TensorFlow programs by replay (differential, golden)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ipu.run.changes import Changes
from ipu.run.restoring import Restoring
from tests.ipu.frontends.tensorflow.framework import ipu, tf
from tests.ipu.frontends.tensorflow.hospital.programs import ILLNESSES, program_text

from fpsim.tf import machine  # isort: skip
from ipu.frontends.processes.diagnosing import diagnose_program  # isort: skip


def fit(seed):
    """A convolution, a batch norm and a dropout by Keras, as users write it."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    x = np.random.RandomState(seed).randn(24, 6, 6, 1).astype("float32")
    layers = tf.keras.layers
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = tf.keras.Sequential([
            layers.Conv2D(4, 3, activation="relu", input_shape=(6, 6, 1), name="conv"),
            layers.BatchNormalization(name="norm"), layers.Flatten(), layers.Dropout(0.2),
            layers.Dense(3, name="head"),
        ])
        model.compile(
            tf.keras.optimizers.Adam(0.01, epsilon=1e-3),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(x, np.arange(24) % 3, batch_size=8, shuffle=False, verbose=0)


def losses_of(run):
    run.tried(fit, 0)
    return run.report()["losses"]


def test_all_sites_given_back_are_binary32_bit_for_bit():
    """And none given back is the run itself, which differs."""
    low = machine("p=f16,c=f16,part=f16", count=True)
    before = losses_of(low)
    sites = low.sites(low.report())
    wide = replace(low.way, changes=Changes(wide_states=True))
    binary32 = losses_of(machine("fp32", count=True))
    assert losses_of(low.again(low.way, 0)) == before
    assert losses_of(low.again(wide, 0, Restoring(frozenset(sites)))) == binary32
    assert before != binary32
    for site in sites:
        assert not site.layer.startswith("metrics/")


def diagnosed(tmp_path, name, model, steps=2):
    illness = ILLNESSES[name]
    path = tmp_path / "train.py"
    path.write_text(program_text(model, illness, illness.sizes[0]))
    run = machine(illness.policy, count=True)
    return diagnose_program(run, path, [], steps, seconds=300.0)


def test_a_layer_whose_squares_overflow(tmp_path):
    result = diagnosed(tmp_path, "variance of a norm", "mlp")
    assert result.answer == "ill"
    assert {site.layer for site in result.necessary} == {"stage/middle"}
    assert "stage/middle=f32" in str(result.cure.way)
    assert len(result.losses) == len(result.reference) == 2


@pytest.mark.tier("full")
def test_a_constant_of_the_optimiser(tmp_path):
    result = diagnosed(tmp_path, "eps", "mlp")
    assert [str(site) for site in result.necessary] == ["optimizer (update)"]
    assert {str(r.way) for r in result.remedies if r.cures} == {
        "fp16+eps=0.0001", "fp16+states=f32"}


def test_a_step_function_is_diagnosed_too():
    result = machine("fp16").diagnose(fit, steps=2)
    assert (result.answer, len(result.losses)) == ("healthy", 2)
    with machine(), pytest.raises(RuntimeError, match="leave this one first"):
        machine("fp16").diagnose(fit)


@pytest.mark.parametrize(("changes", "expected"), [
    (Changes(eps=1.0), 1.0), (Changes(constants=((2e-3, 1.0),)), 1.0), (Changes(), 2e-3),
])
def test_eps_and_constants_are_changed_from_outside(changes, expected):
    """Adam's first step is rate · s · g / (s · |g| + eps), where s is √(1 - beta2)."""
    gradient, start = np.float32([0.5, -0.25]), np.float32([1.0, 1.0])
    with machine(changes=changes, unconfigured=True):
        w = tf.Variable(start, name="net/w")
        optimiser = tf.keras.optimizers.Adam(0.5, epsilon=2e-3)
        optimiser.build([w])
        program = tf.function(lambda: optimiser.apply_gradients([(tf.constant(gradient), w)]))
        ipu.ipu_strategy.IPUStrategyV1().run(program)
        s = np.sqrt(1e-3)
        step = 0.5 * s * gradient / (s * abs(gradient) + expected)
        np.testing.assert_allclose(w.numpy(), start - step, rtol=1e-4)


def test_wrong_kinds_of_ways_are_refused():
    with pytest.raises(ValueError, match="cache=mxfp8"):
        machine(changes=Changes(cache="mxfp8"))
    with pytest.raises(TypeError, match="no function"):
        machine().diagnose(3)
