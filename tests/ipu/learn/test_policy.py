"""Policies, their scopes and products of quarters; known answers, and an oracle in fractions."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, F143, F152, round_to
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.records.units import find_unit
from ipu.experiments.lab.machine import units_of
from ipu.learn import fp8, ops
from ipu.learn.accumulate import Accumulation
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP8, FP16, FP32, MIXED, LayerPolicies, Policy
from ipu.learn.scopes import partials_type, stochastic_rounding
from ipu.learn.tensor import Tensor, gradients
from ipu.learn.train import Trainer
from ipu.learn.variables import (
    Variable,
    Variables,
    get_variable,
    policy_getter,
    variable_scope,
)
from ipu.machine import Device, FpCtl
from tests.ipu.learn.small import LABELS, X, trained, trainer

BF16 = Policy(BINARY32, BFLOAT16)


# Formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["p=f32,c=f32,part=f32", "p=f16,c=f16,part=f16",
                                  "p=f32,c=bf16,part=f32", "p=f16,c=f16,part=f32,acc=f32",
                                  "p=f32,c=f16,part=f32,acc=f16,out=f32",
                                  "p=f32,c=f8,part=f16"])  # fmt: skip
def test_policies_are_their_string(text):
    assert str(Policy.parse(text)) == text


def test_what_a_policy_does_not_say_follows():
    assert Policy.parse("p=f32,c=f16,part=f32,acc=f32,out=f16") == MIXED
    assert (FP8.partials, FP8.accumulator, FP8.output) == (BINARY16, BINARY32, BINARY16)
    assert (FP16.partials, FP16.accumulator, FP16.output) == (BINARY32, BINARY16, BINARY16)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("p=f16,c=f32", "parameters are kept in the format of activations or in binary32"),
     ("p=f32,c=bf16,part=f16", "partials=binary16 go with binary16 inputs only"),
     ("p=f32,c=f8,part=f32", "products of quarters keep binary16 partials"),
     ("weights=f16", "policy item 'weights=f16' is not known"),
     ("p=f8", "policy item 'p=f8' is not known"),
     ("p=f32,out=f8", "policy item 'out=f8' is not known")],
)  # fmt: skip
def test_impossible_policies_are_refused(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        Policy.parse(text)


def test_formats_that_no_policy_has_are_refused():
    with pytest.raises(ValueError, match=r"accumulator=f152 .* use acc=f16\|f32\|bf16"):
        Policy(accumulator=F152)


@pytest.mark.parametrize("text", ["p=f32,c=f32,part=f16", "p=f32,c=f16,part=f16,out=f32"])
def test_partials_narrower_than_the_output_are_raised_and_said_once(text):
    with pytest.warns(RuntimeWarning, match="partials=binary16 are narrower than the out") as said:
        policy = Policy.parse(text)
    assert len(said) == 1
    assert policy.partials == BINARY32


def test_the_same_model_runs_in_every_format():
    """Only the policy differs; all learn, and the units are those of the policy."""
    for policy, target, unit in (
        (FP32, "mk2", "AMP_F32_F32"),
        (FP16, "mk2", "AMP_F16_F32"),
        (MIXED, "mk2", "AMP_F16_F32"),
        (BF16, "hypothetical", "AMP_BF16_F32"),
        (FP8, "mk2-fp8", "AMP_F8_F16"),
    ):
        made, losses = trained(policy=policy, target=target)
        assert losses[-1] < losses[0]
        assert set(made.device.units_used) == {unit}
        assert {v.dtype for v in made.variables.values()} == {policy.param}


def test_reports_say_what_is_no_ipu_feature_and_what_is_assumed():
    rests = {}
    for policy, target in ((FP16, "mk2"), (BF16, "hypothetical"), (FP8, "mk2-fp8")):
        made, _ = trained(1, policy=policy, target=target)
        rests[policy] = " ".join(map(str, units_of(made.device)))
    assert "not an IPU feature: bfloat16" in rests[BF16]
    assert "quarters: smallest power of two" in rests[FP8]
    assert not any(word in rests[FP16] for word in ("not an IPU feature", "quarters"))
    with pytest.raises(ValueError, match="hypothetical has bfloat16"):
        trained(policy=BF16)
    with pytest.raises(ValueError, match="mk2-fp8 has quarters"):
        trained(policy=FP8)


# Layer by layer -------------------------------------------------------------------------------


def test_a_layer_can_have_another_policy():
    policy = FP16.override({"out*": FP32, "hidden": MIXED})
    made, _ = trained(1, policy=policy)
    found = {name: v.dtype for name, v in made.variables.items()}
    assert found["all_vars/hidden/weights"] == BINARY32
    assert found["all_vars/output/weights"] == BINARY32
    assert made.forward(X).dtype == BINARY32
    assert set(made.device.units_used) == {"AMP_F16_F32", "AMP_F32_F32"}
    assert str(policy) == f"{FP16};out*:{FP32};hidden:{MIXED}"
    assert LayerPolicies.parse(str(policy)) == policy


def test_policies_of_layers_that_are_not_there_are_refused():
    made = trainer(policy=FP16.override({"out*": FP32, "hiden": MIXED}))
    said = "layers='hiden' matches no layer; did you mean 'hidden'. There are hidden, output"
    for _ in range(2):
        with pytest.raises(ValueError, match=said):
            made.forward(X)
        assert not made.variables


@pytest.mark.parametrize("scope", ["", "model"])
def test_layers_are_known_by_their_name_inside_the_scope_that_holds_the_model(scope):
    device = Device()
    variables = Variables(device, policy=FP32.override({"block/*": FP16}), scope=scope)
    with (
        variables,
        variable_scope(scope) if scope else nullcontext(),
        variable_scope("block", use_resource=True, custom_getter=policy_getter),
    ):
        y = dense(Tensor(device.from_host(X, BINARY32), device), 3, "layer")
    assert y.dtype == BINARY16


def test_a_layer_can_hand_on_a_wider_result():
    made, _ = trained(1, policy=FP16.override({"output": Policy.parse("p=f16,c=f16,out=f32")}))
    assert made.forward(X).dtype == BINARY32
    assert {v.dtype for v in made.variables.values()} == {BINARY16}


def test_a_layer_s_partials_hold_in_it_alone():
    half = Policy.parse("p=f16,c=f16,part=f16")
    made, _ = trained(1, policy=FP16.override({"hidden": half}))
    assert set(made.device.units_used) == {"AMP_F16_F32", "AMP_F16_F16"}
    assert made.device.partials == BINARY32


@pytest.mark.source("S4-50")
def test_weights_partials_and_accumulators_have_formats_of_their_own():
    """As arguments of one operation, and as one layer's policy."""
    with Variables(Device()) as made, variable_scope("model", use_resource=True):
        w = get_variable("weights", [8, 3], BINARY16)
        x = Tensor(made.device.from_host(X, BINARY16), made.device)
        ops.matmul(x, w, partials=BINARY16)
        how = Accumulation(2, dtype=BINARY32)
    assert set(made.device.units_used) == {"AMP_F16_F16"}
    assert [a.format for a in how.start(made.trainable).values] == [BINARY32]
    said = Policy.parse("p=f16,c=f16,part=f16,acc=f32,out=f16")
    assert [said.param, said.partials, said.accumulator] == [BINARY16, BINARY16, BINARY32]


def test_no_policies_of_layers_that_are_none():
    with pytest.raises(TypeError, match="map patterns of names to policies"):
        LayerPolicies(FP16, (("output", "p=f32"),))


# Scopes ---------------------------------------------------------------------------------------


@pytest.mark.source("S4-49")
def test_half_partials_are_a_choice_of_the_policy_or_of_a_scope():
    made, _ = trained(1, policy=Policy.parse("p=f16,c=f16,part=f16"))
    assert set(made.device.units_used) == {"AMP_F16_F16"}
    scoped, _ = trained(0, policy=FP16)
    with partials_type(BINARY16, scoped.device):
        scoped.step(X, LABELS)
        with partials_type(BINARY32, scoped.device):
            assert scoped.device.partials == BINARY32
        assert scoped.device.partials == BINARY16
    assert set(scoped.device.units_used) == {"AMP_F16_F16"}
    assert scoped.device.partials == BINARY32


def test_scopes_in_a_model_change_what_is_inside_and_its_gradient():
    def model(x):
        with stochastic_rounding(False), partials_type(BINARY16):
            hidden = dense(x, 6, "hidden")
        with stochastic_rounding(True):
            return dense(hidden, 3, "output")

    made = Trainer(model, SGD(0.05), policy=FP16, control=FpCtl(esr=True))
    loss = made.loss(X, LABELS)
    assert made.device.clock.operation == 2  # the output's product and its bias
    made.scaled_gradients(loss)
    # The logits' gradient, then of the output layer: bias, input, weights.
    assert made.device.clock.operation == 6
    assert made.device.control.esr
    assert made.device.partials == BINARY32


def test_scopes_end_when_an_error_leaves_them_and_need_a_device():
    device = Device(control=FpCtl(esr=True))
    with (
        pytest.raises(KeyError),
        stochastic_rounding(False, device),
        partials_type(BINARY16, device),
    ):
        raise KeyError
    assert device.control.esr
    assert device.partials == BINARY32
    with pytest.raises(RuntimeError, match="open a block first"), stochastic_rounding(True):
        pass
    with pytest.raises(TypeError, match="override=1 is not a bool"):
        stochastic_rounding(1, device).__enter__()
    with pytest.raises(ValueError, match="dtype=f143 is not a format of partials"):
        partials_type(F143, device).__enter__()


def test_layers_without_a_policy_compute_in_the_format_of_their_input():
    with Variables(Device()) as variables, variable_scope("model", use_resource=True):
        x = Tensor(variables.device.from_host(X, BINARY16), variables.device)
        assert dense(x, 3, "layer").dtype == BINARY16
    assert variables["model/layer/weights"].dtype == BINARY16


# Quarters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [F143, F152])
@pytest.mark.parametrize("largest", [240.0, 241.0, 1.0, 1e-3, 57344.0, 60000.0, 2.0**-24, 0.0])
def test_the_scale_is_the_smallest_at_which_nothing_exceeds_the_largest_value(fmt, largest):
    device = Device("mk2-fp8")
    x = device.from_host([0.0, -largest, largest / 2], BINARY32)
    scale = fp8.scale_for(x, fmt)
    if largest == 0:
        assert scale == 0
        return
    assert largest * Fraction(2) ** -scale <= fmt.max
    assert scale == -31 or largest * Fraction(2) ** (1 - scale) > fmt.max
    quarter = fp8.quarters(device, x, fmt)
    assert (
        quarter.values.values.tolist()
        == round_to(np.ldexp(x.values.astype(float), -scale), fmt).tolist()
    )


def test_infinities_do_not_choose_the_scale_and_become_nan():
    device = Device("mk2-fp8")
    quarter = fp8.quarters(device, device.from_host([np.inf, 3.0], BINARY16), F143)
    assert quarter.scale == -6
    assert np.isnan(quarter.values.values).tolist() == [True, False]


def oracle(device, left, right):
    """left @ right through the unit, each output in exact fractions; rounding to nearest."""
    a, b = left.values, right.values
    settings = device.context(BINARY16).settings
    ask = Ask(
        find_unit("AMP_F8_F16"), a.format, b.format, settings, left.scale + right.scale, "keep"
    )
    rows, columns = a.codes().tolist(), b.T.codes().tolist()
    found = [[one_output(ask, row, column, 0)[0] for column in columns] for row in rows]
    return [[float(d.magnitude) * (-1 if d.sign else 1) for d in row] for row in found]


def test_a_product_of_quarters_and_its_gradients_are_the_unit_s_dot_products():
    device = Device("mk2-fp8")
    rng = np.random.default_rng(3)
    x, y = (
        Variable(device.from_host(values, BINARY16), device, name)
        for name, values in (
            ("x", rng.normal(size=(3, 40))),
            ("y", 1e-3 * rng.normal(size=(40, 2))),
        )
    )
    product = fp8.matmul(x, y)
    g = device.from_host(1e-4 * rng.normal(size=(3, 2)), BINARY16)
    found = [product.array, *gradients(product, [x, y], g)]
    a, b = (fp8.quarters(device, t.array, F143) for t in (x, y))
    c = fp8.quarters(device, g, F152)
    for array, (left, right) in zip(found, ((a, b), (c, b.T), (a.T, c)), strict=True):
        assert array.format == BINARY16
        assert array.values.tolist() == oracle(device, left, right)


def test_a_gradient_is_converted_once_for_both_backward_rules():
    """Every stochastic operation draws: two conversions and a product, then one and two."""
    device = Device("mk2-fp8", FpCtl(esr=True))
    values = device.from_host(np.linspace(-1, 1, 32).reshape(4, 8), BINARY16)
    y = fp8.matmul(Variable(values, device, "x"), Variable(values.T, device, "y"))
    assert device.clock.operation == 3
    for _ in range(2):
        before = device.clock.operation
        gradients(y, list(y.node.inputs), y.array)
        assert device.clock.operation == before + 3


@pytest.mark.parametrize(("channels", "stride"), [(8, 1), (3, 2)])
def test_a_convolution_of_quarters_and_its_gradients_are_those_of_the_scaled_values(
    channels, stride
):
    """Small integers: every product and sum is exact, so the numbers are those of binary64."""
    device = Device("mk2-fp8")
    rng = np.random.default_rng(5)
    images = rng.integers(-3, 4, (2, 4, 4, channels))
    kernels = rng.integers(-3, 4, (3, 3, channels, 4))
    x, w = (
        Variable(device.from_host(values * size, BINARY16), device, name)
        for name, values, size in (("x", images, 2.0**-9), ("w", kernels, 2.0**3))
    )
    y = fp8.conv2d(x, w, stride=stride)
    g = rng.integers(-2, 3, y.shape)
    by_x, by_w = gradients(y, [x, w], device.from_host(g * 2.0**-4, BINARY16))
    assert (y.array.values == convolved(images, kernels, stride) * 2.0**-6).all()
    # <g, J v> for unit tensors v: each gradient element is a convolution with one of them.
    for gradient, shape, size, moved in (
        (by_x, images.shape, 2.0**-1, lambda v: convolved(v, kernels, stride)),
        (by_w, kernels.shape, 2.0**-13, lambda v: convolved(images, v, stride)),
    ):
        for index in rng.integers(0, np.prod(shape), 12):
            v = np.zeros(shape)
            v.flat[index] = 1
            assert gradient.values.flat[index] == (g * moved(v)).sum() * size


def convolved(x, w, stride):
    """The definition, padded as TensorFlow's SAME."""
    n, sizes, kernel = len(x), x.shape[1:3], w.shape[:2]
    steps = [-(-size // stride) for size in sizes]
    total = [
        max((m - 1) * stride + k - size, 0) for m, k, size in zip(steps, kernel, sizes, strict=True)
    ]
    around = [(0, 0), *((t // 2, t - t // 2) for t in total), (0, 0)]
    padded = np.pad(x, around)
    y = np.zeros((n, *steps, w.shape[3]))
    for i in range(steps[0]):
        for j in range(steps[1]):
            top, left = i * stride, j * stride
            window = padded[:, top : top + kernel[0], left : left + kernel[1]]
            y[:, i, j] = np.tensordot(window, w, 3)
    return y
