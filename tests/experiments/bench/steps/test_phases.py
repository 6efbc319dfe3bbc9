"""Shares of a step by phase (law)."""

from __future__ import annotations

import time

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
