"""Fingerprints rediscover the records they do not read (golden: Fasi et al. 2021)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fpsim.inspect.fingerprint import fingerprint
from fpsim.records.rounding import RNE
from fpsim.records.units import UNITS, find_unit
from tests.fpsim.kinds_of_units import ONE_OF_EACH_KIND
from tests.tiers import pick


@pytest.mark.parametrize("name", pick(ONE_OF_EACH_KIND, list(UNITS), list(UNITS)))
def test_a_record_is_found_again(name):
    unit = find_unit(name)
    result = fingerprint(unit)
    assert (result.terms, result.order) == (unit.terms, unit.order)
    assert result.window == unit.window
    assert result.cut == (unit.cut if unit.window else None)
    assert result.digits == unit.accumulator.precision
    assert result.rounding == unit.rounding.name
    assert result.stored == min(unit.partials.precision, unit.emitted.precision)
    is_limited = result.stored < result.digits and unit.calls is not None
    assert result.channels == (unit.channels if is_limited else None)
    assert result.joined == (unit.join is not None)
    assert result.exact
    assert result.subnormals


@pytest.mark.source("Fasi et al. 2021, commit 9dae3fc")
def test_the_v100_is_not_monotone_and_its_successors_are():
    names = ("V100_F16_F32", "A100_F16_F32", "H100_F16_F32")
    assert [fingerprint(name).monotone for name in names] == [False, True, True]


#: The last one has a kernel of its own.
CHANGES = [({"window": 30}, "window"), ({"cut": "sticky"}, "cut"), ({"terms": 8}, "terms")]


@pytest.mark.parametrize(("change", "field"), pick(CHANGES[:2], CHANGES, CHANGES))
def test_a_changed_record_has_another_fingerprint(change, field):
    unit = find_unit("AMP_F16_F32")
    assert unit.rounding is RNE
    changed, usual = fingerprint(replace(unit, **change)), fingerprint(unit)
    assert getattr(changed, field) == change[field] != getattr(usual, field)
