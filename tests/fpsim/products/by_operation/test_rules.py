"""What settings say of fast products: corners, and that they are asked once (law)."""

from __future__ import annotations

import pytest

import fpsim as fp
from fpsim.products.by_operation.rules import MacRules, mac_rules
from fpsim.records.settings import Settings


@pytest.mark.parametrize(
    "choices",
    [
        {"subnormals": "flush_both"}, {"nan": "propagate_first"}, {"quiet_nan_raises": True},
        {"rounding": fp.SR_EQUAL},
    ],
    ids=str,
)
def test_policies_that_no_fast_kernel_knows(choices):
    assert MacRules(Settings(fp.BINARY16), False).is_ordinary
    assert not MacRules(Settings(fp.BINARY16, **choices), False).is_ordinary


def test_modes_without_a_fused_kernel():
    for mode, fused in ((fp.RNA, False), (fp.RNZ, False), (fp.RNE, True), (fp.RTO, True)):
        assert MacRules(Settings(fp.BINARY16, mode), fused).is_ordinary
    for mode in (fp.RNA, fp.RNZ):
        assert not MacRules(Settings(fp.BINARY16, mode), True).is_ordinary


@pytest.mark.parametrize(
    ("settings", "bits"),
    [
        (Settings(fp.BINARY32), 32), (Settings(fp.BINARY16, fp.RTN), 16),
        (Settings(fp.BFLOAT16), 0), (Settings(fp.BINARY32, fp.RNA), 0),
        (Settings(fp.BINARY32, overflow="saturate"), 0),
        (Settings(fp.BINARY32, tininess="before"), 0),
    ],
)
def test_formats_that_processors_have(settings, bits):
    assert MacRules(settings, False).native_bits == bits


def test_rules_are_found_once_for_settings_and_kind():
    settings = Settings(fp.BINARY16)
    assert mac_rules(settings, False) is mac_rules(settings, False)
    assert mac_rules(settings, True).fused
    assert not mac_rules(settings, False).fused


def test_digits_that_lanes_must_have():
    """Twice the precision, two more to nearest; the random bits of a stochastic rounding."""
    needs = {
        (str(mode), fused): MacRules(Settings(fp.BINARY16, mode), fused).need
        for mode in (fp.RNE, fp.RTZ, fp.SR(13))
        for fused in (False, True)
    }
    assert needs == {
        ("RNE", False): 24, ("RNE", True): 22, ("RTZ", False): 22, ("RTZ", True): 22,
        ("SR(bits=13)", False): 24, ("SR(bits=13)", True): 24,
    }
