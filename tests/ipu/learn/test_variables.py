"""Variables, scopes, custom getters and initialisers: the tutorial's rules, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, round_to
from ipu.learn.initialisers import glorot_uniform, he_uniform, uniforms, zeros
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer
from ipu.learn.variables import (
    AUTO_REUSE,
    Variable,
    Variables,
    fp32_parameter_getter,
    get_variable,
    variable_scope,
)
from ipu.machine import Device


@pytest.fixture
def variables():
    with Variables(Device()) as made:
        yield made


@pytest.mark.source("S4-21")
def test_a_custom_getter_stands_in_for_get_variable(variables):
    calls = []

    def getter(inner, name, **arguments):
        calls.append((name, arguments["shape"], arguments["dtype"], arguments["trainable"]))
        return inner(name, **arguments)

    with variable_scope("a", use_resource=True, custom_getter=getter):
        made = get_variable("w", [2, 3], BINARY16, trainable=False)
    assert calls == [("a/w", [2, 3], BINARY16, False)]
    assert made is variables["a/w"]


@pytest.mark.source("S4-21")
def test_getters_nest_the_inner_one_first(variables):
    order = []

    def named(label):
        def getter(inner, name, **arguments):
            order.append(label)
            return inner(name, **arguments)

        return getter

    with (
        variable_scope("a", use_resource=True, custom_getter=named("outer")),
        variable_scope("b", custom_getter=named("inner")),
    ):
        get_variable("w", [1])
    assert order == ["inner", "outer"]
    assert list(variables) == ["a/b/w"]


def positional(getter, name, shape, dtype, *rest, **named):
    """A getter as users write it, in the order of `get_variable`."""
    return getter(name, shape, dtype, *rest, **named)


@pytest.mark.source("S4-21")
@pytest.mark.source("S4-22")
@pytest.mark.parametrize("policy", [FP32, FP16, MIXED], ids=str)
@pytest.mark.parametrize("inner", [fp32_parameter_getter, positional])
def test_getters_nest_in_themselves_and_in_the_policy_s(policy, inner):
    def model(x):
        with (
            variable_scope("s", custom_getter=fp32_parameter_getter),
            variable_scope("t", custom_getter=inner),
        ):
            return dense(x, 3, "layer")

    made = Trainer(model, SGD(0.1), policy=policy)
    assert made.forward(np.eye(4)).dtype == policy.activations
    assert {v.dtype for v in made.variables.values()} == {BINARY32}


@pytest.mark.source("S4-22")
def test_parameters_are_single_and_the_layer_gets_a_copy(variables):
    with variable_scope("all", use_resource=True, custom_getter=fp32_parameter_getter):
        copy = get_variable("w", [4], BINARY16)
        same = get_variable("v", [4], BINARY32)
        fixed = get_variable("mean", [4], BINARY16, trainable=False)
    assert (copy.name, copy.dtype) == ("all/w_cast", BINARY16)
    assert variables["all/w"].dtype == BINARY32
    assert same is variables["all/v"]
    assert fixed is variables["all/mean"]
    assert fixed.dtype == BINARY16
    assert (
        copy.array.values.tolist() == round_to(variables["all/w"].array.values, BINARY16).tolist()
    )


@pytest.mark.source("S4-24")
def test_the_copy_cannot_be_assigned_to(variables):
    with variable_scope("all", use_resource=True):
        variable = get_variable("plain", [1], BINARY16)
        with variable_scope("mixed", custom_getter=fp32_parameter_getter):
            copy = get_variable("w", [1], BINARY16)
    assert isinstance(variable, Variable)
    assert not isinstance(copy, Variable)
    with pytest.raises(AttributeError, match="assign"):
        copy.assign(copy.array)


@pytest.mark.source("S4-23")
def test_a_layer_that_makes_its_own_variable_is_out_of_the_getter_s_reach(variables):
    device = variables.device
    with variable_scope("all", use_resource=True, custom_getter=fp32_parameter_getter):
        own = Variable(device.zeros(4, BINARY16), device, "all/own")
    assert own.dtype == BINARY16
    assert "all/own" not in variables


@pytest.mark.source("S4-25")
def test_only_resource_variables_run(variables):
    with (
        variable_scope("a"),
        pytest.raises(ValueError, match="use_resource=False for variable a/w"),
    ):
        get_variable("w", [1])
    with variable_scope("b", use_resource=True), variable_scope("c"):
        get_variable("w", [1])


@pytest.mark.source("S4-26")
def test_two_layers_of_one_name_are_refused(variables):
    x = Tensor(variables.device.from_host(np.ones((1, 2)), BINARY16), variables.device)
    dense(x, 3, "first")
    with pytest.raises(ValueError, match="first/weights exists already; give the layer another"):
        dense(x, 3, "first")


@pytest.mark.source("S4-27")
@pytest.mark.parametrize("fmt", [BINARY16, BINARY32])
@pytest.mark.parametrize("getter", [None, fp32_parameter_getter])
def test_layers_compute_in_the_format_of_their_input(variables, fmt, getter):
    x = Tensor(variables.device.from_host(np.ones((1, 2)), fmt), variables.device)
    with variable_scope("all_vars", use_resource=True, custom_getter=getter):
        assert dense(x, 3, "layer").dtype == fmt
    expected = BINARY32 if getter else fmt
    assert {v.dtype for v in variables.values()} == {expected}
    assert [v.shape for v in variables.trainable] == [(2, 3), (3,)]


def test_reuse_shares_and_demands(variables):
    with variable_scope("a", use_resource=True):
        made = get_variable("w", [2])
    with variable_scope("a", use_resource=True, reuse=True):
        assert get_variable("w", [2]) is made
        with pytest.raises(ValueError, match="a/v does not exist"):
            get_variable("v", [2])
        with pytest.raises(ValueError, match=r"shape=\(3,\) for a/w, which has \(2,\)"):
            get_variable("w", [3])
        with pytest.raises(ValueError, match="dtype=binary16 for a/w, which is binary32"):
            get_variable("w", [2], BINARY16)
    with variable_scope("a", use_resource=True, reuse=AUTO_REUSE):
        get_variable("v", [2])
        assert get_variable("v", [2]) is variables["a/v"]


def test_reuse_holds_in_inner_scopes(variables):
    with (
        variable_scope("a", use_resource=True, reuse=True),
        variable_scope("b", reuse=False),
        pytest.raises(ValueError, match="does not exist"),
    ):
        get_variable("w", [1])


def test_reuse_is_inherited_unless_a_scope_chooses_to_reuse(variables):
    """TensorFlow 1: reuse = reuse or that of the outer scope."""
    with variable_scope("a", use_resource=True, reuse=AUTO_REUSE):
        for _ in range(2):
            with variable_scope("b", reuse=False):
                get_variable("w", [1])
    with (
        variable_scope("a", use_resource=True, reuse=True),
        variable_scope("c", reuse=AUTO_REUSE),
    ):
        get_variable("w", [1])
    assert list(variables) == ["a/b/w", "a/c/w"]


def test_scopes_end_also_when_an_error_leaves_them(variables):
    with pytest.raises(RuntimeError, match="stop"), variable_scope("a", use_resource=True):
        raise RuntimeError("stop")
    with variable_scope("b", use_resource=True) as path:
        assert path == "b"


def test_layers_outside_of_a_model_are_told_what_to_open():
    with pytest.raises(RuntimeError, match="open a block first: with Variables"):
        get_variable("w", [1])


def test_assignment_keeps_shape_and_format(variables):
    with variable_scope("a", use_resource=True):
        made = get_variable("w", [2], BINARY16)
    with pytest.raises(ValueError, match=r"a/w is binary16 of shape \(2,\), got binary32"):
        made.assign(variables.device.zeros((2,), BINARY32))


# Initial values -------------------------------------------------------------------------------


def test_initial_values_depend_on_seed_and_name_alone():
    one = uniforms((100,), 1, "w")
    assert (one == uniforms((100,), 1, "w")).all()
    assert not (one == uniforms((100,), 2, "w")).any()
    assert not (one == uniforms((100,), 1, "v")).any()
    assert one.min() >= 0
    assert one.max() < 1


@pytest.mark.parametrize(("make", "limit"), [(glorot_uniform, 0.25), (he_uniform, 0.3061862178)])
def test_limits_of_the_usual_initialisers(make, limit):
    values = make((64, 32), 0, "w")
    assert 0.98 * limit < np.abs(values).max() <= limit
    assert not zeros((2,), 0, "w").any()


def test_every_format_starts_from_the_same_numbers():
    found = {}
    for fmt in (BINARY16, BINARY32):
        with Variables(Device(), seed=4) as made, variable_scope("a", use_resource=True):
            found[fmt] = get_variable("w", [8, 8], fmt).array.values
        assert made["a/w"].dtype == fmt
    exact = glorot_uniform((8, 8), 4, "a/w")
    for fmt, values in found.items():
        assert values.tolist() == round_to(exact, fmt).tolist()
