"""Group, instance and layer norm: formulas, primitives, messages (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.frontends.tensorflow.operations.normalization import normalised
from ipu.frontends.tensorflow.settings.notes import forget
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, session, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

v1, norm = tf.compat.v1, ipu.normalization_ops
images = numbers(4, 3, 5, 6)
gamma, beta = numbers(6, seed=1), numbers(6, seed=2)


def by_hand(x, gamma, beta, groups, strided):
    size = x.shape[-1] // groups
    of = [c % groups if strided else c // size for c in range(x.shape[-1])]
    parts = []
    for c in range(x.shape[-1]):
        together = tf.stack([x[..., d] for d in range(x.shape[-1]) if of[d] == of[c]], -1)
        axes = list(range(1, x.shape.rank))
        mean, variance = tf.nn.moments(together, axes, keepdims=True)
        whitened = (x[..., c : c + 1] - mean) / tf.sqrt(variance + 1e-6)
        parts.append(whitened[..., 0] * gamma[c] + beta[c])
    return tf.stack(parts, -1)


def with_slopes(function):
    tensors = [tf.constant(v) for v in (images, gamma, beta)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
        loss = tf.reduce_sum(y * tf.constant(numbers(*y.shape, seed=5)))
    return [y, *tape.gradient(loss, tensors)]


@pytest.mark.parametrize(("groups", "strided"), [(1, True), (2, True), (2, False), (6, True)])
def test_the_formula_is_the_definition(groups, strided):
    ours = with_slopes(lambda *v: normalised(*v, groups, strided=strided))
    theirs = with_slopes(lambda *v: by_hand(*v, groups, strided))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_float32_is_as_on_tensorflow(groups):
    agree("PyFunc", lambda *v: normalised(*v, groups), images, gamma, beta, tolerance=5e-6)


def test_channels_may_come_first():
    first = normalised(tf.transpose(images, [0, 3, 1, 2]), gamma, beta, 2, channels_axis=1)
    last = normalised(tf.constant(images), gamma, beta, 2)
    np.testing.assert_array_equal(tf.transpose(first, [0, 2, 3, 1]), last)


@pytest.mark.parametrize("stable", [False, True])
def test_halves_are_those_of_the_primitive(stable):
    a, g = half(3, 4, 6), half(3, 4, 6, seed=3)
    wide = [np.float32(gamma), np.float32(beta)]

    def compute(a, g):
        ours = [tf.constant(v) for v in wide]
        with tf.GradientTape() as tape:
            tape.watch([a, *ours])
            y = normalised(a, *ours, 2, epsilon=1e-3)
        return y, *tape.gradient(y, [a, *ours], output_gradients=g)

    with machine():
        config = ipu.config.IPUConfig()
        config.norms.use_stable_statistics = stable
        config.configure_ipu_system()
        results = ipu.ipu_strategy.IPUStrategyV1().run(
            tf.function(compute), (tf.constant(a), tf.constant(g))
        )
    device = Device()
    x, slope, *others = (device.from_host(v, BINARY16) for v in (a, g, *wide))
    y, saved = ops.group_norm.forward(device, x, *others, groups=2, epsilon=1e-3, stable=stable)
    rules = [rule(device, slope, saved, groups=2) for rule in ops.group_norm.vjps]
    for ours, theirs in zip(results, (y, *rules), strict=True):
        np.testing.assert_array_equal(ours.numpy().astype("f4"), np.float32(theirs.values))
    assert results[2].dtype == tf.float32, "gamma keeps its type"


NORMS = {
    "group": (norm.group_norm, {"groups": 3}, 3), "layer": (norm.layer_norm, {}, 1),
    "instance": (norm.instance_norm, {}, 6),
}


@pytest.mark.parametrize("name", NORMS)
def test_functions_of_halves_are_those_of_the_primitive(name):
    """Forward and to the input, gamma and beta, which are halves as the input is."""
    function, options, groups = NORMS[name]
    a, g = half(2, 3, 5, 6), half(2, 3, 5, 6, seed=3)
    starts = {"gamma": v1.constant_initializer(gamma), "beta": v1.constant_initializer(beta)}
    with machine(), session() as opened:
        configured()

        def compute(a, g):
            y = function(a, scope="n", param_initializers=starts, epsilon=1e-3, **options)
            with v1.variable_scope("n", reuse=True):
                sources = [a, *(v1.get_variable(v, dtype=tf.half) for v in ("gamma", "beta"))]
            return y, *tf.gradients(y, sources, grad_ys=g)

        results = ipu.ipu_compiler.compile(compute, [tf.constant(a), tf.constant(g)])
        opened.run(v1.global_variables_initializer())
        results = opened.run(results)
    device = Device()
    x, slope, *others = (device.from_host(v, BINARY16) for v in (a, g, gamma, beta))
    y, saved = ops.group_norm.forward(device, x, *others, groups=groups, epsilon=1e-3)
    rules = [rule(device, slope, saved, groups=groups) for rule in ops.group_norm.vjps]
    for ours, theirs in zip(results, (y, *rules), strict=True):
        assert ours.dtype == np.float16
        np.testing.assert_array_equal(ours.view("u2"), np.float16(theirs.values).view("u2"))


def test_functions_make_their_variables():
    with machine(), session() as opened:
        configured()
        x = tf.constant(images)
        names = {"beta": v1.constant_initializer(0.5)}
        nets = [
            norm.group_norm(x, groups=3, scope="a", param_initializers=names),
            norm.layer_norm(x, scope="b", center=False, scale=False),
            norm.instance_norm(x, scope="c", training=False),
        ]
        assert [v.name for v in v1.trainable_variables()] == [
            "a/beta:0", "a/gamma:0", "c/beta:0", "c/gamma:0",
        ]
        opened.run(v1.global_variables_initializer())
        group, layer, instance = opened.run(nets)
    ones, zeros = np.ones(6, np.float32), np.zeros(6, np.float32)
    np.testing.assert_allclose(group, normalised(tf.constant(images), ones, zeros + 0.5, 3))
    np.testing.assert_allclose(layer, normalised(tf.constant(images), ones, zeros, 1))
    np.testing.assert_allclose(instance, normalised(tf.constant(images), ones, zeros, 6))


def test_messages():
    forget()
    with session():
        x = tf.constant(images)
        with pytest.raises(ValueError, match="6 channels is not commensurate with 4 groups"):
            norm.group_norm(x, groups=4)
        with pytest.raises(ValueError, match="Invalid groups 7 for 6 channels"):
            norm.group_norm(x, groups=7)
        with pytest.raises(ValueError, match="Unsupported data format, group norm only"):
            norm.layer_norm(x, channels_axis=2)
        with pytest.raises(ValueError, match="Axis is out of bounds"):
            norm.instance_norm(x, channels_axis=4)
        with pytest.warns(RuntimeWarning, match="reduction_axes is deprecated"):
            norm.layer_norm(x, reduction_axes=[1])


def test_stochastic_rounding_reaches_it():
    same = [
        on_machine(lambda a: normalised(a, gamma, beta, 2), half(2, 8, 6), sr=True, seed=seed)[0]
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(same[0], same[1])
    assert (same[0][0] != same[2][0]).any()
