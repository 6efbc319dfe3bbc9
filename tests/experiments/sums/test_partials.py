"""Errors of partials stay below their bounds (law)."""

from __future__ import annotations

import pytest

from ipu.experiments.sums import partials


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
