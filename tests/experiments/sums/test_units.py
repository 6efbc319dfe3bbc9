"""What units do to sums: order, exactness, partials, splits of K, what sets them apart (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, Context
from fpsim.records.units import UNITS
from ipu.experiments.lab import store
from ipu.experiments.sums import accumulation_order, fingerprints, k_split, partials
from ipu.experiments.sums.exact import inner_products
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


def test_exact_sums_are_exact():
    half = Context(BINARY16)
    a = half.array([[2.0**15, 2.0**-24, -(2.0**15)]])
    b = half.array([[2.0**15], [2.0**-24], [2.0**15]])
    exact, size = inner_products(a.values, b.values)
    assert exact[0, 0] == 2.0**-48
    assert size[0, 0] == 2.0**31


def test_units_that_answer_alike_stand_in_one_line():
    result = fingerprints.run(quick=True, seed=0)
    groups = [names for names, _ in fingerprints.kinds(result)]
    assert sorted(name for names in groups for name in names) == sorted(fingerprints.FEW)
    assert len(groups) == len(fingerprints.FEW)
    assert set(fingerprints.FEW) <= set(UNITS)
    assert "1 of them" in result.answer  # V100
    (table,) = fingerprints.tables(result)
    assert len(table.lines) == len(groups)
    assert {len(line) for line in table.lines} == {len(table.heads)}


def test_splitting_k_shortens_the_chain_of_half_partials():
    result = k_split.run(quick=True, seed=0)
    error = result.column("rms", partials="half partials")
    cycles = result.column("cycles", partials="half partials")
    assert error[0] > 2 * error[-1]
    assert cycles[0] > 10 * cycles.min()
    assert result.column("exchange_bytes", tiles=1).tolist() == [0, 0]
    assert_panels(k_split.plot(result), 3)


@pytest.fixture(scope="module")
def sums():
    return partials.run(quick=True, seed=0)


def test_errors_of_partials_stay_below_their_bounds(sums):
    for kind in partials.DATA:
        for way in ("half partials", "half partials, SR", "float partials"):
            terms = sums.column("terms", data=kind, way=way)
            _, linear = partials.bounds(way, terms)
            assert (sums.column("largest", data=kind, way=way) <= linear).all()


def test_one_pass_of_half_partials_is_the_rounded_float_pass(sums):
    """With 16 terms there is one store either way; SR has another."""
    for kind in partials.DATA:
        rms = {row["way"]: row["rms"] for row in sums.select(data=kind, terms=16)}
        assert rms["half partials"] == rms["float partials, FP16 result"]
        assert rms["half partials"] < rms["half partials, SR"]
        assert rms["float partials"] < rms["half partials"] / 1000
