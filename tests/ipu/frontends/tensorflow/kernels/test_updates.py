"""Updates: as TensorFlow in float32, as the rules of ipu.learn.optim in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.learn.optim import SGD, Adam
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import half, numbers, types_of

raw = tf.raw_ops


def adam(w, m, v, g, **options):
    kind = g.dtype
    rest = [tf.constant(c, kind) for c in (0.9, 0.999, 0.01, 0.9, 0.999, 1e-3)]
    raw.ResourceApplyAdam(
        var=w, m=m, v=v, beta1_power=rest[0], beta2_power=rest[1], lr=rest[2], beta1=rest[3],
        beta2=rest[4], epsilon=rest[5], grad=g, **options,
    )  # fmt: skip


def momentum(w, m, v, g, **options):
    rate, share = tf.constant(0.05, g.dtype), tf.constant(0.9, g.dtype)
    raw.ResourceApplyMomentum(var=w, accum=m, lr=rate, grad=g, momentum=share, **options)


def keras_momentum(w, m, v, g, **options):
    rate, share = tf.constant(0.05, g.dtype), tf.constant(0.9, g.dtype)
    raw.ResourceApplyKerasMomentum(var=w, accum=m, lr=rate, grad=g, momentum=share, **options)


def descent(w, m, v, g):
    raw.ResourceApplyGradientDescent(var=w, alpha=tf.constant(0.05, g.dtype), delta=g)


def rms_prop(w, m, v, g):
    lr, rho, share, epsilon = (tf.constant(c, g.dtype) for c in (0.01, 0.9, 0.5, 1e-3))
    raw.ResourceApplyRMSProp(
        var=w, ms=m, mom=v, lr=lr, rho=rho, momentum=share, epsilon=epsilon, grad=g
    )


CASES = {
    "ResourceApplyGradientDescent": descent,
    "ResourceApplyMomentum": momentum,
    "ResourceApplyKerasMomentum": keras_momentum,
    "ResourceApplyAdam": adam,
    "ResourceApplyRMSProp": rms_prop,
}


def updated(rule, values, slots, gradients, native=False, **options):
    """The variable and its slots after an update for each gradient."""
    variables = [tf.Variable(v) for v in (values, *slots)]

    @tf.function
    def step(g):
        rule(*(v.handle for v in variables), g, **options)

    with machine(f32_denormals="ieee"):
        for g in gradients:
            step(tf.constant(g)) if native else launch(step, tf.constant(g))
        if not native:
            step_types = types_of(step.get_concrete_function(tf.constant(gradients[0])).graph)
    return [v.numpy() for v in variables], None if native else step_types


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node, nesterov):
    rule = CASES[node]
    options = (
        {"use_nesterov": True} if nesterov and rule in (adam, momentum, keras_momentum) else {}
    )
    values, slots = numbers(4, 3), [numbers(4, 3, seed=1), np.abs(numbers(4, 3, seed=2))]
    gradients = [numbers(4, 3, seed=s) for s in (3, 4)]
    results, types = updated(rule, values, slots, gradients, **options)
    expected, _ = updated(rule, values, slots, gradients, native=True, **options)
    assert node in types
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("rule", "ours"),
    [(descent, SGD(rate=0.05)), (momentum, SGD(rate=0.05, momentum=0.9)),
     (adam, Adam(rate=0.01, epsilon=1e-3))],
)  # fmt: skip
def test_halves_are_those_of_the_rule(rule, ours):
    values, slots, g = half(40), [half(40, seed=1), np.abs(half(40, seed=2))], half(40, seed=3)
    results, _ = updated(rule, values, slots, [g])
    device = Device()
    w, m, v, slope = (device.from_host(a, BINARY16) for a in (values, *slots, g))
    powers = [device.context(BINARY16).constant(c) for c in (0.9, 0.999)]
    known = {descent: (), momentum: (m,), adam: (m, v, *powers)}[rule]
    step = ours.rule(device, w, slope, known, ours.rate)
    np.testing.assert_array_equal(results[0].view("u2"), np.float16(step[2].values).view("u2"))
