"""What bounds a run that the host feeds: verdicts (golden), seconds of a plan (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.feed import pace
from ipu.feed.pace import Feeding, Pace, pace_of
from ipu.machine.target import MK2
from ipu.plan.cycles import HOST
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan

CLOCK = MK2.clock.value
#: A second of work, and half a second of transfers, for each micro-batch.
FIGURES = [StageFigures(
    forward_cycles=int(CLOCK), infeed_bytes=int(HOST.value / 2), parameter_bytes=4,
)]


def plan(**options):
    return Plan([abs], training=False, check_memory=False, **options)


@pytest.mark.source("S3-18")
@pytest.mark.parametrize(
    ("make", "move", "compute", "words"),
    [
        (3.0, 0.5, 1.0, "the host's processor bounds the run; use more host processes (fpsim pop"),
        (9.0, 2.0, 1.0, "preprocess on the IPU; host I/O is slower than the IPUs too: use more ho"),
        (0.1, 2.0, 1.0, "host I/O bounds the run; use more hosts, I/O tiles, or fewer bytes"),
        (0.1, 0.5, 1.0, "the machine bounds the run, and no host does"),
    ],
)
def test_a_run_is_told_what_bounds_it_and_what_the_guide_advises(make, move, compute, words):
    assert words in Pace(make, move, compute).line


def test_a_host_has_as_long_as_transfer_and_work_take_one_after_the_other():
    assert Pace(1.4, 0.5, 1.0).bound == "machine"
    assert Pace(1.6, 0.5, 1.0).bound == "processor"
    assert Pace(1.4, 0.5, 1.0, overlaps=True).bound == "processor"


@pytest.mark.source("S3-18")
@pytest.mark.parametrize("count", [1, 3, 100])
def test_seconds_of_a_plan_are_those_of_its_account(count):
    move, compute = 0.5 * count, 1.0 * count
    plan_pace = pace_of(7.0, plan(count=count), FIGURES, MK2)
    assert plan_pace == pytest.approx((7.0, move, compute, False), rel=1e-6)


def test_elements_are_measured_until_they_are_there(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr(pace.time, "perf_counter", lambda: float(next(ticks)) ** 2)
    feeding = Feeding()
    assert list(feeding.timed("ab")) == ["a", "b"]
    assert (feeding.elements, feeding.seconds) == (2, (1 - 0) + (9 - 4))
    assert feeding.each == 3
    assert Feeding().each == 0


def test_only_the_first_element_is_looked_at():
    feeding = Feeding()
    feeding.look([])
    assert feeding.inputs == []
    feeding.look([np.full(100, 1e6)])
    assert feeding.inputs == []
