"""Layers under every policy: variables, formats in and out, partials, training (known answers)."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32
from ipu.learn import losses, nn
from ipu.learn.mode import training
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP8, FP16, FP32, MIXED, LayerPolicies, Policy
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer
from ipu.learn.variables import (
    Variables,
    policy_getter,
    variable_scope,
)
from ipu.machine import Device
from tests.ipu.learn.small import X, trained

BF16 = Policy(BFLOAT16, BFLOAT16)


TARGETS = {FP8: "mk2-fp8", BF16: "hypothetical"}


def network(x: Tensor) -> Tensor:
    """One of every layer."""
    x = nn.relu(nn.batch_norm(nn.conv(x, 8, 3, "first", use_bias=False), "batch"))
    x = nn.max_pool(nn.gelu(nn.group_norm(nn.conv(x, 8, 3, "second"), 2, "group")), 2)
    x = nn.average_pool(nn.tanh(nn.layer_norm(x, "layer")), 2, padding="SAME")
    x = nn.dropout(nn.sigmoid(nn.dense(nn.flatten(x), 8, "wide")), 0.25)
    return nn.dense(x, 3, "last")


def batch(n=4):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (n, 6, 6, 2)), np.arange(n) % 3


@pytest.mark.source("S4-27")
@pytest.mark.parametrize("policy", [FP32, FP16, MIXED, FP8, BF16], ids=str)
def test_the_same_network_trains_under_every_policy(policy):
    target = TARGETS.get(policy, "mk2")
    trainer = Trainer(network, SGD(0.5), policy=policy, target=target)
    history = [trainer.step(*batch()) for _ in range(6)]
    assert history[-1] < history[0]
    dtypes = {v.dtype for v in trainer.variables.trainable}
    assert dtypes == {policy.param}
    assert trainer.forward(batch()[0]).dtype == policy.output
    assert {name.rpartition("/")[2] for name in trainer.variables} == {
        "weights", "biases", "gamma", "beta", "moving_mean", "moving_variance"
    }


def test_images_and_rates_are_checked():
    device = Device()
    x = Tensor(device.zeros((2, 4), BINARY32), device)
    with pytest.raises(ValueError, match="conv takes images"):
        nn.conv(x, 4, 3, "c")
    with pytest.raises(ValueError, match="pooling takes images"):
        nn.max_pool(x, 2)
    with pytest.raises(ValueError, match="rate=1"):
        nn.dropout(x, 1)
    with pytest.raises(ValueError, match="rows that are not probabilities"):
        losses.softmax_cross_entropy(x, np.ones((2, 4)))
    with pytest.raises(ValueError, match="give that of logits"):
        losses.softmax_cross_entropy(x, np.ones((2, 3)))


def normed(x: Tensor) -> Tensor:
    return nn.batch_norm(x, "norm", momentum=0.75)


def run(variables, x, fmt=BINARY16):
    device = variables.device
    reuse = len(variables) > 0
    with variables, variable_scope("net", use_resource=True, reuse=reuse):
        return normed(Tensor(device.from_host(x, fmt), device))


def test_moving_statistics_follow_in_training_and_serve_afterwards():
    variables = Variables(Device(f32_denormals="ieee"))
    x = np.array([[1.0, -2.0], [3.0, 6.0], [2.0, 2.0], [6.0, -6.0]])
    with training() as updates:
        run(variables, x)
        mean, variance = (variables[f"net/norm/moving_{k}"] for k in ("mean", "variance"))
        assert mean.array.values.tolist() == [0.0, 0.0]  # not before the step is done
        run(variables, x)  # a second mini-batch goes on from what is noted
        updates.apply()
    assert (mean.dtype, mean.trainable) == (BINARY32, False)
    f = np.float32
    expected = f(0)
    for _ in range(2):
        expected += f(f(3) - expected) * f(0.25)
    assert mean.array.values[0] == expected
    assert variance.array.values[0] == 1 + (3.5 - 1) * (0.25 + 0.1875)
    y = run(variables, x)
    inverse = f(1) / np.sqrt(variance.array.values + f(1e-3), dtype=f)
    h = np.float16
    assert y.array.values.tolist() == ((h(x) - h(mean.array.values)) * h(inverse)).tolist()


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
