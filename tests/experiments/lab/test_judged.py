"""Ways of training that are judged by pairs of equal seeds (golden)."""

from __future__ import annotations

import pytest

from ipu.experiments.lab.judged import judged_ways
from ipu.experiments.lab.result import Result


def table(**accuracies):
    """Rows of each way: its accuracies by seed, and losses that fall."""
    rows = []
    for policy, by_seed in accuracies.items():
        for seed, accuracy in by_seed.items():
            about = {"policy": policy, "seed": seed}
            rows += [{"part": "loss", **about, "epoch": e, "loss": 2.0 / e} for e in range(1, 9)]
            rows.append({"part": "test", **about, "accuracy": accuracy})
    return Result(rows, "", "")


def test_a_way_beside_itself_is_as_good():
    seeds = {seed: 0.9 + seed / 1000 for seed in range(5)}
    (judged,) = judged_ways(table(fp32=seeds, fp16=seeds), ["fp16"], "fp32").values()
    assert judged.is_good


@pytest.mark.parametrize(("few", "many"), [(5, 8), (8, 5)])
def test_ways_of_unequal_seeds_are_paired_by_those_that_both_have(few, many):
    high = {seed: 0.97 + seed / 1000 for seed in range(many)}
    low = {seed: 0.57 + seed / 1000 for seed in range(few)}
    (judged,) = judged_ways(table(fp32=high, fp16=low), ["fp16"], "fp32").values()
    assert judged.answer == "worse"
    assert judged.pairs == 5
