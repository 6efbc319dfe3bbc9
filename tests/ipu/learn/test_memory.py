"""Memory of a training without a plan: bytes by hand (golden), refusals that change nothing."""

from __future__ import annotations

import numpy as np
import pytest

import ipu.run
from ipu.learn.nn import dense, relu
from ipu.learn.optim import SGD
from ipu.learn.train import Trainer
from ipu.machine.memory import OutOfMemoryError, room_of
from ipu.machine.target import MK2

X, LABELS = np.eye(8)[:4], np.arange(4)


def network(x):
    return dense(relu(dense(x, 16, "hidden")), 4, "out")


def trainer(**options):
    return Trainer(network, SGD(0.5, momentum=0.9), **options)


def room(monkeypatch, size):
    monkeypatch.setattr("ipu.learn.memory.room_of", lambda target: size)


def test_an_ipu_has_its_tiles_memory():
    assert room_of(MK2) == 1472 * 624 * 1024
    assert room_of(MK2, io_tiles=32) == 1440 * 624 * 1024


@pytest.mark.source("S2-27")
def test_a_step_that_does_not_fit_is_refused_and_nothing_has_changed(monkeypatch):
    room(monkeypatch, 2000)
    training = trainer()
    training.forward(X)
    before = {name: v.array.values.copy() for name, v in training.variables.items()}
    with pytest.raises(OutOfMemoryError) as refused:
        training.step(X, LABELS)
    text = str(refused.value)
    weights = (8 * 16 + 16 + 16 * 4 + 4) * 4
    for words in ("out of memory: a step needs", "target=mk2 has 2000", f"weights {weights} (alw",
                  f"gradients {weights} (always)", f"state {weights} (always)",
                  "activations ", "(from forward to backward)", "hidden/weights 1536",
                  "check_memory=False to run it all the same"):
        assert words in text, (words, text)
    assert "\n" not in text
    assert training.steps == 0
    assert training.slots == {}
    for name, values in before.items():
        assert (training.variables[name].array.values == values).all()


@pytest.mark.source("S2-27")
def test_the_check_is_off_by_one_switch(monkeypatch):
    bits = trainer().step(X, LABELS)
    room(monkeypatch, 2000)
    assert trainer(check_memory=False).step(X, LABELS) == bits
    off = ipu.run.machine(check_memory=False)
    assert trainer(run=off).step(X, LABELS) == bits
    with pytest.raises(OutOfMemoryError):
        trainer(run=ipu.run.machine()).step(X, LABELS)


def test_what_fits_exactly_runs(monkeypatch):
    """Half of the account is activations of a large batch: then smaller batches are advised."""
    rows = np.repeat(X, 64, axis=0)
    room(monkeypatch, 0)
    with pytest.raises(OutOfMemoryError, match="smaller batches") as refused:
        trainer().step(rows, np.repeat(LABELS, 64))
    need = int(str(refused.value).split(" bytes")[0].rsplit(" ", 1)[1])
    room(monkeypatch, need)
    trainer().step(rows, np.repeat(LABELS, 64))
    room(monkeypatch, need - 1)
    with pytest.raises(OutOfMemoryError, match=f"needs {need} bytes"):
        trainer().step(rows, np.repeat(LABELS, 64))
