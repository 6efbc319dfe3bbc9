"""Windows, pairs and doses of sites, on made-up harms (law, golden)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.policy import Policy
from ipu.run.responses import Dose, SitePair, doses_above, pair_responses, smallest_window
from ipu.run.restoring import BACKWARD, FORWARD, PrecisionSite, Restoring

HALF = Policy.parse("p=f16,c=f16,part=f32")
BINARY32_VALUES = np.float32([1.0, 2.0**17, 1e30, 1 + 2.0**-10 + 2.0**-20])
SITES = [PrecisionSite(name, FORWARD) for name in "abc"]


@pytest.mark.parametrize("steps", [1, 2, 7, 10])
def test_the_window_is_the_smallest_of_all(steps):
    for begin in range(steps):
        for end in range(begin + 1, steps + 1):
            tried = []

            def cures(window, begin=begin, end=end, tried=tried):
                tried.append(window)
                return window[0] <= begin and window[1] >= end

            window = smallest_window(steps, cures)
            assert window == (None if end - begin == steps else (begin, end))
            assert len(tried) <= 2 * math.ceil(math.log2(steps + 1))


def test_a_pair_interacts_where_both_do_more_than_each():
    """Of a and b both must be given back, of b and c each half is one's."""
    def harm(restored):
        names = {site.layer for site in restored}
        return (0.5 if {"a", "b"} <= names else 1.0) - (0.5 if "c" in names else 0.0)

    rows = {(p.first.layer, p.second.layer): p for p in pair_responses(SITES, harm)}
    assert rows["a", "b"].interacts
    assert rows["a", "b"].harms == (0.5, 0.5, 0.5, 0.0)
    assert not rows["a", "c"].interacts
    assert list(pair_responses(SITES, harm, lambda: False)) == []


def test_infinite_harms_are_compared():
    pair = SitePair(*SITES[:2], (math.inf, math.inf, math.inf, 0.0))
    assert pair.interacts
    assert not SitePair(*SITES[:2], (math.inf, 0.0, math.inf, 0.0)).interacts


def test_doses_lie_between_a_format_and_binary32():
    formats = list(doses_above(BINARY16))
    assert [(f.exponent_bits, f.precision) for f in formats] == [
        (5, 12), (5, 13), (5, 15), (5, 19), (6, 11), (7, 11), (8, 11)]
    assert list(doses_above(BINARY32)) == []


def test_a_dose_rounds_results_of_restored_sites_alone():
    site = PrecisionSite("net", BACKWARD)
    (fmt,) = [f for f in doses_above(BINARY16) if f.exponent_bits == 6]
    restoring = Restoring(frozenset([site]), dose=fmt)
    alter = restoring.altering("net", "backward")
    assert alter is not None
    values = BINARY32_VALUES.copy()
    assert alter(values, BINARY32).tolist() == [1.0, 2.0**17, float(fmt.max), 1 + 2.0**-10]
    assert restoring.altering("net", "forward") is None
    assert restoring.altering("other", "backward") is None


def test_a_window_is_of_its_steps():
    site = PrecisionSite("net", FORWARD)
    restoring = Restoring(frozenset([site]), steps=(2, 4))
    formats = [restoring.policy(HALF, "net", "forward", step).compute for step in range(6)]
    assert [fmt == BINARY32 for fmt in formats] == [False, False, True, True, False, False]


def test_a_dose_that_leaves_a_symptom_alone_tells_no_harm():
    """As of a metric, where the losses are binary32's in every format."""
    assert str(Dose(BINARY16, 0.0, cures=False)).endswith("does not cure, a symptom stays")
    assert str(Dose(BINARY16, 0.5, cures=False)).endswith("does not cure, harm 50.0%")
    assert str(Dose(BINARY16, 0.0, cures=True)).endswith("cures, harm 0.0%")
