"""Running losses in FP16 report what was worked out by hand (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, Context
from ipu.experiments.lab.drawing import to_png
from ipu.experiments.training import (
    running_loss,
)


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


def test_the_caption_of_running_loss_is_its_data_and_its_figure_is_drawn():
    result = running_loss.run(quick=True, seed=0)
    for row in result.select(part="case")[:2]:
        assert f"{row['reported']:.3f}" in result.answer
    assert to_png(running_loss.plot(result))


def test_reports_that_are_right_are_no_artefact():
    kinds = [("reported", name) for name in ("FP16", "FP16 + SR", "FP32")] + [("case", "")]
    rows = [
        {"part": part, "total": name, "loss": loss, "reported": loss}
        for part, name in kinds
        for loss in (0.3, 0.4)
    ]
    assert running_loss._answer(rows).startswith("No.")
