"""Diagnosis of TensorFlow programs by replay (differential, golden)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ipu.learn.policy import FP32
from ipu.run.causes.finding import find_causes
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


@pytest.mark.parametrize(("rate", "answer"), [(1e-4, "ill"), (0.125, "healthy")])
def test_a_program_of_halves_is_judged_beside_binary64(rate, answer):
    """Its run in binary32 has the same halves, so it shows no harm that they do."""

    def program(seed):
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        rng = np.random.RandomState(seed)
        w = tf.Variable(tf.cast(rng.randn(8, 4), tf.half), name="net/w")

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x @ w - y))
            (slope,) = tape.gradient(loss, [w])
            w.assign_sub(tf.constant(rate, tf.half) * slope)
            return loss

        for _ in range(6):
            x = rng.randn(16, 8).astype(np.float16)
            ipu.ipu_strategy.IPUStrategy().run(step, args=(x, x[:, :4]))

    diagnosis = machine("fp16", count=True).diagnose(program, steps=6, seconds=20)
    assert diagnosis.answer == answer
    assert diagnosis.beside == "binary64"
    assert len(diagnosis.reference) == 6
    assert diagnosis.harm < 0.01
    if answer == "ill":
        assert diagnosis.sentence.startswith("Updates are swallowed: ")
        assert str(diagnosis.cure.way) == "fp16+sr"
        assert "no sites; a layer that a way names computes them in binary32" in str(diagnosis)


def test_halves_of_keras_mixed_precision_are_judged_beside_binary64():
    """Its weights are binary32, its layers compute in halves whatever the policy says."""

    def program(seed):
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        x = np.random.RandomState(seed).uniform(200, 400, (24, 6)).astype("float32")
        layers = tf.keras.layers
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = tf.keras.Sequential([
                layers.Dense(4, input_shape=(6,), dtype="mixed_float16", name="body"),
                layers.Lambda(lambda h: h * h, dtype="mixed_float16", name="square"),
                layers.Lambda(lambda h: 1e-5 * h, dtype="float32", name="small"),
                layers.Dense(1, dtype="float32", name="head"),
            ])
            model.compile(tf.keras.optimizers.SGD(1e-4), "mse")
            model.fit(x, x[:, :1] / 200, batch_size=8, shuffle=False, verbose=0)

    diagnosis = machine("fp32", count=True).diagnose(program, steps=3, seconds=20)
    assert (diagnosis.answer, diagnosis.beside) == ("ill", "binary64")
    assert "Mul of square overflows binary16" in diagnosis.sentence


def test_a_layer_that_a_policy_names_computes_halves_in_binary32():
    """The square of 300 is no number of binary16, and its root is one."""
    with machine(FP32.override({"norm": FP32}), unconfigured=True):
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        x = tf.constant([300.0, -4.0], tf.half)

        @tf.function
        def size(x):
            with tf.name_scope("norm"):
                return tf.sqrt(tf.square(x))

        assert strategy.run(size, args=(x,)).numpy().tolist() == [300.0, 4.0]
    with machine("fp32", unconfigured=True):
        assert ipu.ipu_strategy.IPUStrategyV1().run(size, args=(x,)).numpy().tolist()[0] < 256


COUNTER = """
import tensorflow as tf
from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategyV1().scope() as strategy:
    pass
total = tf.Variable(tf.zeros(3), trainable=False, name="total")

@tf.function
def step(x):
    total.assign_add(x)
    return x

for _ in range(3):
    ipu.ipu_strategy.IPUStrategyV1().run(step, args=(tf.fill([3], 30000.0),))
print("total", float(tf.reduce_sum(total)))
"""


def test_a_counter_that_overflows_is_told_by_its_name_and_line(tmp_path):
    path = tmp_path / "count.py"
    path.write_text(COUNTER)
    result = diagnose_program(machine("fp16", count=True), path, [], 5, seconds=40.0)
    assert result.answer == "ill"
    assert result.sentence.startswith("The AssignAddVariableOp of total overflows binary16")
    assert "count.py:13" in result.sentence
    assert result.measure == "numbers in 'total #'"
    assert str(result.cure.way) == "fp16+total=f32"


def test_a_statistic_of_a_layer_is_told_as_forward_and_of_a_program_as_an_update():
    """Terms that an average absorbs again and again; places of random bits stay the optimiser's."""
    with machine("fp16", count=True, unconfigured=True) as run:
        w = tf.Variable(tf.ones(3), name="net/w")
        inside, outside = (tf.Variable(tf.ones([9]), trainable=False) for _ in range(2))

        def step(x):
            with tf.GradientTape() as tape, tf.name_scope("net"):
                inside.assign(inside + tf.fill([9], 2.0**-14))
                loss = tf.reduce_sum(x * w)
            w.assign(w - 2.0**-14 * tape.gradient(loss, w))
            outside.assign(outside - tf.fill([9], 2.0**-14))
            return loss

        program = tf.function(step)
        for _ in range(3):
            ipu.ipu_strategy.IPUStrategyV1().run(program, [tf.constant([1.0, 1.0, 1.0])])
    births = [row for row in run.report()["births"] if row["kind"] == "absorption"]
    assert {row["direction"] for row in births} == {"optimizer"}
    phases = {row["layer"]: row["phase"] for row in births}
    assert phases == {"net": "forward", "optimizer": "", "sub_1": "update"}
    sums = next(cause for cause in find_causes(run.report()) if cause.kind == "sums")
    assert "(forward, step 0" in sums.sentence


STATISTICS = """
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
rng = np.random.RandomState(3)
weight = tf.Variable(0.5 * rng.randn(6, 3).astype("float32"), name="weight")
mean = tf.Variable(tf.zeros(3), trainable=False, name="mean")
variance = tf.Variable(tf.ones(3), trainable=False, name="variance")

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        h = x @ weight
        loss = tf.reduce_mean(tf.square(h - 1.0))
    square = tf.reduce_mean(tf.square(h), axis=0)
    mean.assign_add(1e-4 * (tf.reduce_mean(h, axis=0) - mean))
    variance.assign_add(1e-4 * (square - variance))
    (slope,) = tape.gradient(loss, [weight])
    weight.assign_sub(0.03 * slope)
    return loss

for _ in range(6):
    x = rng.randn(16, 6).astype("float32")
    ipu.ipu_strategy.IPUStrategyV1().run(step, args=(x,))
"""


def test_a_variance_that_stands_still_is_told_by_its_name_and_mended_by_its_site(tmp_path):
    """Its neighbour, whose terms are lost beside a batch's mean, goes its way."""
    path = tmp_path / "train.py"
    path.write_text(STATISTICS)
    result = diagnose_program(machine("fp16", count=True), path, [], 6, seconds=90.0)
    assert result.answer == "ill"
    assert "variance, which AssignAddVariableOp writes" in result.sentence
    line = 1 + STATISTICS.splitlines().index("    variance.assign_add(1e-4 * (square - variance))")
    assert f"train.py:{line}), moves by 0% of its way" in result.sentence
    assert [str(site) for site in result.necessary] == ["variance (parameters)"]
    assert str(result.cure.way) == "fp16+variance=f32"
