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


def adagrad(w, m, v, g):
    raw.ResourceApplyAdagrad(var=w, accum=v, lr=tf.constant(0.05, g.dtype), grad=g)


def adagrad_v2(w, m, v, g):
    lr, epsilon = (tf.constant(c, g.dtype) for c in (0.05, 1e-3))
    raw.ResourceApplyAdagradV2(var=w, accum=v, lr=lr, epsilon=epsilon, grad=g)


def rows_of(name, slots=1, **constants):
    """The update of rows 2 and 0 with the first two rows of a gradient."""

    def rule(w, m, v, g, **options):
        known = {"accum": v if "Adagrad" in name else m} if slots == 1 else {"ms": v, "mom": m}
        values = {key: tf.constant(c, g.dtype) for key, c in constants.items()}
        node = getattr(raw, f"ResourceSparseApply{name}")
        node(var=w, grad=g[:2], indices=[2, 0], **known, **values, **options)

    return rule


ROWS = {
    "Momentum": rows_of("Momentum", lr=0.05, momentum=0.9),
    "KerasMomentum": rows_of("KerasMomentum", lr=0.05, momentum=0.9),
    "RMSProp": rows_of("RMSProp", 2, lr=0.01, rho=0.9, momentum=0.5, epsilon=1e-3),
    "Adagrad": rows_of("Adagrad", lr=0.05),
    "AdagradV2": rows_of("AdagradV2", lr=0.05, epsilon=1e-3),
}
CASES = {
    **{f"ResourceSparseApply{name}": rule for name, rule in ROWS.items()},
    "ResourceApplyAdagrad": adagrad,
    "ResourceApplyAdagradV2": adagrad_v2,
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


@pytest.mark.parametrize(
    ("node", "nesterov"),
    [*((node, False) for node in CASES),
     *((node, True) for node in CASES if node.endswith(("Adam", "Momentum")))],
)  # fmt: skip
def test_float32_is_as_on_tensorflow(node, nesterov):
    rule, options = CASES[node], {"use_nesterov": True} if nesterov else {}
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


def test_a_row_is_updated_once():
    def twice(w, m, v, g):
        rate, share = tf.constant(0.05), tf.constant(0.9)
        raw.ResourceSparseApplyMomentum(
            var=w, accum=m, lr=rate, grad=g[:2], indices=[1, 1], momentum=share
        )

    with pytest.raises(ValueError, match="updates a row twice; add its gradients before"):
        updated(twice, numbers(4, 3), [numbers(4, 3), numbers(4, 3)], [numbers(4, 3)])
