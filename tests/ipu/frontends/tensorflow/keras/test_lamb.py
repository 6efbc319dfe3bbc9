"""LAMB as programs bring it, a class on Keras' optimisers that no kernel of TensorFlow has.

Bits are those of exact fractions that are rounded after each operation of its graph; of sharded
state half is on each of two replicas, and no bit changes (differential, law).

Source    You et al., Large batch optimization for deep learning, arXiv:1904.00962, algorithm 2.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

from fpsim.judge.oracle.blocks import fl, plus, times
from ipu.plan.memory import remote_bytes
from tests.ipu.frontends.tensorflow.framework import configured, current, ipu, machine, tf
from tests.ipu.frontends.tensorflow.keras.test_functions import data

layers = tf.keras.layers
RATE, BETAS, EPSILON = 0.1, (0.5, 0.75), 1e-6  # powers of these betas are exact


class Lamb(tf.keras.optimizers.Optimizer):
    """The class of a program."""

    def __init__(self):
        super().__init__(name="Lamb")
        self._learning_rate = self._build_learning_rate(RATE)

    def build(self, var_list):
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._built = True
        self.means, self.powers = (
            [self.add_variable_from_reference(v, name) for v in var_list]
            for name in ("mean", "power")
        )

    def update_step(self, gradient, variable):
        index = self._index_dict[self._var_key(variable)]
        mean, power = self.means[index], self.powers[index]
        step = tf.cast(self.iterations + 1, variable.dtype)
        mean.assign_add((gradient - mean) * (1 - BETAS[0]))
        power.assign_add((gradient * gradient - power) * (1 - BETAS[1]))
        hats = [slot / (1 - tf.pow(beta, step))
                for slot, beta in zip((mean, power), BETAS, strict=True)]
        update = hats[0] / (tf.sqrt(hats[1]) + EPSILON)
        sizes = [tf.sqrt(tf.reduce_sum(x * x)) for x in (variable, update)]
        ratio = tf.where((sizes[0] > 0) & (sizes[1] > 0), sizes[0] / sizes[1], 1.0)
        variable.assign_sub(ratio * self.learning_rate * update)


def root(x):
    """The square root to nearest: by 60 digits, which no result of 24 digits lies close to."""
    return fl(Fraction(isqrt(int(Fraction(x) * 2**240)), 2**120)) if x else 0.0


def quotient(x, y):
    """Of numbers with a sign."""
    return fl(Fraction(x) / Fraction(y))


def total(numbers):
    """As the device sums up to 64: one after the other."""
    first, *rest = numbers
    for number in rest:
        first = plus(first, number)
    return first


def lamb(weights, gradients):
    """Every operation of the graph in order, each rounded once to binary32."""
    rate, epsilon = fl(Fraction(RATE)), fl(Fraction(EPSILON))
    means, powers = [0.0] * len(weights), [0.0] * len(weights)
    for step, slopes in enumerate(gradients, 1):
        rests = [fl(1 - Fraction(beta) ** step) for beta in BETAS]
        means = [plus(m, times(plus(g, -m), 1 - BETAS[0]))
                 for m, g in zip(means, slopes, strict=True)]
        powers = [plus(v, times(plus(times(g, g), -v), 1 - BETAS[1]))
                  for v, g in zip(powers, slopes, strict=True)]
        update = [quotient(quotient(m, rests[0]), plus(root(quotient(v, rests[1])), epsilon))
                  for m, v in zip(means, powers, strict=True)]
        sizes = [root(total([times(x, x) for x in xs])) for xs in (weights, update)]
        ratio = quotient(*sizes) if all(sizes) else 1.0
        factor = times(ratio, rate)
        weights = [plus(w, -times(factor, u)) for w, u in zip(weights, update, strict=True)]
    return weights


@pytest.mark.source("S0-71")
@pytest.mark.parametrize("start", ["random", "zeros"])
def test_a_program_with_lamb_has_the_bits_of_its_graph(start):
    """A norm of zero makes the ratio 1."""
    random = np.random.default_rng(4)
    weights = random.normal(size=(3, 4)).astype(np.float32)
    if start == "zeros":
        weights[:] = 0
    gradients = random.normal(size=(3, 3, 4)).astype(np.float32)
    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with machine(), strategy.scope():
        configured()
        variable = tf.Variable(weights)
        optimizer = Lamb()
        optimizer.build([variable])

        @tf.function
        def step(g):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable * g)
            optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])
            return loss

        for g in gradients:
            strategy.run(step, [tf.constant(g)])
    expected = lamb(weights.ravel().tolist(), [g.ravel().tolist() for g in gradients])
    assert variable.numpy().ravel().tolist() == expected


def trained(shard):
    """Weights and costs of a training on two replicas."""
    with machine(), ipu.ipu_strategy.IPUStrategyV1().scope():
        configured(2)
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([layers.Dense(8, "relu", input_shape=(8,)), layers.Dense(4)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(Lamb(), loss, steps_per_execution=8)
        model.set_gradient_accumulation_options(4, replicated_optimizer_state_sharding=shard)
        model.fit(data().take(8), verbose=0)
        return model.get_weights(), current().run.costs[0]


@pytest.mark.source("S0-71")
@pytest.mark.filterwarnings("ignore:.*changes no bit:RuntimeWarning")
def test_the_state_of_lamb_is_there_in_shards_and_no_bit_changes():
    (whole, complete), (parts, sharded) = trained(False), trained(True)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)
    moments = 2 * (64 + 8 + 32 + 4) * 4
    assert [figures.state_bytes for figures in sharded.figures] == [moments]
    kernels = 2 * (64 + 32) * 4  # moments of biases are too small to lie in remote memory
    assert remote_bytes(*complete)["state"] == kernels
    assert remote_bytes(*sharded)["state"] * 2 == kernels
