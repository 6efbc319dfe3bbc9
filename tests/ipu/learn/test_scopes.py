"""Scopes of rounding and partials: inside and no longer (law)."""

from __future__ import annotations

import pytest

from fpsim import BINARY16, BINARY32, F143
from ipu.learn.address import Region
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, Policy
from ipu.learn.scopes import partials_type, stochastic_rounding
from ipu.learn.train import Trainer
from ipu.machine import Device, FpCtl
from tests.ipu.learn.small import LABELS, X, trained


@pytest.mark.source("S4-49")
def test_half_partials_are_a_choice_of_the_policy_or_of_a_scope():
    training, _ = trained(1, policy=Policy.parse("p=f16,c=f16,part=f16"))
    assert set(training.device.units_used) == {"AMP_F16_F16"}
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

    training = Trainer(model, SGD(0.05), policy=FP16, control=FpCtl(esr=True))
    loss = training.loss(X, LABELS)
    drawn = training.worker.numbering.position
    assert drawn(Region.EVALUATE, 0) == 2  # the output's product and its bias
    training.scaled_gradients(loss)
    # The logits' gradient, then of the output layer: bias, input, weights.
    assert drawn(Region.EVALUATE, 0) == 6
    assert training.device.control.esr
    assert training.device.partials == BINARY32


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
