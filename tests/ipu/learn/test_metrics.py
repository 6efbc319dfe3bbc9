"""Running totals: the published programs' rounding artefact, golden."""

from __future__ import annotations

import math

import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.metrics import RunningLoss
from ipu.machine import Device


@pytest.mark.source("X-08")
@pytest.mark.parametrize(
    ("loss", "batches", "reported"),
    [(0.4, 1875, 0.458), (0.3, 1875, 0.263), (2.3, 1562, 2.104), (0.9, 1562, 0.978)],
)
def test_a_half_total_of_a_constant_loss_reports_another(loss, batches, reported):
    device = Device()
    total = RunningLoss(device, BINARY16)
    value = device.from_host(loss, BINARY32)
    for _ in range(batches):
        total.add(value)
    assert f"{total.mean:.3f}" == f"{reported:.3f}"
    assert str(total) == f"loss {reported:.3f} (float32 total {loss:.3f})"


def test_a_single_total_is_shown_alone_and_an_empty_one_is_nan():
    device = Device()
    total = RunningLoss(device, BINARY32)
    assert math.isnan(total.mean)
    assert math.isnan(total.float32_mean)
    total.add(device.from_host(0.5, BINARY32))
    assert str(total) == "loss 0.500"
    assert total.mean == total.float32_mean == 0.5


def test_totals_go_on_from_their_numbers():
    device = Device()
    complete, part = RunningLoss(device, BINARY16), RunningLoss(device, BINARY16)
    for k in range(6):
        complete.add(device.from_host(0.1 * k, BINARY32))
        part.add(device.from_host(0.1 * k, BINARY32))
        again = RunningLoss(device, BINARY16)
        again.restore(part.numbers)
        part = again
    assert part.numbers == complete.numbers
    complete.clear()
    assert complete.numbers == RunningLoss(device, BINARY16).numbers
