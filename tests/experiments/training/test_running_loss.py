"""Running losses in FP16 report what was worked out by hand (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, Context
from ipu.experiments.training import running_loss
from tests.experiments.figures import assert_panels


@pytest.mark.source("X-08")
@pytest.mark.parametrize(
    ("loss", "batches", "reported"),
    [(0.4, 1875, "0.458"), (0.3, 1875, "0.263"), (2.3, 1562, "2.104"), (0.9, 1562, "0.978")],
)
def test_totals_in_fp16_report_what_was_worked_out(loss, batches, reported):
    totals = running_loss._totals(Context(BINARY16), np.array([loss]), batches, "")
    assert f"{totals[-1, 0] / batches:.3f}" == reported
    # numpy's own binary16 additions, one by one
    total = np.float16(0)
    for _ in range(batches):
        total += np.float16(loss)
    assert totals[-1, 0] == total


@pytest.fixture(scope="module")
def reported():
    return running_loss.run(quick=True, seed=0)


def test_the_sentence_is_computed_a_second_time(reported):
    for row in reported.select(part="case")[:2]:
        assert f"{row['reported']:.3f}" in reported.answer
    off = {}
    for row in reported.select(part="reported"):
        error = abs(row["reported"] / row["loss"] - 1)
        off[row["total"]] = max(error, off.get(row["total"], 0.0))
    assert reported.answer.startswith("Yes." if off["FP16"] > 0.01 else "No.")
    for text in (f"{off['FP16']:.0%}, with", f"{off['FP16 + SR']:.1%}", f"{off['FP32']:.0e}"):
        assert text in reported.answer


def test_rows_are_totals_divided_by_the_batches_so_far(reported):
    """A sum of binary32 is right to three digits; that of binary16 is numpy's, at the end."""
    for row in reported.select(total="FP32"):
        assert row["reported"] == pytest.approx(row["loss"], rel=1e-3)
    for row in reported.select(part="reported", total="FP16"):
        terms = np.full(running_loss.BATCHES, row["loss"]).astype(np.float16)
        total = np.add.accumulate(terms)[-1]
        assert row["reported"] == float(total) / running_loss.BATCHES
    cases = [f"{row['reported']:.3f}" for row in reported.select(part="case")]
    assert cases == ["0.458", "0.263", "2.104", "0.978"]


def test_every_panel_shows_data(reported):
    assert_panels(running_loss.plot(reported), 2)


def test_reports_that_are_right_are_no_artefact():
    kinds = [("reported", name) for name in ("FP16", "FP16 + SR", "FP32")] + [("case", "")]
    rows = [
        {"part": part, "total": name, "loss": loss, "reported": loss}
        for part, name in kinds
        for loss in (0.3, 0.4)
    ]
    assert running_loss._answer(rows).startswith("No.")
