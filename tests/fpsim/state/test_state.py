"""The state of a context: flags, traps, the clock and what two states share (corners)."""

from __future__ import annotations

import pytest

import fpsim as fp
from fpsim.records.flags import Flags
from fpsim.records.settings import Settings
from fpsim.state.bits import Philox, Replay
from fpsim.state.state import State


def state(fmt=fp.BINARY16, traps=Flags.NONE, *, count=False, bits=None):
    return State(Settings(fmt), bits or Philox(3), traps, count=count)


def test_a_fresh_state_has_raised_nothing():
    s = state()
    assert (s.flags, s.traps, s.operation, s.counts) == (Flags.NONE, Flags.NONE, 0, None)
    assert (s.format, s.rounding, s.seed) == (fp.BINARY16, fp.RNE, 3)
    assert state(bits=Replay([])).seed is None


def test_flags_stick_until_they_are_lowered():
    s = state()
    s.raise_flags(1)
    s.raise_flags(4)
    assert s.flags == Flags.INEXACT | Flags.OVERFLOW
    s.flags = Flags.INVALID
    assert s.flags == Flags.INVALID
    s.clear_flags()
    assert s.flags == Flags.NONE


@pytest.mark.parametrize("wrong", [32, -1, True, 1.0, "INVALID", None])
@pytest.mark.parametrize("name", ["flags", "traps"])
def test_what_is_no_flag_is_refused(name, wrong):
    s = state(traps=Flags.OVERFLOW)
    s.flags = Flags.INEXACT
    with pytest.raises(TypeError, match=f"{name}=.*is not a Flags"):
        setattr(s, name, wrong)
    assert (s.flags, s.traps) == (Flags.INEXACT, Flags.OVERFLOW)
    with pytest.raises(TypeError, match="traps="):
        state(traps=wrong)


def test_elements_are_watched_for_a_trap_or_a_count():
    assert not state().watched
    assert state(count=True).watched
    s = state(traps=Flags.INVALID)
    assert s.watched
    assert s.armed == 16
    s.traps = Flags.NONE
    assert not s.watched


def test_shared_states_have_one_of_flags_counts_and_clock_but_not_of_traps():
    first, second = state(count=True, traps=Flags.INVALID), state(fp.BFLOAT16)
    second.flags = Flags.DIVBYZERO
    second.share(first)
    assert second.flags == Flags.NONE
    second.raise_flags(2)
    second.operation = 7
    second.counts.tensor = "weight"
    assert (first.flags, first.operation, first.counts.tensor) == (Flags.UNDERFLOW, 7, "weight")
    first.clear_flags()
    assert second.flags == Flags.NONE
    first.flags = Flags.INEXACT
    assert second.flags == Flags.INEXACT
    assert second.traps == Flags.NONE
    assert second.format == fp.BFLOAT16


def test_the_reference_has_neither_traps_nor_counts():
    assert state(fp.BINARY64).settings.native
    for choice in ({"traps": Flags.INVALID}, {"count": True}):
        with pytest.raises(ValueError, match="binary64 computes natively"):
            state(fp.BINARY64, **choice)


def test_the_text_names_flags_and_traps_most_severe_first():
    s = state(traps=Flags.OVERFLOW | Flags.INVALID)
    s.raise_flags(1 | 8)
    assert s.dump() == "flags DIVBYZERO|INEXACT; traps INVALID|OVERFLOW"
