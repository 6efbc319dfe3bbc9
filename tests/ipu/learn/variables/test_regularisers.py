"""Regularisers: differential against weight decay and numpy; names and rules of TensorFlow 1."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.tensor import gradients
from ipu.learn.train import Trainer
from ipu.learn.variables import (
    fp32_parameter_getter,
    get_variable,
    l1_regularizer,
    l2_regularizer,
    variable_scope,
)
from ipu.machine import Device
from tests.ipu.learn.small import LABELS, X


@pytest.mark.parametrize("fmt", [BINARY16, BINARY32], ids=str)
def test_l1_and_l2_and_their_gradients_are_numpy_s(variables, fmt):
    number = np.float16 if fmt == BINARY16 else np.float32
    with variable_scope("a", use_resource=True, dtype=fmt):
        w = get_variable("w", [3], initializer=lambda *_: np.array([3.0, -4.0, 0.0]))
    assert w.dtype == fmt
    one = variables.device.from_host(1.0, fmt)
    for make, value, slope in (
        (l2_regularizer, 0.3 / 2 * 25, number(0.15) * (number(2) * number([3, -4, 0]))),
        (l1_regularizer, 0.3 * 7, number(0.3) * number([1, -1, 0])),
    ):
        loss = make(0.3)(w)
        assert float(loss.array) == pytest.approx(value, rel=2e-3)
        assert gradients(loss, [w], one)[0].values.tolist() == slope.astype(np.float64).tolist()


def test_a_scope_s_regulariser_holds_for_trainable_variables_that_name_none(variables):
    two, one = l2_regularizer(0.25), l1_regularizer(1.0)
    with variable_scope("a", use_resource=True, regularizer=two):
        get_variable("w", [2])
        get_variable("own", [2], regularizer=one)
        get_variable("moving", [2], trainable=False)
        with variable_scope("inner", custom_getter=fp32_parameter_getter):
            get_variable("w", [2], BINARY16)
    assert variables.regularizers == {"a/w": two, "a/own": one, "a/inner/w": two}
    assert variables["a/inner/w"].dtype == BINARY32


def test_no_regularisers_no_loss(variables):
    with variable_scope("a", use_resource=True):
        get_variable("w", [2])
    assert variables.regularization_loss() is None


def test_getters_of_users_see_regularisers_only_where_there_are_some(variables):
    def plain(getter, name, shape=None, dtype=BINARY32, initializer=None, trainable=True):
        return getter(name, shape=shape, dtype=dtype, initializer=initializer, trainable=trainable)

    with variable_scope("a", use_resource=True, custom_getter=plain):
        get_variable("w", [2])
        with pytest.raises(TypeError, match="regularizer"):
            get_variable("v", [2], regularizer=l2_regularizer(1.0))


@pytest.mark.parametrize("policy", [FP32, FP16, MIXED], ids=str)
def test_l2_in_a_training_is_weight_decay(policy):
    """Up to roundings: the gradient of scale · w² / 2 is scale · w."""

    def model(regularizer):
        def network(x):
            with variable_scope("net", regularizer=regularizer):
                return dense(x, 3, "only")

        return network

    def train(network, optimizer):
        trainer = Trainer(network, optimizer, policy=policy)
        losses = [trainer.step(X, LABELS) for _ in range(5)]
        return losses, trainer.variables["all_vars/net/only/weights"].array.values

    _, decayed = train(model(None), SGD(0.05, weight_decay=0.5))
    losses, regular = train(model(l2_regularizer(0.5)), SGD(0.05))
    plain, _ = train(model(None), SGD(0.05))
    assert np.abs(decayed - regular).max() < 2e-3
    assert losses[0] > plain[0]


def test_what_is_no_scalar_is_refused(variables):
    with variable_scope("a", use_resource=True):
        get_variable("w", [2], regularizer=lambda w: w)
    with pytest.raises(ValueError, match=r"the regulariser of a/w returned shape \(2,\); return a"):
        variables.regularization_loss()


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_impossible_scales_are_refused(scale):
    for make in (l1_regularizer, l2_regularizer):
        with pytest.raises(ValueError, match="is not a regulariser's; use a finite number"):
            make(scale)


def test_a_scope_s_dtype_is_that_of_variables_that_name_none(variables):
    assert isinstance(variables.device, Device)
    with variable_scope("a", use_resource=True, dtype=BINARY16):
        get_variable("w", [2])
        get_variable("v", [2], BINARY32)
        with variable_scope("b"):
            get_variable("w", [2])
        with variable_scope("c", dtype=BINARY32):
            get_variable("w", [2])
    formats = {name: v.dtype for name, v in variables.items()}
    assert formats == {"a/w": BINARY16, "a/v": BINARY32, "a/b/w": BINARY16, "a/c/w": BINARY32}
