"""Custom getters: the tutorial's rules, row by row (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, round_to
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.train import Trainer
from ipu.learn.variables import (
    Variable,
    fp32_parameter_getter,
    get_variable,
    variable_scope,
)


@pytest.mark.source("S4-21")
def test_a_custom_getter_stands_in_for_get_variable(variables):
    calls = []

    def getter(inner, name, **arguments):
        calls.append((name, arguments["shape"], arguments["dtype"], arguments["trainable"]))
        return inner(name, **arguments)

    with variable_scope("a", use_resource=True, custom_getter=getter):
        variable = get_variable("w", [2, 3], BINARY16, trainable=False)
    assert calls == [("a/w", [2, 3], BINARY16, False)]
    assert variable is variables["a/w"]


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

    training = Trainer(model, SGD(0.1), policy=policy)
    assert training.forward(np.eye(4)).dtype == policy.activations
    assert {v.dtype for v in training.variables.values()} == {BINARY32}


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
        variable = Variable(device.zeros(4, BINARY16), device, "all/own")
        get_variable("reached", [4], BINARY16)
    assert variable.dtype == BINARY16
    assert "all/own" not in variables
    assert variables["all/reached"].dtype == BINARY32
