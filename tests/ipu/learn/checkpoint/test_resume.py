"""States restored into a training: law (resumed is never interrupted, in every bit), refusals."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY16, BINARY32
from ipu.learn.accumulate import Accumulation
from ipu.learn.checkpoint import NAME, Kept, load, save
from ipu.learn.loss_scale import (
    AutomaticLossScale,
    DynamicLossScale,
    KerasLossScale,
    NoLossScale,
    StaticLossScale,
)
from ipu.learn.nn import dense
from ipu.learn.optim import SGD, Adam, RMSProp
from ipu.learn.policy import MIXED
from ipu.learn.train import Trainer
from ipu.machine import FpCtl, FpSts
from tests.ipu.learn import resuming
from tests.ipu.learn.checkpoint.states import EMPTY, bits, training
from tests.tiers import pick

#: Optimisers and loss scales with something to remember.
KINDS = {
    "Adam": (Adam(0.01), {"loss_scale": StaticLossScale(8.0), "policy": MIXED}),
    "RMSProp": (RMSProp(0.01), {"loss_scale": StaticLossScale(8.0), "policy": MIXED}),
    "dynamic": (
        SGD(0.5, 0.9),
        {"loss_scale": DynamicLossScale(2.0**14, interval=2), "control": FpCtl(nanoo=True)},
    ),
    "PopART": (SGD(0.5), {"loss_scale": AutomaticLossScale(64.0)}),
    "Keras": (SGD(0.5), {"loss_scale": KerasLossScale(64.0, frequency=2)}),
    "own generator": (SGD(0.5, 0.9), {"random": "xoroshiro"}),
    "accumulated": (
        SGD(0.5),
        {"accumulation": Accumulation(4, "mean"), "loss_scale": NoLossScale()},
    ),
}


@pytest.mark.parametrize(
    ("other", "message"),
    {
        "seed": "seed is 0 there and 1 here",
        "units": "another model: variable all_vars/only/biases is binary32 of shape .2,. there and "
        "binary32 of shape .3,. here",
        "control": "control is 0x00080000 there and 0x00000000 here",
        "policy": "policy is p=f32,c=f16",
        "loss_scale": r"loss_scale is NoLossScale\(\) there and StaticLossScale\(factor=2.0, ",
        "optimizer": "optimizer is SGD.rate=0.5. there and SGD.rate=0.5000001. here",
        "conv_partials": "conv_partials is None there and binary16 here",
        "disable_sr_for_amp_vertices": "disable_sr_for_amp_vertices is False there and True here",
        "random": r"bits is Philox\(seed=0\) there and WorkerStreams\(seed=0, target=mk2\) here",
    }.items(),
)
def test_a_state_fits_the_training_it_was_taken_from(other, message):
    changes = {"seed": 1, "units": 3, "control": FpCtl(), "loss_scale": StaticLossScale(2.0)}
    changes["policy"] = replace(MIXED, compute=BINARY32)
    changes |= {"optimizer": SGD(0.5000001), "conv_partials": "half"}
    changes |= {"disable_sr_for_amp_vertices": True, "random": "xoroshiro"}
    state, trainer = training().state(), training(**{other: changes[other]})
    before = bits(trainer.state())
    with pytest.raises(ValueError, match=message):
        trainer.restore(state)
    assert bits(trainer.state()) == before


@pytest.mark.parametrize(
    ("there", "here", "message"),
    [(StaticLossScale(256.0), StaticLossScale(1024.0), "factor=256.0, .* here"),
     (AutomaticLossScale(), AutomaticLossScale(period=2), "period=1, .* there .*period=2"),
     (KerasLossScale(2.0), KerasLossScale(4.0), "initial=2.0.* there and .*initial=4.0")],
)
def test_a_loss_scale_goes_on_as_it_was_chosen(there, here, message):
    trainer = training(loss_scale=here)
    with pytest.raises(ValueError, match=message):
        trainer.restore(training(loss_scale=there).state())
    assert trainer.loss_scale == here


def test_what_a_loss_scale_has_moved_comes_back():
    moved = DynamicLossScale(512.0, interval=5, clean=3)
    control = FpCtl(nanoo=True)
    trainer = training(loss_scale=DynamicLossScale(64.0, interval=5), control=control)
    trainer.restore(training(loss_scale=moved, control=control).state())
    assert trainer.loss_scale == moved


def test_accumulators_by_variable_are_compared():
    half, single = (Accumulation(2, dtype=lambda v, f=f: f) for f in (BINARY16, BINARY32))
    with pytest.raises(ValueError, match=r"accumulator of .*weights is binary16 there"):
        training(accumulation=single).restore(training(accumulation=half).state())


@pytest.mark.parametrize("wrong", [{"loss_scale": {"factor": 0.0}}, {"flags": {"binary16": "x"}},
                                   {"slots": {"w": (Kept("f143", np.ones(1)),)}}])
def test_a_state_that_cannot_be_given_back_changes_nothing(wrong):
    def fresh():
        return training(loss_scale=AutomaticLossScale())

    trained, trainer = fresh(), fresh()
    trained.step(np.eye(2), np.array([0, 1]))
    before = bits(trainer.state())
    with pytest.raises(ValueError, match=r"not a loss scale|slots of w do not fit|x"):
        trainer.restore(replace(trained.state(), **wrong))
    assert bits(trainer.state()) == before


def test_a_model_without_variables_is_asked_for_them():
    with pytest.raises(RuntimeError, match=r"call trainer\.forward"):
        Trainer(lambda x: dense(x, 2, "only"), SGD(0.5)).restore(EMPTY)


def test_resumed_at_any_step_is_never_interrupted(whole, tmp_path):
    for step in pick((1, 5), range(1, 13), range(1, 13)):
        trainer, batches = resuming.build()
        resuming.train(trainer, batches, step)
        save(tmp_path / NAME, trainer.state(batches))
        again, batches = resuming.resumed(tmp_path)
        resuming.train(again, batches, 12)
        assert bits(again.state(batches)) == whole


def test_random_streams_are_those_of_the_target():
    trainer = training(random="xoroshiro")
    state, before = trainer.state(), bits(trainer.state())
    for streams in (None, state.streams[:7]):
        with pytest.raises(ValueError, match="has no random streams of this target"):
            trainer.restore(replace(state, streams=streams))
    with pytest.raises(ValueError, match="has no random streams of this target"):
        training().restore(replace(training().state(), streams=state.streams))
    assert bits(trainer.state()) == before


def test_flags_are_those_of_the_state_and_no_others():
    state = training().state()
    for flags in (Flags.NONE, Flags.INVALID | Flags.OVERFLOW):
        trainer = training()
        trainer.restore(replace(state, flags={"binary16": int(flags)}))
        assert trainer.device.context(BINARY16).flags == flags


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_training_goes_on_as_it_would_have(kind, tmp_path):
    optimizer, changes = KINDS[kind]
    uninterrupted, batches = resuming.build(optimizer, count=False, **changes)
    resuming.train(uninterrupted, batches, 3)
    save(tmp_path / NAME, uninterrupted.state(batches))
    again, position = resuming.build(optimizer, count=False, **changes)
    again.forward(batches.images[:1].values)
    again.restore(load(tmp_path / NAME), position)
    for trainer, source in ((uninterrupted, batches), (again, position)):
        resuming.train(trainer, source, 6)
    assert bits(again.state(position)) == bits(uninterrupted.state(batches))
    assert again.loss_scale == uninterrupted.loss_scale


def test_the_status_register_is_saved_as_a_word():
    """Its bits are those of the control register of then, which the flags alone do not tell."""
    trainer = training(control=FpCtl(nanoo=True))
    trainer.forward(np.eye(2))
    device = trainer.device
    big = device.from_host([1e4], BINARY16)
    with _gelu_s_registers(device):
        device.multiply(big, big)
    other = training(control=FpCtl(nanoo=True))
    other.forward(np.eye(2))
    other.restore(trainer.state())
    assert other.device.status == device.status == FpSts(oflo=True)
    with pytest.raises(ValueError, match="outside INV, DIV0 and OFLO"):
        other.restore(replace(trainer.state(), status=8))
    assert other.device.status == FpSts(oflo=True)


@contextmanager
def _gelu_s_registers(device):
    before, device.control = device.control, FpCtl()
    yield
    device.control = before
