"""Sentences on made-up data, where the answer must be yes, no and cannot tell (law).

The reader computes every number again; what must come out is named beside the data.
"""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.execution import input_formats
from ipu.experiments.lab import study
from ipu.experiments.lab.result import Result, rows_from_csv, to_csv
from ipu.experiments.sums import stochastic_accumulation
from ipu.experiments.training import digits_training, mnist_training, parameter_update_methods
from tests.experiments.readers import sums, trainings
from tests.experiments.readers.pages import Reading, Table, rows_of

GOOD, WORSE = np.array([95, 96, 95, 94, 95.5]), np.array([70, 72, 71, 69, 70.5])
WILD = np.array([95, 60, 95, 94, 96.0])
NOISE = 0.1 * np.array([1, -1, 1, -1, 0.5])


def read(reader, answer, rows, *words):
    """The sentence is read to the end, and has these words."""
    assert all(word in answer for word in words), answer
    reading = Reading(answer)
    reader(reading, Table(rows_of(to_csv(rows))))
    reading.is_read()
    assert rows_from_csv(to_csv(rows))


def runs_of(policy, accuracies):
    """Accuracies in per cent of seeds, and losses that fall."""
    for seed, accuracy in enumerate(accuracies):
        yield {"part": "test", "policy": policy, "seed": seed, "accuracy": accuracy / 100}
        for epoch in range(1, 11):
            loss = 3.0 / epoch + 0.01 * seed
            yield {"part": "loss", "policy": policy, "seed": seed, "epoch": epoch, "loss": loss}


@pytest.mark.parametrize(("half", "stochastic", "words"), [
    (GOOD + NOISE, GOOD - NOISE, "At a usual rate there is nothing to rescue."),
    (WORSE, GOOD + NOISE, "Yes. At"), (WORSE, WORSE + NOISE, "No. At"),
    (WORSE, WILD, "Undecided by this run; "), (WILD, GOOD, "Undecided by this run; "),
    (WORSE[:2], GOOD[:2], "Undecided by this run; 5 pairs"),
])
@pytest.mark.parametrize(("small", "fit"), [(GOOD, "itself learns"), (WORSE, "itself is underfit")])
def test_digits(half, stochastic, words, small, fit):
    n = len(half)
    rows = []
    for k, variant in enumerate(digits_training.VARIANTS):
        rows += runs_of(variant.name, (small - 3 * k + NOISE * k)[:n])
    usual = (GOOD[:n], half, stochastic)
    for number, accuracies in zip(digits_training.AT_USUAL, usual, strict=True):
        rows += runs_of(digits_training.VARIANTS[number].name + digits_training.SUFFIX, accuracies)
    rows += [{"part": "updates", "policy": name, "layer": "hidden", "movement_lost": lost}
             for name, lost in (("FP16", 0.53), ("FP16 + SR", 0.012))]
    if n < 5:
        fit = "At the small rate FP32"
    read(trainings.read_digits, digits_training._answer(rows), rows, words, fit)


def exceptions(policy, underflow):
    return {"part": "exceptions", "policy": policy, "layer": "only", "phase": "forward",
            "results": 1000, "underflow": underflow}


@pytest.mark.parametrize(("accuracies", "words"), [
    (GOOD + NOISE, "b: as good"), (WORSE, "b: worse"), (GOOD + 5, "b: better"),
    (WILD, "b: cannot tell"), (WORSE[:3], "b: cannot tell (3 of 5 pairs)"),
])
@pytest.mark.parametrize("underflow", [0, 7])
def test_studies(accuracies, words, underflow):
    rows = [*runs_of("a", GOOD[: len(accuracies)]), *runs_of("b", accuracies),
            exceptions("a", 0), exceptions("b", underflow)]
    read(trainings.read_study, study._answer(rows), rows, words)


@pytest.mark.parametrize(("half", "stochastic", "opening"), [
    (GOOD, GOOD + NOISE, "Yes."), (GOOD, WORSE, "No."), (GOOD, WILD, "Undecided by this run; "),
])
def test_mnist(half, stochastic, opening):
    names = [variant.name for variant in mnist_training.USUAL]
    rows = [row for name, values in zip(names, (GOOD, half, stochastic), strict=True)
            for row in runs_of(name, values)]
    rows += [exceptions(name, 3) for name in names]
    answer = f"{mnist_training.as_well(Result(rows, '', ''))} On MNIST: {study._answer(rows)}"
    read(trainings.read_mnist, answer, rows, opening)


@pytest.mark.parametrize(("lost", "opening"), [
    (-0.2, "Yes."), (5.0, "No."), (1.0, "Undecided by this run; ")])
def test_input_formats(lost, opening):
    rows = []
    for way in input_formats.WAYS:
        is_small = way.name == input_formats.SMALLEST
        rows += [{"part": "training", "way": way.name, "seed": s,
                  "accuracy": (x - is_small * (lost + 0.2 * (-1) ** s)) / 100}
                 for s, x in enumerate(GOOD)]
        rows.append({"part": "transfer", "way": way.name, "bytes": 4, "seconds": 1e-4})
        rows.append({"part": "pixels", "way": way.name, "different": 7, "largest": 0.0123})
    read(trainings.read_input_formats, input_formats._answer(rows), rows, opening)


def test_updates_that_are_lost():
    names = [variant.name for variant in parameter_update_methods.VARIANTS]
    gains = (GOOD / 95, 0.5 + NOISE, GOOD / 95 + 0.001 * NOISE, 1 + 20 * NOISE * WILD / 95)
    rows = [
        {"method": name, "rate": rate, "seed": seed, "before": 2.3, "after": 2.3 - gain,
         "gain": gain, "lost": 0.4 + 0.01 * seed}
        for name, of_seeds in zip(names, gains, strict=True)
        for seed, gain in enumerate(of_seeds) for rate in (0.03, 1e-4)
    ]
    read(trainings.read_update_methods, parameter_update_methods._answer(rows), rows,
         f"{names[1]}: worse", f"{names[2]}: as good", f"{names[3]}: cannot tell")


@pytest.mark.parametrize(("ends", "opening"), [
    (1.0 + 0.001 * NOISE, "Yes."), (1.2 + 0.001 * NOISE, "No."),
    (0.3 + 0.001 * NOISE, "No."),
])
def test_stochastic_sums(ends, opening):
    rows = [{"part": "final", "rounding": "RNE", "lane": 0, "final": 0.25}]
    rows += [{"part": "final", "rounding": "SR", "lane": i, "final": x} for i, x in enumerate(ends)]
    rows += [{"part": "law", "final": 1.0 + k * 0.001, "probability": p}
             for k, p in ((-1, 0.25), (0, 0.5), (1, 0.25))]
    rows.append({"part": "summary", "rounding": "SR", "mean": float(np.mean(ends)),
                 "sd": float(np.std(ends, ddof=1))})
    answer = stochastic_accumulation._answer(rows, len(ends))
    read(sums.read_stochastic_accumulation, answer, rows, opening)
