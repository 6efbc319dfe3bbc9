"""What is looked at while a program runs (law, golden)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16
from ipu.machine import Device
from ipu.run.account import counted_name
from ipu.run.exponents import Histogram
from ipu.run.recorder import Recorder, merged


def test_weights_are_those_of_the_last_look():
    recorder = Recorder()
    for value in (1.0, 2.0):
        recorder.weights("a", "weight", BINARY16, np.float32([value]))
    recorder.weights("a", "bias", BINARY16, np.float32([8.0]))
    (both,) = recorder.weight_histograms()
    assert (both.name, both.counts) == ("a", {1: 1, 3: 1})


def test_an_update_tells_the_new_weights_too():
    recorder = Recorder()
    one, term = np.float32([1.0]), np.float32([3.0])
    recorder.update("a", "weight", BINARY16, one, term, one + term)
    assert recorder.weight_histograms()[0].counts == {2: 1}
    assert recorder.updates.summary()["a"]["swallowed"] == 0


def test_losses_of_micro_batches_are_averaged_by_step():
    recorder = Recorder()
    for step, loss in ((0, 4.0), (0, 2.0), (2, 1.0)):
        recorder.loss(step, loss)
    assert recorder.losses == [3.0, 1.0]


def test_first_exceptions_keep_their_step_and_place():
    recorder, device = Recorder(), Device(count=True)
    x = device.from_host([60000.0, 0.0], BINARY16)
    recorder.step_done(0, device.counts)
    assert recorder.first == []
    with device.naming(counted_name("a", "forward")):
        device.multiply(x, x)
    recorder.step_done(1, device.counts)
    with device.naming(counted_name("b", "backward")):
        device.multiply(x, x)
        device.divide(x, 0.0)
    recorder.step_done(2, device.counts)
    overflow, *others = recorder.first
    assert overflow == {
        "flag": "OVERFLOW", "step": 1, "layer": "a", "direction": "forward",
        "operation": "multiply", "times": 1, "line": "",
    }
    assert {(row["flag"], row["step"], row["layer"]) for row in others} == {
        ("DIVBYZERO", 2, "b"), ("INVALID", 2, "b"),
    }


def test_merging_leaves_what_it_merges_alone():
    one = Histogram("a", BINARY16, {0: 1}, 1, 0)
    (both,) = merged([one, Histogram("a", BINARY16, {0: 2, 1: 1}, 0, 1)])
    assert (both.counts, both.zeros, both.nonfinite) == ({0: 3, 1: 1}, 1, 1)
    assert one.counts == {0: 1}


def test_counts_stop_with_a_loss_that_is_not_finite_and_resume():
    device = Device(count=True)
    recorder = Recorder(device.counts)
    half = device.context(BINARY16)
    for step, (loss, expected) in enumerate(
        [(1.0, 2), (float("nan"), 2), (float("inf"), 2), (0.5, 4)]
    ):
        recorder.loss(step, loss)
        half.array([1e9, 1e9])
        assert device.counts.total("OVERFLOW") == expected
    assert recorder.uncounted == 2
