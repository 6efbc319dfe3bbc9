"""Cancelling sums set units apart; BLAS is kept out of the data (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.lab import store
from ipu.experiments.sums import accumulation_order, partials
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def orders():
    return accumulation_order.run(quick=True, seed=0)


def test_cancelling_sums_set_units_apart(orders):
    spread = {kind: np.median(orders.column("ulps", part="spread", data=kind))
              for kind in accumulation_order.DATA}
    assert spread["cancelling"] > 50 * spread["ordinary"] > 0


def test_cut_sums_are_worse_than_rounded_ones(orders):
    """Truncation of V100 beside rounding to nearest of the AMP, on the same products."""
    off = {unit: np.median(np.abs(orders.column("ulps", part="error", unit=unit, data="ordinary")))
           for unit in ("AMP_F16_F32", "V100_F16_F32")}
    assert off["AMP_F16_F32"] < off["V100_F16_F32"]


def test_blas_is_kept_apart_and_read_back(orders, tmp_path):
    assert {row["unit"] for row in orders.local} == {accumulation_order.BLAS}
    store.save_data(tmp_path, orders, {})
    assert accumulation_order.BLAS not in (tmp_path / store.DATA).read_text()
    result, _ = store.load(tmp_path)
    assert result.local == list(orders.local)
    assert_panels(accumulation_order.plot(result), 2)
    store.save_data(tmp_path, partials.run(quick=True, seed=0), {})
    assert not (tmp_path / store.LOCAL).exists()
