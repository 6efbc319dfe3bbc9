"""Registers as words and fields (exhaustive over their fields), and what they make of flags."""

from __future__ import annotations

import itertools
import re

import pytest

from fpsim import BINARY16, BINARY32, F143, SR, Flags
from ipu.machine.control import (
    ALL_ON,
    FRAMEWORK_DEFAULT,
    POPART_CHECKS,
    POPLAR_STRUCT_DEFAULT,
    RULES,
    FpCtl,
    FpSts,
    choices,
    dump,
    status,
    traps,
)

BITS = (False, True)


def test_every_control_register_survives_its_word():
    words = set()
    for inv, div0, oflo, esr, nanoo in itertools.product(BITS, repeat=5):
        for rnd in range(5):
            control = FpCtl(inv, div0, oflo, rnd, esr, nanoo)
            assert FpCtl.from_word(control.word) == control
            words.add(control.word)
    assert len(words) == 2**5 * 5


@pytest.mark.source("facts: Saghetti0/graphcore-ipu-research, bit positions")
def test_bits_stand_where_the_machine_has_them():
    alone = {"inv": 1 << 0, "div0": 1 << 1, "oflo": 1 << 2, "esr": 1 << 19, "nanoo": 1 << 20}
    for name, word in alone.items():
        assert FpCtl(**{name: True}).word == word
    assert FpCtl(rnd=3).word == 3 << 16
    assert [FpSts(inv=True).word, FpSts(div0=True).word, FpSts(oflo=True).word] == [1, 2, 4]


def test_presets():
    assert FRAMEWORK_DEFAULT.word == 0
    assert POPLAR_STRUCT_DEFAULT.word == 7
    assert FpCtl(inv=True, div0=True, oflo=True, nanoo=True) == POPART_CHECKS
    assert ALL_ON.word == 7 | 1 << 19 | 1 << 20


@pytest.mark.parametrize("word", [8, 1 << 21, 5 << 16])
def test_words_with_other_bits_are_refused(word):
    with pytest.raises(ValueError, match=r"outside the fields|not a rounding mode"):
        FpCtl.from_word(word)


def test_wrong_kinds_are_refused():
    with pytest.raises(TypeError, match="esr=1 is not a bit; use True or False"):
        FpCtl(esr=1)
    with pytest.raises(ValueError, match="f32_denormals='keep' is not known; use one of flush"):
        choices(FpCtl(), BINARY32, "keep")


def test_stochastic_rounding_is_for_narrow_results_only():
    control = FpCtl(esr=True)
    assert choices(control, BINARY16)["rounding"] == SR(bits=13, subnormal_bits=16)
    assert not choices(control, BINARY32)["rounding"].stochastic


@pytest.mark.source("S4-38")
@pytest.mark.parametrize("fmt", [BINARY16, F143])
def test_overflow_sets_inv_too_exactly_when_it_gives_nan(fmt):
    overflow = Flags.OVERFLOW | Flags.INEXACT
    assert status(overflow, FpCtl(), fmt) == FpSts(oflo=True)
    assert status(overflow, FpCtl(nanoo=True), fmt) == FpSts(inv=True, oflo=True)
    assert status(overflow, FpCtl(nanoo=True), BINARY32) == FpSts(oflo=True)


def test_underflow_and_inexact_have_no_status_bit():
    assert status(Flags.UNDERFLOW | Flags.INEXACT, ALL_ON, BINARY16) == FpSts()


def test_inv_alone_catches_an_overflow_that_gives_nan():
    assert Flags.OVERFLOW in traps(FpCtl(inv=True, nanoo=True), BINARY16)
    assert Flags.OVERFLOW not in traps(FpCtl(inv=True), BINARY16)
    assert Flags.OVERFLOW not in traps(FpCtl(inv=True, nanoo=True), BINARY32)


@pytest.mark.source("S4-40")
def test_the_dump_can_be_parsed():
    text = dump(FpCtl(oflo=True), FpSts(inv=True, oflo=True))
    line = next(x for x in text.splitlines() if x.startswith("$FP_STS"))
    fields = dict(re.findall(r"(OFLO|DIV0|INV) (0x[01])", line))
    assert fields == {"OFLO": "0x1", "DIV0": "0x0", "INV": "0x1"}


def test_every_rule_names_its_source():
    assert all(rule.source and rule.value for rule in RULES.values())
