"""Trainings that are interrupted or killed go on as if they had not been (law)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

from ipu.learn.checkpoint import NAME, Keeper, interrupt_later
from tests.ipu.learn import resuming
from tests.ipu.learn.checkpoint.states import EMPTY, bits
from tests.tiers import pick


def test_a_keeper_saves_when_it_is_due(tmp_path):
    keeper = Keeper(tmp_path / "new", seconds=0)
    assert keeper.load() is None
    assert keeper.due
    keeper.save(EMPTY)
    assert keeper.load() == EMPTY
    assert not Keeper(tmp_path, seconds=60).due


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


def test_an_interruption_waits_for_the_end_of_the_step():
    with interrupt_later() as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
