"""Updates: as TensorFlow in float32, as the rules of ipu.learn.optim in half (differential)."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.learn.optim import SGD, Adam
from ipu.machine.device import Device
from tests.ipu.frontends.tensorflow.framework import ipu, launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import half, numbers, types_of

raw = tf.raw_ops


def adam(w, m, v, g, **options):
    kind = g.dtype
    rest = [tf.constant(c, kind) for c in (0.9, 0.999, 0.01, 0.9, 0.999, 1e-3)]
    raw.ResourceApplyAdam(
        var=w, m=m, v=v, beta1_power=rest[0], beta2_power=rest[1], lr=rest[2], beta1=rest[3],
        beta2=rest[4], epsilon=rest[5], grad=g, **options,
    )


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


def plain(name, *slots, **constants):
    """A node with slots of these names."""

    def rule(w, *rest, **options):
        held, g = dict(zip(slots, rest[:-1], strict=True)), rest[-1]
        values = {key: tf.constant(c, g.dtype) for key, c in constants.items()}
        getattr(raw, f"ResourceApply{name}")(var=w, grad=g, **held, **values, **options)

    return rule


_BETAS = {"beta1_power": 0.9, "lr": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-3}
_FTRL = {"lr": 0.05, "l1": 0.3, "l2": 0.2, "lr_power": -0.5}
_ADADELTA = {"lr": 0.5, "rho": 0.9, "epsilon": 1e-3}
_RMS = {"lr": 0.01, "rho": 0.9, "momentum": 0.5, "epsilon": 1e-3}
#: Names of the slots that may be negative, of all, and the rule.
MORE = {
    "ResourceApplyAdamWithAmsgrad": (
        "m", ("m", "v", "vhat"), _BETAS | {"beta2_power": 0.999}, "AdamWithAmsgrad"),
    "ResourceApplyAdaMax": ("m", ("m", "v"), _BETAS, "AdaMax"),
    "ResourceApplyAdadelta": ("", ("accum", "accum_update"), _ADADELTA, "Adadelta"),
    "ResourceApplyFtrl": ("linear", ("accum", "linear"), _FTRL, "Ftrl"),
    "ResourceApplyFtrlV2": (
        "linear", ("accum", "linear"), _FTRL | {"l2_shrinkage": 0.1}, "FtrlV2"),
    "ResourceApplyCenteredRMSProp": ("mom", ("mg", "ms", "mom"), _RMS, "CenteredRMSProp"),
}


def slots_for(node, make):
    """Values that the slots may have; a mean square is not below the squared mean."""
    signed, slots, _, _ = MORE[node]
    values = [make(seed=i + 1) for i in range(len(slots))]
    values = [
        v if name in signed.split() else np.abs(v) for name, v in zip(slots, values, strict=True)
    ]
    if "mg" in slots:
        values[1] = (values[0] ** 2 + np.abs(values[1])).astype(values[1].dtype)
    return values


def rows_of(name, slots=1, **constants):
    """The update of rows 2 and 0 with the first two rows of a gradient."""

    def rule(w, m, v, g, **options):
        by_slot = {"accum": v if "Adagrad" in name else m} if slots == 1 else {"ms": v, "mom": m}
        values = {key: tf.constant(c, g.dtype) for key, c in constants.items()}
        node = getattr(raw, f"ResourceSparseApply{name}")
        node(var=w, grad=g[:2], indices=[2, 0], **by_slot, **values, **options)

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
)
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
)
def test_halves_are_those_of_the_rule(rule, ours):
    values, slots, g = half(40), [half(40, seed=1), np.abs(half(40, seed=2))], half(40, seed=3)
    results, _ = updated(rule, values, slots, [g])
    device = Device()
    w, m, v, slope = (device.from_host(a, BINARY16) for a in (values, *slots, g))
    powers = [device.context(BINARY16).constant(c) for c in (0.9, 0.999)]
    slot_values = {descent: (), momentum: (m,), adam: (m, v, *powers)}[rule]
    step = ours.rule(device, w, slope, slot_values, ours.rate)
    np.testing.assert_array_equal(results[0].view("u2"), np.float16(step[2].values).view("u2"))


def test_a_row_is_updated_once():
    def twice(w, m, v, g):
        rate, share = tf.constant(0.05), tf.constant(0.9)
        raw.ResourceSparseApplyMomentum(
            var=w, accum=m, lr=rate, grad=g[:2], indices=[1, 1], momentum=share
        )

    with pytest.raises(ValueError, match="updates a row twice; add its gradients before"):
        updated(twice, numbers(4, 3), [numbers(4, 3), numbers(4, 3)], [numbers(4, 3)])


@pytest.mark.parametrize(
    ("node", "options"),
    [*((node, {}) for node in MORE), ("ResourceApplyFtrl", {"multiply_linear_by_lr": True}),
     ("ResourceApplyFtrlV2", {"multiply_linear_by_lr": True})],
)
def test_other_updates_are_as_on_tensorflow(node, options):
    _, slots, constants, name = MORE[node]
    rule = plain(name, *slots, **constants)
    values, held = numbers(4, 3), slots_for(node, lambda seed: numbers(4, 3, seed=seed))
    gradients = [numbers(4, 3, seed=s) for s in (7, 8)]
    results, types = updated(rule, values, held, gradients, **options)
    expected, _ = updated(rule, values, held, gradients, native=True, **options)
    assert node in types
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=4e-6, atol=4e-6)


MORE_ROWS = ("Adadelta", "Ftrl", "FtrlV2", "CenteredRMSProp")
#: Nodes that are compared beside CASES.
ALSO = {*MORE, *(f"ResourceSparseApply{name}" for name in MORE_ROWS)}


@pytest.mark.parametrize("name", MORE_ROWS)
def test_other_updates_of_rows_are_as_on_tensorflow(name):
    _, slots, constants, _ = MORE[f"ResourceApply{name}"]
    whole = plain(name, *slots, **constants)

    def rule(w, *rest):
        held, g = dict(zip(slots, rest[:-1], strict=True)), rest[-1]
        values = {key: tf.constant(c, g.dtype) for key, c in constants.items()}
        node = getattr(raw, f"ResourceSparseApply{name}")
        node(var=w, grad=g[:2], indices=[2, 0], **held, **values)

    values = numbers(4, 3)
    held = slots_for(f"ResourceApply{name}", lambda seed: numbers(4, 3, seed=seed))
    g = numbers(4, 3, seed=8)
    results, types = updated(rule, values, held, [g])
    assert f"ResourceSparseApply{name}" in types
    dense = np.zeros_like(g)
    dense[[2, 0]] = g[:2]
    expected, _ = updated(whole, values, held, [dense])
    for ours, theirs, before in zip(results, expected, (values, *held), strict=True):
        assert ours[[0, 2]].tolist() == theirs[[0, 2]].tolist()
        assert ours[[1, 3]].tolist() == before[[1, 3]].tolist()


def nearest(x):
    return np.float16(x).astype(np.float64)


def amsgrad_in_half(w, m, v, top, g):
    """One operation after the other, each rounded to binary16 from binary64."""
    r = nearest
    b1, b2, rate, epsilon, p1, p2 = map(r, (0.9, 0.999, 0.01, 1e-3, 0.9, 0.999))
    alpha = r(r(r(np.sqrt(r(1 - p2))) * rate) / r(1 - p1))
    m = r(m + r(r(g - m) * r(1 - b1)))
    v = r(v + r(r(r(g * g) - v) * r(1 - b2)))
    top = np.maximum(top, v)
    return r(w - r(r(m * alpha) / r(r(np.sqrt(top)) + epsilon))), m, v, top


def adadelta_in_half(w, a, u, g):
    r = nearest
    rho, rate, epsilon = map(r, (0.9, 0.5, 1e-3))
    rest = r(1 - rho)
    a = r(r(a * rho) + r(r(g * g) * rest))
    step = r(r(r(np.sqrt(r(u + epsilon))) / r(np.sqrt(r(a + epsilon)))) * g)
    u = r(r(u * rho) + r(r(step * step) * rest))
    return r(w - r(step * rate)), a, u


def adamax_in_half(w, m, v, g):
    r = nearest
    b1, b2, rate, epsilon = map(r, (0.9, 0.999, 0.01, 1e-3))
    m = r(r(m * b1) + r(g * r(1 - b1)))
    v = np.maximum(r(v * b2), np.abs(g))
    return r(w - r(r(rate / r(1 - b1)) * r(m / r(v + epsilon)))), m, v


@pytest.mark.parametrize(
    ("node", "oracle"),
    [("ResourceApplyAdamWithAmsgrad", amsgrad_in_half),
     ("ResourceApplyAdadelta", adadelta_in_half), ("ResourceApplyAdaMax", adamax_in_half)],
)
def test_halves_round_each_operation_once(node, oracle):
    _, slots, constants, name = MORE[node]
    values, g = half(60), half(60, seed=9)
    held = slots_for(node, lambda seed: half(60, seed=seed))
    results, _ = updated(plain(name, *slots, **constants), values, held, [g])
    expected = oracle(*(x.astype(np.float64) for x in (values, *held, g)))
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours.view("u2"), np.float16(theirs).view("u2"))


def test_slots_that_are_not_updated_stay():
    def rule(w, a, g):
        raw.ResourceApplyAdagrad(var=w, accum=a, lr=tf.constant(0.05), grad=g, update_slots=False)

    values, total, g = numbers(4, 3), np.abs(numbers(4, 3, seed=1)) + 1, numbers(4, 3, seed=2)
    results, _ = updated(rule, values, [total], [g])
    expected, _ = updated(rule, values, [total], [g], native=True)
    assert results[1].tolist() == total.tolist()
    np.testing.assert_allclose(results[0], expected[0], rtol=2e-6)


OPTIMISERS = {
    "Adadelta": lambda k: k.Adadelta(0.5), "Adamax": lambda k: k.Adamax(0.01),
    "Ftrl": lambda k: k.Ftrl(0.05, l1_regularization_strength=0.01),
    "AMSGrad": lambda k: k.Adam(0.01, amsgrad=True),
    "centred": lambda k: k.RMSprop(0.01, centered=True, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("legacy", [True, False])
def test_models_of_keras_train_with_them_as_on_tensorflow(name, legacy):
    keras = tf.keras.optimizers.legacy if legacy else tf.keras.optimizers
    x, y, start = numbers(8, 3), numbers(8, 2, seed=1), numbers(3, 2, seed=2)

    def trained(scope):
        with scope:
            layer = tf.keras.layers.Dense(2, use_bias=False, input_shape=(3,))
            model = tf.keras.Sequential([layer])
            layer.set_weights([start])
            model.compile(OPTIMISERS[name](keras), "mse", steps_per_execution=2)
            model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
            return layer.get_weights()[0]

    with machine(f32_denormals="ieee"):
        ours = trained(ipu.ipu_strategy.IPUStrategyV1().scope())
    np.testing.assert_allclose(ours, trained(nullcontext()), rtol=1e-5, atol=1e-5)
    assert not np.array_equal(ours, start)
