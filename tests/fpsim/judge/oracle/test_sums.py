"""The oracle of sums on codes that are added by hand (golden)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.judge.oracle.sums import ORDERS, mean_of, sum_of
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY16, F143
from fpsim.records.rounding import RNE, RTN, SR

ONE, MINUS_ONE, ZERO, MINUS_ZERO = 0x3C00, 0xBC00, 0x0000, 0x8000
LEAST, INF, MINUS_INF, NAN, SIGNALLING = 0x0001, 0x7C00, 0xFC00, 0x7E00, 0x7D01
NONE, INVALID = Flags.NONE, Flags.INVALID
X, U = Flags.INEXACT, Flags.UNDERFLOW


def total(order, codes, fmt=BINARY16, **choices):
    return sum_of(order, codes, fmt, lambda place: OracleSettings(**choices))


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_is_plus_zero_and_one_element_is_itself(order):
    for choices in ({}, {"rounding": RTN}, {"subnormals": "flush_results"}):
        assert total(order, (), **choices) == (ZERO, NONE)
        for code in (ONE, MINUS_ZERO, ZERO, LEAST, INF, MINUS_INF, 0xFBFF):
            assert total(order, (code,), **choices) == (code, NONE)


@pytest.mark.parametrize("order", ORDERS)
def test_one_element_is_read_as_operands_are(order):
    both = {"subnormals": "flush_both"}
    assert total(order, (LEAST,), **both) == (ZERO, NONE)
    assert total(order, (0x8000 | LEAST,), **both) == (MINUS_ZERO, NONE)
    assert total(order, (0x81,), F143) == (0x81, NONE)
    assert total(order, (0x81,), F143, **both) == (0, NONE)
    assert total(order, (NAN,)) == (NAN, NONE)
    assert total(order, (NAN,), quiet_nan_raises=True) == (NAN, INVALID)
    assert total(order, (SIGNALLING,))[1] == INVALID


@pytest.mark.parametrize("order", ORDERS)
def test_subnormal_operands_are_zeros_in_every_order(order):
    codes = (0x0300, 0x0300, ONE)
    assert total(order, codes, subnormals="flush_both") == (ONE, NONE)
    assert total(order, (0x0300, 0x0300), subnormals="flush_both") == (ZERO, NONE)
    assert total(order, (0x0300, 0x0200), subnormals="flush_both") == (ZERO, NONE)
    assert total(order, codes) == (ONE, X)


@pytest.mark.parametrize("order", [o for o in ORDERS if o != "kahan"])
def test_the_sign_of_a_zero_sum(order):
    for rounding, cancelled in ((RNE, ZERO), (RTN, MINUS_ZERO)):
        for codes, code in (
            ((ZERO, ZERO), ZERO), ((MINUS_ZERO, MINUS_ZERO, MINUS_ZERO), MINUS_ZERO),
            ((ZERO, MINUS_ZERO), cancelled), ((ONE, MINUS_ONE), cancelled),
            ((MINUS_ZERO, ONE, MINUS_ONE), cancelled),
        ):
            assert total(order, codes, rounding=rounding) == (code, NONE)
    assert total(order, (0x40, 0xC0), F143, rounding=RTN) == (0, NONE)


@pytest.mark.parametrize("order", ORDERS)
def test_subnormal_sums_are_flushed(order):
    """1.25 * 2**-14 - 2**-14 is 2**-16, a subnormal number."""
    assert total(order, (0x0500, 0x8400)) == (0x0100, NONE)
    assert total(order, (0x0500, 0x8400), subnormals="flush_results") == (ZERO, X | U)


def test_only_the_exact_sum_rounds_once():
    """1 and three quarters of a unit, in four parts: each is lost beside 1."""
    part = 0x0C00  # 2**-12
    codes = (ONE, part, part, part)
    assert total("sequential", codes) == (ONE, X)
    assert total("exact", codes) == (ONE + 1, X)
    assert total("exact", (*codes, part)) == (ONE + 1, NONE)
    assert total("kahan", codes)[0] == ONE + 1
    assert total("pairwise", codes) == (ONE, X)  # (1 + p) + (p + p): a tie, to even
    blocks = (part, part, part, part, ONE)
    assert sum_of("blocked", blocks, BINARY16, lambda place: OracleSettings(), 4)[0] == ONE + 1


def test_places_of_the_additions():
    """The codes of three rounding modes at known places say which addition was where."""
    places = []

    def at(place):
        places.append(place)
        return replace(OracleSettings(), rounding=SR(4), word=0)

    for order, wanted in (
        ("sequential", [0, 1, 2, 3]), ("pairwise", [0, 2, 1, 3]), ("blocked", [0, 2, 1, 3]),
        ("kahan", [*range(16)]), ("exact", [0]),
    ):
        places.clear()
        sum_of(order, (ONE,) * 5, BINARY16, at, block=2)
        assert places == wanted, order
        mean_of(order, (ONE,) * 5, BINARY16, at, block=2)
        assert places[-1] == {"kahan": 16, "exact": 1}.get(order, 4)


@pytest.mark.parametrize("order", ORDERS)
def test_means(order):
    def at(place):
        return OracleSettings()

    assert mean_of(order, (), BINARY16, at) == (NAN, INVALID)
    assert mean_of(order, (ONE, ONE, 0x4000), BINARY16, at) == (0x3D55, X)
    assert mean_of(order, (MINUS_ZERO,), BINARY16, at) == (MINUS_ZERO, NONE)
    assert mean_of(order, (NAN, ONE), BINARY16, at) == (NAN, NONE)


@pytest.mark.parametrize("order", [o for o in ORDERS if o != "kahan"])
def test_infinities_and_nan_decide(order):
    assert total(order, (INF, ONE, INF)) == (INF, NONE)
    assert total(order, (INF, ONE, MINUS_INF)) == (NAN, INVALID)
    assert total(order, (ONE, NAN)) == (NAN, NONE)
    assert total(order, (SIGNALLING, ONE)) == (NAN, INVALID)
    assert total(order, (0x7BFF, 0x7BFF, MINUS_INF))[0] == (MINUS_INF if order == "exact" else NAN)
