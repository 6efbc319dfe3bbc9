"""Numbers and curves of runs, from rows of any shape (golden)."""

from __future__ import annotations

import math

from ipu.experiments.sweep.metrics import Curve, compared, differs


def test_groups_of_rows_become_numbers_and_curves():
    runs = [
        [{"part": "loss", "epoch": 1, "loss": 2.0}, {"part": "loss", "epoch": 2, "loss": last},
         {"part": "test", "accuracy": 0.5}]
        for last in (1.0, 0.5)
    ]
    numbers, curves = compared(runs)
    assert numbers == {"loss: loss, at epoch 2": [1.0, 0.5], "accuracy: test": [0.5, 0.5]}
    assert curves == {
        "loss: loss": [Curve("epoch", (1.0, 2.0), (2.0, y)) for y in (1.0, 0.5)]
    }


def test_columns_that_do_not_grow_have_a_mean():
    runs = [[{"x": 1, "y": 3}, {"x": 1, "y": 2}]]
    assert compared(runs).numbers == {"mean x": [1.0], "mean y": [2.5]}


def test_a_run_without_a_number_has_none():
    numbers, _ = compared([[{"a": 1}], [{"b": 2}]])
    assert numbers == {"a": [1, None], "b": [None, 2]}


def test_columns_with_gaps_and_truths_are_no_numbers():
    rows = [{"a": 1, "b": None, "on": True}, {"a": 2, "b": 3.0, "on": True}]
    assert compared([rows]) == ({}, {})


def test_nan_is_equal_to_nan():
    assert not differs([math.nan, math.nan])
    assert differs([0.0, -0.0])


def test_an_experiments_own_seeds_are_averaged():
    """Repetitions, whose numbers are no curve over the seeds."""
    rows = [{"part": "loss", "seed": s, "epoch": e, "loss": s + e} for s in (5, 7) for e in (1, 2)]
    rows += [{"part": "test", "seed": s, "accuracy": s / 10} for s in (5, 7)]
    numbers, curves = compared([rows])
    assert curves == {"loss: loss": [Curve("epoch", (1.0, 2.0), (7.0, 8.0))]}
    assert numbers == {"loss: loss, at epoch 2": [8.0], "accuracy: test": [0.6]}


def test_seeds_with_different_rows_are_not_averaged_row_by_row():
    rows = [{"seed": 1, "n": 1.0, "y": 2.0}, {"seed": 1, "n": 2.0, "y": 4.0},
            {"seed": 2, "n": 1.0, "y": 3.0}]
    assert compared([rows]).numbers == {"mean n": [4 / 3], "mean y": [3.0]}
