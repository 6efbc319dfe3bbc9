"""What a step adds to the memory of a process (golden)."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fpsim import get_threads, set_threads
from ipu.experiments.bench.steps import memory
from tests.tiers import pick

linux = pytest.mark.skipif(sys.platform != "linux", reason="the system tells peaks on Linux alone")


@linux
def test_a_step_is_charged_what_it_takes_at_a_time():
    nbytes = 32 << 20

    def step():
        for _ in range(3):
            np.ones(nbytes, np.uint8)

    grown = memory.growth(step)
    assert 0.9 * nbytes <= grown < 2 * nbytes  # the system counts in batches


@linux
def test_what_stays_from_the_steps_before_is_not_charged():
    held_memory = np.ones(32 << 20, np.uint8)
    assert memory.growth(lambda: held_memory[:: 1 << 12].sum()) < 8 << 20


def test_a_system_without_peaks_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "missing")
    assert memory.growth(lambda: None) is None


@linux
def test_a_network_is_measured_in_a_process_of_its_own():
    # In the quick tier the network whose kernels the benchmark's test compiles.
    network, preset = pick(("ResNet-8", "window"), *[("MNIST CNN", "exact")] * 2)
    grown = memory.of_step(network, preset, 2)
    assert grown is not None
    assert 0 <= grown < 64 << 20


def test_that_process_has_as_many_threads_as_this_one(monkeypatch):
    def run(command, *, env, **options):
        return subprocess.CompletedProcess(command, 0, stdout=env["FPSIM_THREADS"])

    monkeypatch.setattr(memory.subprocess, "run", run)
    before = get_threads()
    set_threads(3)
    try:
        assert memory.of_step("ResNet-8", "exact", 1) == 3
    finally:
        set_threads(before)
