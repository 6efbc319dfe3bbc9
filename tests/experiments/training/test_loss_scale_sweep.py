"""The loss scale sweep: monotone shares, and a limit that the traps confirm (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.training import loss_scale_sweep
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def swept():
    return loss_scale_sweep.run(quick=True, seed=0)


def test_underflow_falls_and_overflow_grows_with_the_scale(swept):
    for tensor in loss_scale_sweep.TENSORS:
        where = {"part": "sweep", "state": "before training", "tensor": tensor}
        assert (np.diff(swept.column("underflow", **where)) <= 0).all()
        assert (np.diff(swept.column("overflow", **where)) >= 0).all()


@pytest.mark.source("S4-30")
def test_nothing_overflows_up_to_the_highest_scale_and_something_above(swept):
    for row in swept.select(part="limit"):
        rows = swept.select(part="sweep", state=row["state"])
        inside = [r["overflow"] for r in rows if 2.0 ** r["exponent"] <= row["highest"]]
        above = [r["overflow"] for r in rows if 2.0 ** r["exponent"] > row["highest"]]
        assert max(inside) == 0 < max(above)


@pytest.mark.source("S4-40")
def test_the_stop_shows_the_status_register(swept):
    for row in swept.select(part="limit"):
        assert row["dump"].startswith("$FP_STS")
        assert "OFLO 0x1" in row["dump"]
        assert "gradient" in row["stopped_by"]


def test_the_figure_is_drawn_from_the_rows(swept):
    assert_panels(loss_scale_sweep.plot(swept), 4)
