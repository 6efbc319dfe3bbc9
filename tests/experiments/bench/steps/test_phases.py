"""Shares of a step by phase (law)."""

from __future__ import annotations

import time
from threading import Thread

from fpsim import BINARY16, linalg
from ipu.experiments.bench.steps import phases
from ipu.machine import Device


def test_each_second_counts_for_the_phase_that_was_entered_last():
    device, before = Device(), linalg.conv2d
    x = device.from_host([1.0], BINARY16)

    def step():
        with device.naming("section/norm"):
            device.reduce_sum(x, 0)
        time.sleep(0.05)
        device.add(x, x)

    step()  # compiles
    result = phases.shares(step, device)
    assert result["products"] == 0
    assert result["bookkeeping"] > max(result["norms"], result["elementwise"]) > 0
    assert linalg.conv2d is before
    assert "add" not in vars(device)


def test_what_another_thread_computes_is_no_phase_of_this_one(monkeypatch):
    monkeypatch.setattr(linalg, "matmul", lambda: time.sleep(0.02))

    def step():
        other = Thread(target=lambda: linalg.matmul())
        other.start()
        other.join()

    assert phases.shares(step, Device())["bookkeeping"] == 1
