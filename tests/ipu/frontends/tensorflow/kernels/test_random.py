"""Random nodes: by seed and place; distributions (law, statistical, differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree

seed, shape = np.int32([1, 2]), (3, 4)
CASES = {
    "StatelessRandomUniformV2": (lambda s: tf.random.stateless_uniform(shape, s), seed),
    "StatelessRandomNormalV2": (lambda s: tf.random.stateless_normal(shape, s), seed),
    "StatelessTruncatedNormalV2": (
        lambda s: tf.random.stateless_truncated_normal(shape, s), seed,
    ),
    "RandomUniform": (tf.random.uniform, 0.5, 1 / 12, 0, 1),
    "RandomStandardNormal": (tf.random.normal, 0, 1, -6, 6),
    "TruncatedNormal": (tf.random.truncated_normal, 0, 0.7737, -2, 2),
}


@pytest.mark.parametrize("node", [node for node in CASES if node.startswith("Stateless")])
def test_stateless_nodes_are_as_on_tensorflow(node):
    agree(node, *CASES[node], gradients=False, tolerance=0)


def drawn(function, n, **choices):
    program = tf.function(lambda: function([n], dtype=tf.float32))
    with machine(**choices):
        return [launch(program).numpy() for _ in range(2)]


@pytest.mark.parametrize("node", [node for node in CASES if not node.startswith("Stateless")])
def test_stateful_nodes_have_their_distribution_and_depend_on_seed_and_step(node):
    """Fixed seeds; bounds of six standard errors, false alarms below 1e-8 were seeds drawn."""
    function, mean, variance, low, high = CASES[node]
    n = 20000
    first, second = drawn(function, n)
    assert low <= first.min()
    assert first.max() <= high
    assert abs(first.mean() - mean) < 6 * (variance / n) ** 0.5
    assert abs(first.var() - variance) < 6 * variance * (2 / n) ** 0.5
    assert not np.array_equal(first, second)
    assert np.array_equal(drawn(function, n)[1], second)
    assert not np.array_equal(drawn(function, n, seed=3)[0], first)


def test_dropout_keeps_the_same_elements_in_its_gradient():
    def program(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.dropout(x, 0.25)
        return y, tape.gradient(y, x)

    with machine():
        y, slope = launch(tf.function(program), tf.ones(4000, tf.half))
    slots_by_name = y.numpy() > 0
    assert 0.7 < slots_by_name.mean() < 0.8
    assert np.array_equal(slope.numpy() > 0, slots_by_name)
    assert set(np.unique(y.numpy())) == {np.float16(0), np.float16(1 / 0.75)}
