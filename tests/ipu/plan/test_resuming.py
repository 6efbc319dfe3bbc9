"""Trainings by a plan go on from a state, and after being killed (law)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

from ipu.plan.plan import Plan
from tests.ipu.plan import networks, resuming
from tests.ipu.plan.networks import ROW, batch, trainer
from tests.tiers import pick


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_state_goes_on_under_any_cut(replicas):
    def plan(n, **choices):
        return Plan(ROW[n], count=8, replicas=replicas, **choices)

    samples = 16 * replicas
    training = trainer(plan(1), count=True)
    for t in range(4):
        training.step(*batch(t, samples))
    start = trainer(plan(4), count=True)
    for t in range(2):
        start.step(*batch(t, samples))
    state = start.state()
    rest = trainer(plan(2, schedule="sequential", recompute=True), count=True)
    rest.forward(batch(0, 2)[0])
    rest.restore(state)
    assert rest.steps == 2
    for t in range(2, 4):
        rest.step(*batch(t, samples))
    assert networks.digest(rest) == networks.digest(training)
    other = trainer(Plan(ROW[1], count=8, replicas=3 - replicas))
    other.forward(batch(0, 2)[0])
    with pytest.raises(ValueError, match="replicas is"):
        other.restore(state)


def _started(folder, steps):
    command = [sys.executable, "-m", resuming.__name__, str(folder), str(steps)]
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_killed_under_a_plan_and_resumed_is_never_killed(tmp_path):
    kills = pick(1, 20, 60)
    steps, rng = 2 + kills, random.Random(kills)
    for _ in range(kills):
        with _started(tmp_path / "killed", steps) as process:
            process.stdout.readline()
            signal.sigtimedwait([], rng.random() * 0.05)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    assert resuming.train(tmp_path / "killed", steps) == resuming.train(tmp_path / "whole", steps)
