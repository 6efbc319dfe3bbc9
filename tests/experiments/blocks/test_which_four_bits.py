"""Claims of the training in four bits follow from their intervals (corners)."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from ipu.experiments.blocks import which_four_bits
from ipu.experiments.blocks.which_four_bits import WAYS, FourBitRun


@pytest.fixture
def with_torch():
    pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")


def test_the_trainings_are_those_that_the_page_on_blocks_describes(monkeypatch):
    """250 steps of batch 4 in every way; further sizes have the ways of the sweep."""
    asked = []
    monkeypatch.setattr(which_four_bits, "resumed", lambda losses, todo, what: todo)
    monkeypatch.setattr(which_four_bits, "result_of", lambda curves, last: asked.extend(curves))
    monkeypatch.setattr(which_four_bits, "SIZES", (which_four_bits.MAIN, (16, 250)))
    which_four_bits.run(False, 7)
    counts = Counter((job.batch, job.steps, job.way) for job in asked)
    assert set(counts.values()) == {5}
    assert {job.seed for job in asked} == set(range(7, 12))
    every = {(4, 250, way) for way in WAYS}
    swept = {(16, 250, w) for w in which_four_bits.SWEPT}
    assert counts.keys() == every | swept
    assert (asked[0].batch, asked[0].steps) == (4, 250)


def curves(gaps, seeds=5, spread=1e-4):
    """Trainings that end at these gaps, in log loss, with a spread over the seeds."""
    rng = np.random.default_rng(0)
    ends = {}
    for seed in range(seeds):
        plain = 2.5 + 0.05 * rng.standard_normal()
        for way in WAYS:
            gap = gaps.get(way, 0.0) + (spread * rng.standard_normal() if way in gaps else 0.0)
            ends[FourBitRun(way, 4, 3, seed)] = [5.0, plain * math.exp(gap), plain * math.exp(gap)]
    return ends


GAPS = {"mxfp8": 3e-4, "nvfp4-plain": 3e-3, "nvfp4-plain, SR of gradients": 4.5e-3,
        "nvfp4 (full)": 4.2e-3, "mxfp4": 9.2e-3}


def test_what_two_seeds_gave_is_reproduced_by_the_same_gaps(with_torch):
    assert set(which_four_bits.claims(curves(GAPS), 2).values()) == {"reproduced"}
    answer = which_four_bits.result_of(curves(GAPS), 2).answer
    assert "nowhere here does it pay" in answer


@pytest.mark.parametrize(("gaps", "verdict"), [
    ({**GAPS, "nvfp4-plain": 1e-3}, "not reproduced"), ({**GAPS, "nvfp4-plain": 9e-3},
                                                       "not reproduced"),
    ({**GAPS, "nvfp4-plain": 6e-3}, "cannot tell"),
])
def test_other_gaps_are_not(gaps, verdict):
    first, *_ = which_four_bits.claims(curves(gaps), 2).values()
    assert first == verdict


def test_one_seed_tells_nothing():
    assert set(which_four_bits.claims(curves(GAPS, seeds=1), 2).values()) == {"cannot tell"}


def test_stochastic_rounding_pays_where_its_gap_is_smaller(with_torch):
    gaps = {**GAPS, "nvfp4-plain, SR of gradients": 2e-3}
    assert "it pays there" in which_four_bits.result_of(curves(gaps), 2).answer


@pytest.mark.tier("full")
def test_ways_start_alike_and_part(with_torch):
    a, b = (which_four_bits.losses(FourBitRun(way, 2, 2, 0)) for way in ("fp32", "mxfp4"))
    assert abs(a[0] - b[0]) < 0.3
    assert a[1] != b[1]
