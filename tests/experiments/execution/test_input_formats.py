"""Formats of inputs: exhaustive (all values of a pixel), golden (bytes), law (the sentence)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ipu.experiments.execution import input_formats
from ipu.machine import Device
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def quick(few):
    return input_formats.run(quick=True, seed=1)


@pytest.mark.source("S3-25")
@pytest.mark.source("S3-27")
def test_bytes_are_a_quarter_and_halves_a_half_of_singles(quick):
    sent = quick.column("bytes", part="transfer")
    assert sent.tolist() == [9633792, 4816896, 2408448, 2408448]
    assert quick.column("seconds", part="transfer")[0] == pytest.approx(481.7e-6, rel=1e-4)
    trained = [row["bytes"] for row in quick.select(part="training", seed=1)]
    # ten batches of 32: images of 64 pixels, labels of 8 bytes
    assert trained == [10 * 32 * (64 * size + 8) for size in (4, 2, 1, 1)]
    assert {row["launches"] for row in quick.select(part="training")} == {1}


def rounded(x):
    """An exact fraction to the nearest binary16, ties to even; |x| < 16 and normal or tiny."""
    quantum = Fraction(1, 2**24)
    while abs(x) >= 2048 * quantum:
        quantum *= 2
    steps = x / quantum
    lower = steps.numerator // steps.denominator
    rest = steps - lower
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and lower % 2)
    return float((lower + up) * quantum)


@pytest.mark.parametrize("channel", input_formats.CHANNELS, ids=lambda channel: channel.name)
def test_halves_from_the_host_are_rounded_once(channel):
    """Against exact fractions, for all 256 values."""
    pixels = np.arange(256, dtype=np.uint8)
    exact = [
        (Fraction(int(p), 255) - Fraction(channel.mean)) / Fraction(channel.deviation)
        for p in pixels
    ]
    way = input_formats.WAYS[1]
    there = way.receives(Device(), way.sends(pixels, channel), channel)
    assert there.values.tolist() == [rounded(x) for x in exact]


@pytest.mark.parametrize("channel", input_formats.CHANNELS, ids=lambda channel: channel.name)
def test_the_device_rounds_as_numpy_does(channel):
    """Normalising in FP16 and in FP32 is that of numpy's own types, operation by operation."""
    pixels = np.arange(256, dtype=np.uint8)
    for way, kind in zip(input_formats.WAYS[2:], (np.float32, np.float16), strict=True):
        there = way.receives(Device(), way.sends(pixels, channel), channel)
        centred = pixels.astype(kind) - kind(255 * channel.mean)
        expected = (centred * kind(1 / (255 * channel.deviation))).astype(np.float16)
        assert there.to_numpy().tobytes() == expected.tobytes()


def test_the_sentence_is_computed_a_second_time(quick):
    different = {}
    for row in quick.select(part="pixels"):
        different[row["way"]] = max(row["different"], different.get(row["way"], 0))
    worst = different["uint8, device in FP16"]
    assert f"up to {worst} of 256 pixel values differ" in quick.answer
    assert "takes 120 µs as bytes instead of 482 µs" in quick.answer
    assert quick.answer.startswith("Undecided by this run; 5 pairs of runs would decide it. ")
    assert "uint8, device in FP16: cannot tell (3 of 5 pairs)" in quick.answer


@pytest.mark.parametrize(
    ("loss", "word"), [(0.0, "Yes."), (0.5, "No."), (0.01, "Undecided by this run")]
)
def test_the_verdict_follows_the_accuracies(quick, loss, word):
    rows = [dict(row) for row in quick.rows if row["part"] != "training"]
    for seed in range(200):
        for way in input_formats.WAYS:
            scatter = 0.001 * (-1) ** seed
            lost = loss + scatter if way.name == input_formats.SMALLEST else 0.0
            rows.append({"part": "training", "way": way.name, "seed": seed, "accuracy": 0.9 - lost})
    assert input_formats._answer(rows).startswith(word)


def test_every_panel_shows_data(quick):
    assert_panels(input_formats.plot(quick), 3)


def test_times_of_this_machine_are_no_part_of_the_data(quick):
    assert {row["part"] for row in quick.local} == {"throughput"}
    assert len(quick.local) == 3
