"""Trainings on the machine beside TensorFlow's own (differential)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import (
    configured,
    ipu,
    launch,
    machine,
    session,
    tf,
)

v1 = tf.compat.v1


def variable(name, shape, dtype):
    start = v1.glorot_uniform_initializer(seed=len(name), dtype=dtype)
    return v1.get_variable(name, shape, dtype, initializer=start)


def conv(x, name, channels, size=3, stride=1):
    """A convolution with a bias, in a scope of its own."""
    with v1.variable_scope(name):
        w = variable("kernel", [size, size, x.shape[-1], channels], x.dtype)
        b = v1.get_variable("bias", [channels], x.dtype, initializer=v1.zeros_initializer())
        return tf.nn.bias_add(tf.nn.conv2d(x, w, stride, "SAME"), b)


def dense(x, name, units):
    with v1.variable_scope(name):
        w = variable("kernel", [x.shape[-1], units], x.dtype)
        b = v1.get_variable("bias", [units], x.dtype, initializer=v1.zeros_initializer())
        return tf.matmul(x, w) + b


def cnn(x):
    """A small convolutional network of TensorFlow 1."""
    x = tf.nn.max_pool2d(tf.nn.relu(conv(x, "conv", 8)), 2, 2, "VALID")
    x = tf.reshape(x, [x.shape[0], -1])
    return dense(tf.nn.relu(dense(x, "hidden", 16)), "logits", 10)


def half_cnn(x):
    """The same network in halves, its logits in float32."""
    return tf.cast(cnn(tf.cast(x, tf.half)), tf.float32)


def data():
    """Batches of 16 images with classes that can be learnt."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 10, (40, 16)).astype(np.int32)
    x = rng.normal(size=(40, 16, 8, 8, 1)).astype(np.float32)
    x += (y[..., None, None, None] / 5 - 1).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y))


def train(network, optimiser, steps, **choices):
    """Losses of a training in one launch, the variables, and the machine."""
    with machine(**choices) as used, session() as run:
        v1.set_random_seed(7)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def body(x, y):
            loss = v1.losses.sparse_softmax_cross_entropy(labels=y, logits=network(x))
            return outfeed.enqueue(loss), optimiser().minimize(loss)

        result = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(steps, body, [], infeed))
        losses = outfeed.dequeue()
        run.run(infeed.initializer)
        run.run(v1.global_variables_initializer())
        run.run(result)
        variables = {v.name: run.run(v) for v in v1.trainable_variables()}
        return run.run(losses), variables, used


def test_a_convolutional_network_learns_as_on_tensorflow():
    def optimiser():
        return v1.train.MomentumOptimizer(0.05, 0.9)

    losses, weights, used = train(cnn, optimiser, 40, ties="first")
    expected, reference, _ = train(cnn, optimiser, 40, reference=True)
    assert used.launches == 1
    assert used.iteration == 40
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, expected, rtol=0, atol=5e-6)
    for name, values in weights.items():
        np.testing.assert_allclose(values, reference[name], rtol=0, atol=1e-6)


def normed(x, name, **options):
    """Batch norm of TensorFlow 1, with the moving averages left to the optimiser's step."""
    with v1.variable_scope(name):
        channels = x.shape[-1]
        scale = v1.get_variable("scale", [channels], initializer=v1.ones_initializer())
        offset = v1.get_variable("offset", [channels], initializer=v1.zeros_initializer())
        return v1.nn.fused_batch_norm(x, scale, offset, is_training=True, **options)[0]


def resnet8(x):
    """Three blocks of two convolutions, with a shortcut of 1x1 where the size changes."""
    x = tf.nn.relu(normed(conv(x, "stem", 4), "stem_norm"))
    for i, channels in enumerate((4, 8, 16)):
        stride = 1 if i == 0 else 2
        y = tf.nn.relu(normed(conv(x, f"a{i}", channels, 3, stride), f"norm_a{i}"))
        y = normed(conv(y, f"b{i}", channels), f"norm_b{i}")
        x = x if stride == 1 else conv(x, f"short{i}", channels, 1, stride)
        x = tf.nn.relu(x + y)
    return dense(tf.reduce_mean(x, [1, 2]), "logits", 10)


def test_a_residual_network_learns_as_on_tensorflow():
    def optimiser():
        return v1.train.MomentumOptimizer(0.02, 0.9)

    losses, _, _ = train(resnet8, optimiser, 20, ties="first")
    expected, _, _ = train(resnet8, optimiser, 20, reference=True)
    assert losses[-1] < losses[0]
    # Later a number near zero or a maximum changes places, on some processors in step 8.
    np.testing.assert_allclose(losses[:7], expected[:7], rtol=0, atol=1e-4)


def keras_training(steps, **choices):
    """Losses of the documents' custom training loop, and the machine."""
    with machine(**choices) as used:
        tf.keras.utils.set_random_seed(3)
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        @tf.function(jit_compile=not used.choices.reference)
        def training_step(count, iterator, model, optimiser):
            for _ in tf.range(count):
                x, y = next(iterator)
                with tf.GradientTape() as tape:
                    predictions = model(x, training=True)
                    losses = tf.keras.losses.sparse_categorical_crossentropy(y, predictions)
                    loss = tf.reduce_mean(losses)
                variables = model.trainable_variables
                gradients = tape.gradient(loss, variables)
                optimiser.apply_gradients(zip(gradients, variables, strict=True))
                outfeed.enqueue(loss)

        with strategy.scope():
            model = tf.keras.Sequential([
                tf.keras.layers.Flatten(), tf.keras.layers.Dense(32, activation="relu"),
                tf.keras.layers.Dense(10, activation="softmax"),
            ])
            optimiser = tf.keras.optimizers.SGD(0.05)
            strategy.run(training_step, (steps, iter(data().repeat()), model, optimiser))
        return np.array([float(loss) for loss in outfeed]), used


def test_the_documents_loop_learns_as_on_tensorflow():
    losses, used = keras_training(100)
    expected, _ = keras_training(100, reference=True)
    assert used.launches == 1
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, expected, rtol=0, atol=2e-4)


# Nodes ------------------------------------------------------------------------------------------


def types_of(used):
    """Types of the live nodes of the programs that ran on a machine."""
    plans, types = [*used.plans.values()], set()
    while plans:
        plan = plans.pop()
        types |= {node.type for node in plan.program.nodes}
        plans += plan._parts
    return sorted(types)


def momentum():
    return v1.train.MomentumOptimizer(0.05, 0.9)


PROGRAMS = {
    "cnn": lambda: train(cnn, momentum, 1)[2],
    "half_cnn": lambda: train(half_cnn, momentum, 1)[2],
    "resnet8": lambda: train(resnet8, momentum, 1)[2],
    "keras_loop": lambda: keras_training(1)[1],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_have_the_nodes_that_tensorflow_2_21_builds(program):
    """Another list says that a new TensorFlow builds other graphs: look at them, then renew it."""
    golden = json.loads((Path(__file__).parent / "nodes.json").read_text())
    assert types_of(PROGRAMS[program]()) == golden[program]


# Numbers of the documents ------------------------------------------------------------------------


def add_two_numbers(x, y):
    return x + y


def totals_of_sessions():
    """The documents' sums: a launch for each of 10 000 additions."""
    with machine(), session() as run:
        configured(esr=ipu.config.StochasticRoundingBehaviour.ON)
        x, y = (v1.placeholder(tf.float16, [20]) for _ in range(2))
        (sums,) = ipu.ipu_compiler.compile(add_two_numbers, [x, y])
        totals = np.zeros(20)
        for _ in range(10000):
            totals = run.run(sums, {x: totals, y: np.full(20, 0.0001)})
    return totals


def totals_of_a_loop():
    """The same additions in one launch."""
    with machine() as before:
        used = configured(esr=ipu.config.StochasticRoundingBehaviour.ON)
        small = tf.fill([20], tf.constant(0.0001, tf.half))
        program = tf.function(
            lambda: ipu.loops.repeat(
                10000, lambda x: add_two_numbers(x, small), [tf.zeros([20], tf.half)]
            )
        )
        totals = launch(program).numpy()
    assert (before.launches, used.launches) == (0, 1)
    return totals


@pytest.mark.source("Half and mixed precision, stochastic rounding: 0.9653 to 1.03, mean 0.999")
@pytest.mark.parametrize(
    "totals", [totals_of_a_loop, pytest.param(totals_of_sessions, marks=pytest.mark.tier("full"))]
)
def test_stochastic_sums_do_not_stagnate(totals):
    """A fixed seed; the spread of a sum is 0.015, so the bounds are six of them and three of the
    mean's."""
    sums = totals()
    assert sums.dtype == np.float16
    assert sums.min() > 0.9
    assert sums.max() < 1.1
    assert abs(np.float64(sums).mean() - 1) < 0.01


HALF, SINGLE = tf.half, tf.float32


@pytest.mark.source("graphcore/tensorflow: floating_point_control_bits_test.py")
@pytest.mark.parametrize(
    ("kind", "function", "value", "bit", "expected"),
    [
        (HALF, lambda x: tf.cast(x, tf.int32), np.nan, "inv", -2147483648),
        (HALF, lambda x: x / 0, 10000, "div0", np.nan),
        (SINGLE, lambda x: x / 0, 8, "div0", np.inf),
        (HALF, lambda x: x * x, 10000, "oflo", 65504),
    ],
    ids=["NaN to an integer", "half by zero", "single by zero", "overflow"],
)
def test_results_and_exceptions_of_the_control_bits(kind, function, value, bit, expected):
    program, x = tf.function(function), tf.constant([value], kind)
    with machine():
        assert np.array_equal(launch(program, x).numpy(), [expected], equal_nan=True)
        configured(**{bit: True})
        with pytest.raises(tf.errors.InternalError, match="Tiles in excepted state"):
            launch(program, x)
    if bit == "oflo":
        with machine():
            configured(nanoo=True)
            assert np.isnan(launch(program, x).numpy())
