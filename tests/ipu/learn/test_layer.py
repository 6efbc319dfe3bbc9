"""Layers under policies: formats in and out, partials (known answers)."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.nn import dense
from ipu.learn.policy import FP16, FP32, MIXED, LayerPolicies, Policy
from ipu.learn.tensor import Tensor
from ipu.learn.variables import (
    Variables,
    policy_getter,
    variable_scope,
)
from ipu.machine import Device
from tests.ipu.learn.small import X, trained


def test_a_layer_can_have_another_policy():
    policy = FP16.override({"out*": FP32, "hidden": MIXED})
    training, _ = trained(1, policy=policy)
    results = {name: v.dtype for name, v in training.variables.items()}
    assert results["all_vars/hidden/weights"] == BINARY32
    assert results["all_vars/output/weights"] == BINARY32
    assert training.forward(X).dtype == BINARY32
    assert set(training.device.units_used) == {"AMP_F16_F32", "AMP_F32_F32"}
    assert str(policy) == f"{FP16};out*:{FP32};hidden:{MIXED}"
    assert LayerPolicies.parse(str(policy)) == policy


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
    training, _ = trained(1, policy=FP16.override({"output": Policy.parse("p=f16,c=f16,out=f32")}))
    assert training.forward(X).dtype == BINARY32
    assert {v.dtype for v in training.variables.values()} == {BINARY16}


def test_a_layer_s_partials_hold_in_it_alone():
    half = Policy.parse("p=f16,c=f16,part=f16")
    training, _ = trained(1, policy=FP16.override({"hidden": half}))
    assert set(training.device.units_used) == {"AMP_F16_F32", "AMP_F16_F16"}
    assert training.device.partials == BINARY32


def test_layers_without_a_policy_compute_in_the_format_of_their_input():
    with Variables(Device()) as variables, variable_scope("model", use_resource=True):
        x = Tensor(variables.device.from_host(X, BINARY16), variables.device)
        assert dense(x, 3, "layer").dtype == BINARY16
    assert variables["model/layer/weights"].dtype == BINARY16


def test_a_layer_makes_its_variables_without_a_scope_around_it():
    """The scope of the layer says itself that variables are resource variables."""
    with Variables(Device()) as variables:
        dense(Tensor(variables.device.from_host(X, BINARY32), variables.device), 3, "layer")
    assert sorted(variables) == ["layer/biases", "layer/weights"]
