"""Experiments on blocks give what was measured beside them (golden, law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import DelayedScale, Flags
from ipu.experiments.blocks import (
    delayed_scaling,
    hadamard_trades,
    is_sr_unbiased,
    scale_rules,
    two_d_blocks,
    where_sr_pays,
)
from ipu.experiments.lab.result import Result

MEASURED = pytest.mark.source("numpy and ml_dtypes, bfloat16 inputs")


def sqnr(result: Result, block: str, rule: str) -> float:
    (row,) = result.select(block=block, rule=rule, data="normal")
    return float(row["sqnr"])


@MEASURED
def test_signal_to_noise_of_normal_numbers():
    result = scale_rules.run(quick=True, seed=0)
    for block, rule, db in (
        ("mxfp8", "floor", 30.67), ("mxfp8", "rceil", 31.49), ("mxfp4", "floor", 18.80),
        ("mxfp4", "even", 19.02), ("nvfp4", "two_level", 20.45), ("nvfp4-2d", "two_level", 19.08),
    ):
        assert sqnr(result, block, rule) == pytest.approx(db, abs=0.05), (block, rule)
    gap = sqnr(result, "nvfp4", "two_level") - sqnr(result, "mxfp4", "floor")
    assert gap >= 1.4
    assert "rceil gains 0.8" in result.answer


@MEASURED
def test_bias_of_stochastic_rounding():
    result = is_sr_unbiased.run(quick=True, seed=0)
    bias = dict(zip((row["block"] for row in result.rows), result.column("bias"), strict=True))
    assert 0.008 <= bias["nvfp4"] <= 0.012
    assert bias["nvfp4-1617"] <= 0.001
    assert 0.04 <= round(bias["mxfp4"], 3) <= 0.05
    assert bias["mxfp4-34"] <= 0.0004
    gain = result.select(block="nvfp4")[0]
    assert float(gain["gain"]) == pytest.approx(-0.0039, abs=0.0005)
    assert float(gain["gain_nearest"]) == pytest.approx(-0.0033, abs=0.0008)


@MEASURED
def test_square_blocks_are_the_same_both_ways():
    rows = {row["block"]: row for row in two_d_blocks.run(quick=True, seed=0).rows}
    assert rows["nvfp4-2d"]["differ"] == rows["mxfp8-32x32"]["differ"] == 0
    assert float(rows["nvfp4"]["differ"]) == pytest.approx(0.77, abs=0.01)
    assert float(rows["nvfp4"]["distance"]) == pytest.approx(0.13, abs=0.002)


@MEASURED
def test_the_transform_trades_error_for_gain():
    result = hadamard_trades.run(quick=True, seed=0)
    for factor in (30, 100):
        plain, turned = (
            result.select(outliers=factor, transform=kind)[0] for kind in ("none", "rht16")
        )
        assert float(turned["error"]) > 1.2 * float(plain["error"])
        assert float(turned["gain"]) > float(plain["gain"]) + 0.05
    plain, turned = (
        result.select(outliers=1, transform=kind)[0] for kind in ("none", "rht16")
    )
    assert float(plain["error_of_product"]) == pytest.approx(0.1349, abs=0.003)
    assert float(turned["error_of_product"]) == pytest.approx(0.1352, abs=0.003)


@pytest.mark.source("TransformerEngine d0067d0")
def test_a_spike_costs_1024_steps_and_growth_saturates():
    result = delayed_scaling.run(quick=True, seed=0)
    grown = result.select(series="growth of 1 %")
    assert [bool(row["saturated"]) for row in grown] == [False, *[True] * 199]
    scale = result.column("scale", series="a spike")
    assert np.flatnonzero(scale < 1).tolist() == list(range(101, 101 + 1024))
    assert scale[101] == np.float32(0.448)
    assert result.select(series="a spike", step=100)[0]["saturated"]
    frozen = result.column("scale", series="an infinity")
    assert (frozen[100:] == frozen[100]).all()


def test_a_delayed_scale_goes_on_from_its_state():
    state = DelayedScale(length=3, margin=1)
    for amax in (1.0, 7.0, 0.0, 2.0):
        state = state.after(amax)
    assert state.scale == 448 / 2 / 7
    again = DelayedScale.from_state(state.state())
    codes, later = again.quantize(np.float32([2.0, 1e5]), flags=True)
    assert later == state.quantize(np.float32([2.0, 1e5]))[1]
    assert codes.flags & Flags.OVERFLOW
    for bad in ({"length": 0}, {"margin": -1}, {"element": "nothing"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            DelayedScale(**bad)


def test_where_stochastic_rounding_pays_is_told_by_its_intervals(monkeypatch):
    monkeypatch.setattr(where_sr_pays, "in_processes", lambda excess, todo, _: map(excess, todo))
    monkeypatch.setattr(where_sr_pays, "POOLS", (1, 0))
    result = where_sr_pays.run(quick=True, seed=0)
    assert [row["batches"] for row in result.rows] == list(where_sr_pays.POOLS)
    for row in result.rows:
        assert float(row["binary32"]) > 0
        left = [1 + float(row[way]) / 100 for way in ("stochastic", "to nearest")]
        assert float(row["effect"]) == pytest.approx(100 * np.log(left[0] / left[1]), abs=0.02)
    rows = [{"batches": 1, "effect": -0.3, "uncertainty": 0.1},
            {"batches": 4, "effect": 0.3, "uncertainty": 0.1},
            {"batches": 0, "effect": 0.1, "uncertainty": 0.2}]
    answer = where_sr_pays._answer(rows)
    assert "one batch: -0.300 ± 0.100 %, it pays; 4 batches: +0.300 ± 0.100 %, it costs" in answer
    assert answer.endswith("new batches: +0.100 ± 0.200 %, cannot tell.")


def test_one_batch_again_and_again_is_learnt_exactly_in_binary32():
    job = where_sr_pays.LayerTraining("binary32", 1, 200, 0)
    left, least = where_sr_pays.excess(job)
    assert 0 <= left < 0.01 * least
    nearest, stochastic = (
        where_sr_pays.excess(job._replace(way=way))[0] for way in ("to nearest", "stochastic")
    )
    assert left < stochastic < nearest
