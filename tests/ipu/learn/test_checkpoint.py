"""State and checkpoints: law (resumed is never interrupted, in every bit), damaged files."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace

import numpy as np
import pytest

from fpsim.elementwise.codes import from_codes
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY16, BINARY32, F143, Format
from ipu.learn import checkpoint
from ipu.learn.accumulate import Accumulation
from ipu.learn.automatic_loss_scale import AutomaticLossScale, KerasLossScale
from ipu.learn.checkpoint import NAME, Keeper, interrupt_later, load, save
from ipu.learn.loss_scale import DynamicLossScale, NoLossScale, StaticLossScale
from ipu.learn.nn import dense
from ipu.learn.optim import SGD, Adam, RMSProp
from ipu.learn.policy import MIXED
from ipu.learn.state import Kept, State
from ipu.learn.train import Trainer
from ipu.machine import FpCtl
from tests.ipu.learn import resuming
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
    "accumulated": (
        SGD(0.5),
        {"accumulation": Accumulation(4, "mean"), "loss_scale": NoLossScale()},
    ),
}

EMPTY = State({}, {}, {}, {}, 0, {})


def bits(state: State) -> dict:
    """Every bit of a state, comparable."""
    record = asdict(state)
    record["parameters"] = {n: _bits(k) for n, k in state.parameters.items()}
    record["slots"] = {n: [_bits(k) for k in s] for n, s in state.slots.items()}
    return json.loads(json.dumps(record))


def _bits(item):
    return (item.format, item.values.tobytes().hex()) if isinstance(item, Kept) else item


@pytest.fixture(scope="module")
def whole():
    """The bits after 12 steps without interruption, and the training itself."""
    trainer, batches = resuming.build()
    resuming.train(trainer, batches, 12)
    return bits(trainer.state(batches))


# Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [BINARY16, BINARY32, F143], ids=lambda f: f.name)
def test_every_value_comes_back_with_its_bits(tmp_path, fmt: Format):
    codes = np.arange(min(fmt.n_codes, 1 << 16), dtype=np.uint64) * (fmt.n_codes >> 8 >> 8 or 1)
    kept = Kept(fmt.name, from_codes(codes, fmt))
    state = replace(
        EMPTY, parameters={"a/b": kept}, slots={"a/b": (kept, 3, 0.1)}, operation=2**63,
        progress={"total": float("nan"), "zero": -0.0}, position=7,
        counts=[["t", "add", {"zeros": 1}]],
    )  # fmt: skip
    save(tmp_path / "c", state)
    assert json.dumps(bits(load(tmp_path / "c"))) == json.dumps(bits(state))


def test_equal_states_give_equal_bytes(tmp_path):
    trainer, batches = resuming.build()
    resuming.train(trainer, batches, 1)
    for name in ("a", "b"):
        save(tmp_path / name, trainer.state(batches))
    save(tmp_path / "c", load(tmp_path / "a"))
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1


def flipped(content, place, bit):
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def test_damaged_files_are_refused_with_one_sentence(tmp_path):
    path = tmp_path / NAME
    values = Kept("binary32", np.arange(100, dtype=np.float32))
    save(path, replace(EMPTY, parameters={"w": values}))
    good = path.read_bytes()
    place = good.index(np.arange(50, 60, dtype=np.float32).tobytes())
    entry = good.index(b"PK\x01\x02")  # of the container's list; then what it needs to be unpacked
    flips = [flipped(good, *at) for at in ((place, 0), (entry + 6, 6), (entry + 8, 0))]
    for content in (good[:-1], good[: len(good) // 2], b"", b"PK", *flips):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"is cut short, damaged or no checkpoint") as error:
            load(path)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="cannot be read"):
        load(tmp_path / "none")


@pytest.mark.tier("full")
def test_every_wrong_bit_of_a_file_is_refused_or_means_nothing(tmp_path):
    path = tmp_path / NAME
    save(path, replace(EMPTY, parameters={"w": Kept("binary16", np.ones(2, np.float32))}))
    good = path.read_bytes()
    for place, bit in itertools.product(range(len(good)), range(8)):
        path.write_bytes(flipped(good, place, bit))
        # Times and attributes in the container mean nothing.
        with suppress(ValueError):
            assert load(path).parameters["w"].values.tolist() == [1, 1]


def test_a_header_without_a_checksum_is_damaged(tmp_path):
    header = json.dumps({"kind": checkpoint.KIND, "version": checkpoint.VERSION, "state": {}})
    with (tmp_path / "c").open("wb") as file:
        np.savez(file, header=np.frombuffer(header.encode(), np.uint8))
    with pytest.raises(ValueError, match="its checksum differs"):
        load(tmp_path / "c")


def test_the_checksum_sees_what_the_container_does_not(tmp_path, monkeypatch):
    save(tmp_path / "good", EMPTY)
    monkeypatch.setattr(checkpoint, "_digest", lambda *_: "0" * 64)
    save(tmp_path / "bad", EMPTY)
    monkeypatch.undo()
    assert load(tmp_path / "good") == EMPTY
    with pytest.raises(ValueError, match="its checksum differs"):
        load(tmp_path / "bad")


def test_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 2)
    save(tmp_path / "c", EMPTY)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="has version 2, this fpsim reads 1"):
        load(tmp_path / "c")


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    save(tmp_path / NAME, replace(EMPTY, position=1))

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"could not be written .No space left on device.; what"):
        save(tmp_path / NAME, replace(EMPTY, position=2))
    assert load(tmp_path / NAME).position == 1
    assert os.listdir(tmp_path) == [NAME]


def test_a_keeper_saves_when_it_is_due(tmp_path):
    keeper = Keeper(tmp_path / "new", seconds=0)
    assert keeper.load() is None
    assert keeper.due
    keeper.save(EMPTY)
    assert keeper.load() == EMPTY
    assert not Keeper(tmp_path, seconds=60).due


# Another training -----------------------------------------------------------------------------


def made(units=2, **options):
    options = {"policy": MIXED, "control": FpCtl(esr=True)} | options
    trainer = Trainer(lambda x: dense(x, units, "only"), **{"optimizer": SGD(0.5)} | options)
    trainer.forward(np.eye(2))
    return trainer


@pytest.mark.parametrize(
    ("other", "said"),
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
    }.items(),
)
def test_a_state_fits_the_training_it_was_taken_from(other, said):
    changes = {"seed": 1, "units": 3, "control": FpCtl(), "loss_scale": StaticLossScale(2.0)}
    changes["policy"] = replace(MIXED, compute=BINARY32)
    changes |= {"optimizer": SGD(0.5000001), "conv_partials": "half"}
    changes["disable_sr_for_amp_vertices"] = True
    state, trainer = made().state(), made(**{other: changes[other]})
    before = bits(trainer.state())
    with pytest.raises(ValueError, match=said):
        trainer.restore(state)
    assert bits(trainer.state()) == before


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [(StaticLossScale(256.0), StaticLossScale(1024.0), "factor=256.0, .* here"),
     (AutomaticLossScale(), AutomaticLossScale(period=2), "period=1, .* there .*period=2"),
     (KerasLossScale(2.0), KerasLossScale(4.0), "initial=2.0.* there and .*initial=4.0")],
)  # fmt: skip
def test_a_loss_scale_goes_on_as_it_was_chosen(there, here, said):
    trainer = made(loss_scale=here)
    with pytest.raises(ValueError, match=said):
        trainer.restore(made(loss_scale=there).state())
    assert trainer.loss_scale == here


def test_what_a_loss_scale_has_moved_comes_back():
    moved = DynamicLossScale(512.0, interval=5, clean=3)
    control = FpCtl(nanoo=True)
    trainer = made(loss_scale=DynamicLossScale(64.0, interval=5), control=control)
    trainer.restore(made(loss_scale=moved, control=control).state())
    assert trainer.loss_scale == moved


def test_accumulators_by_variable_are_compared():
    half, single = (Accumulation(2, dtype=lambda v, f=f: f) for f in (BINARY16, BINARY32))
    with pytest.raises(ValueError, match=r"accumulator of .*weights is binary16 there"):
        made(accumulation=single).restore(made(accumulation=half).state())


@pytest.mark.parametrize("wrong", [{"loss_scale": {"factor": 0.0}}, {"flags": {"binary16": "x"}},
                                   {"slots": {"w": (Kept("f143", np.ones(1)),)}}])  # fmt: skip
def test_a_state_that_cannot_be_given_back_changes_nothing(wrong):
    def fresh():
        return made(loss_scale=AutomaticLossScale())

    trained, trainer = fresh(), fresh()
    trained.step(np.eye(2), np.array([0, 1]))
    before = bits(trainer.state())
    with pytest.raises(ValueError, match=r"no loss scale|computes in|x"):
        trainer.restore(replace(trained.state(), **wrong))
    assert bits(trainer.state()) == before


def test_a_model_without_variables_is_asked_for_them():
    with pytest.raises(RuntimeError, match=r"call trainer\.forward"):
        Trainer(lambda x: dense(x, 2, "only"), SGD(0.5)).restore(EMPTY)


# Resuming -------------------------------------------------------------------------------------


def test_resumed_at_any_step_is_never_interrupted(whole, tmp_path):
    for step in pick((1, 5), range(1, 13), range(1, 13)):
        trainer, batches = resuming.build()
        resuming.train(trainer, batches, step)
        save(tmp_path / NAME, trainer.state(batches))
        again, batches = resuming.resumed(tmp_path)
        resuming.train(again, batches, 12)
        assert bits(again.state(batches)) == whole


def test_flags_are_those_of_the_state_and_no_others():
    state = made().state()
    for flags in (Flags.NONE, Flags.INVALID | Flags.OVERFLOW):
        trainer = made()
        trainer.restore(replace(state, flags={"binary16": int(flags)}))
        assert trainer.device.context(BINARY16).flags == flags


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_training_goes_on_as_it_would_have(kind, tmp_path):
    optimizer, changes = KINDS[kind]
    whole, batches = resuming.build(optimizer, count=False, **changes)
    resuming.train(whole, batches, 3)
    save(tmp_path / NAME, whole.state(batches))
    again, position = resuming.build(optimizer, count=False, **changes)
    again.forward(batches.images[:1].values)
    again.restore(load(tmp_path / NAME), position)
    for trainer, source in ((whole, batches), (again, position)):
        resuming.train(trainer, source, 6)
    assert bits(again.state(position)) == bits(whole.state(batches))
    assert again.loss_scale == whole.loss_scale


def test_killed_at_any_moment_and_resumed_is_never_killed(whole, tmp_path):
    rng = random.Random(0)
    for trial in range(pick(1, 12, 60)):
        folder = tmp_path / str(trial)
        folder.mkdir()
        command = [sys.executable, "-m", resuming.__name__, str(folder), "12"]
        environment = os.environ | {"PYTHONPATH": os.getcwd()}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as running:
            for _ in range(rng.randrange(2, 10)):
                running.stdout.readline()
            if trial:
                signal.sigtimedwait([], rng.random() * 0.02)
            running.kill()
        assert running.returncode == -signal.SIGKILL
        trainer, batches = resuming.resumed(folder)
        assert 0 < batches.position < 12
        resuming.train(trainer, batches, 12)
        assert bits(trainer.state(batches)) == whole
        assert [p for p in os.listdir(folder) if not p.startswith(".")] == [NAME]


@pytest.fixture
def usual_interruption():
    """Python's own handler, also where the tests' parent ignores ^C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interruption_waits_for_the_end_of_the_step(usual_interruption):
    with interrupt_later() as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
