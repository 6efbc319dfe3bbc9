"""Rounding modes as records: names, limits, and the sentences of their errors (corners)."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fpsim.context import Context
from fpsim.records.formats import BINARY16, BINARY32, BINARY64
from fpsim.records.rounding import MODES, RNE, RTZ, SR, SR_EQUAL, Rounding, find_rounding


def test_modes_are_found_by_name() -> None:
    for name, mode in MODES.items():
        assert find_rounding(name) is find_rounding(name.lower()) is find_rounding(mode) is mode
        assert repr(mode) == name
    assert find_rounding("sr") == SR()


def test_only_stochastic_modes_take_random_bits() -> None:
    assert [m.random_bits(BINARY16) for m in (RNE, RTZ, SR_EQUAL, SR(4))] == [0, 0, 1, 4]
    assert [m.stochastic for m in (RNE, SR_EQUAL, SR())] == [False, True, True]


@pytest.mark.parametrize("name", MODES)
def test_an_exact_difference_of_zero_is_negative_toward_minus_infinity_alone(name: str) -> None:
    """IEEE 754-2019, 6.3."""
    one = Context(BINARY16, rounding=name).array(1.0)
    assert bool(np.signbit((one - one).values)) == (name == "RTN")


def test_sr_without_a_number_takes_the_most_the_format_allows() -> None:
    assert SR().random_bits(BINARY32) == 27
    assert SR().random_bits(BINARY16) == 32


def test_sr_refuses_more_bits_than_the_format_allows() -> None:
    with pytest.raises(ValueError, match=r"use at most min\(32, 51 - precision\) = 27"):
        SR(28).random_bits(BINARY32)
    with pytest.raises(ValueError, match="format=binary64 has no stochastic rounding"):
        SR().random_bits(BINARY64)
    with pytest.raises(ValueError, match="at most"):
        SR(13, subnormal_bits=30).random_bits(BINARY32)


@pytest.mark.parametrize("bits", [0, -1, 33])
def test_sr_refuses_bits_out_of_range(bits: int) -> None:
    with pytest.raises(ValueError, match=f"bits={bits} is out of range; use 1 to 32"):
        SR(bits)
    with pytest.raises(ValueError, match=f"subnormal_bits={bits} is out of range; use 1 to 32"):
        SR(subnormal_bits=bits)


@pytest.mark.parametrize("bits", [True, 4.0, "4"])
def test_sr_refuses_bits_that_are_no_number(bits: object) -> None:
    with pytest.raises(TypeError, match="is not a number of bits"):
        SR(bits)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a number of bits"):
        SR(subnormal_bits=bits)  # type: ignore[arg-type]


def test_sr_refuses_conflicts() -> None:
    with pytest.raises(ValueError, match="residual='up' is not known; use one of truncate"):
        SR(4, residual="up")
    with pytest.raises(ValueError, match="needs bits at most as large"):
        SR(13, subnormal_bits=12)
    with pytest.raises(ValueError, match="needs bits at most as large"):
        SR(subnormal_bits=16)


def test_records_compare_hash_print_and_pickle() -> None:
    ipu = SR(bits=13, subnormal_bits=16)
    assert ipu == SR(13, subnormal_bits=16) != SR(13)
    assert len({ipu, SR(13, subnormal_bits=16), SR(13)}) == 2
    assert repr(SR(8, residual="even")) == "SR(bits=8, residual='even')"
    for rounding in (ipu, RNE):
        assert pickle.loads(pickle.dumps(rounding)) == rounding


def test_unknown_roundings_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"is not a Rounding; use one of RNE.* Did you mean 'RNE'\?"
    ):
        find_rounding("RNEE")
    with pytest.raises(TypeError, match="is not a Rounding"):
        find_rounding(3)  # type: ignore[arg-type]
    for result in (Rounding("FOO"), Rounding("RNE", stochastic=True), Rounding("SR")):
        with pytest.raises(ValueError, match="is not a Rounding; use one of"):
            find_rounding(result)
    assert find_rounding(Rounding("RTN")) is MODES["RTN"]
    assert isinstance(SR(), Rounding)


def test_the_most_random_bits_that_can_be_asked_for_are_32():
    assert SR(32).random_bits(BINARY16) == 32
    assert SR(1, subnormal_bits=32).subnormal_bits == 32
