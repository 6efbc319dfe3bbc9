"""Settings: habits of formats, refusals, what `replace` and `with_format` keep (corners, law)."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

import fpsim as fp
from fpsim.records.rounding import RNE
from fpsim.records.settings import SUBNORMALS, Settings

FORMATS = [fp.BINARY16, fp.BINARY32, fp.BFLOAT16, fp.E4M3FN, fp.E5M2, fp.F143, fp.E2M1FN]


@pytest.mark.parametrize(
    ("fmt", "overflow", "infinite"),
    [
        (fp.BINARY16, "infinity", "keep"),
        (fp.E5M2, "infinity", "keep"),
        (fp.E4M3FN, "nan", "nan"),
        (fp.F143, "nan", "nan"),
        (fp.E2M1FN, "saturate", "saturate"),
    ],
    ids=str,
)
def test_the_habit_is_the_first_that_the_format_has(fmt, overflow, infinite):
    settings = Settings(fmt)
    assert (settings.overflow, settings.infinite_input) == (overflow, infinite)


def test_infinite_operands_follow_a_chosen_overflow_where_there_is_no_infinity():
    assert Settings(fp.E4M3FN, overflow="saturate").infinite_input == "saturate"
    assert Settings(fp.BINARY16, overflow="saturate").infinite_input == "keep"
    assert Settings(fp.E4M3FN, overflow="saturate", infinite_input="nan").infinite_input == "nan"


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_the_choices_make_the_same_settings_again(fmt):
    settings = Settings(fmt, fp.SR(3), subnormals="flush_both", tininess="before", nan="x86")
    again = Settings(**settings.choices())
    assert again == settings
    assert hash(again) == hash(settings)
    changed = settings.choices() | {"tininess": "after"}
    assert Settings(**changed) != settings


def test_habits_of_one_format_do_not_become_choices_of_another():
    half = Settings(fp.BINARY16, "RTZ", subnormals="flush_results")
    quarter = half.with_format(fp.E4M3FN)
    assert (quarter.format, quarter.rounding) == (fp.E4M3FN, fp.RTZ)
    assert (quarter.overflow, quarter.infinite_input) == ("nan", "nan")
    assert quarter.subnormals == "flush_results"
    assert quarter.with_format(fp.BINARY16) == half
    assert half.with_format(fp.BINARY16) is half
    settings = Settings(fp.BINARY16, overflow="saturate").with_format(fp.E4M3FN)
    assert settings.overflow == "saturate"


def test_replacing_changes_what_is_named_and_keeps_the_rest():
    settings = Settings(fp.BINARY16, overflow="saturate", quiet_nan_raises=True)
    changed = settings.replace(rounding=fp.SR(7))
    assert (changed.rounding, changed.random_bits, changed.random_most) == (fp.SR(7), 7, 7)
    assert (changed.overflow, changed.quiet_nan_raises) == ("saturate", True)
    assert settings.rounding is RNE
    assert changed.replace(rounding=RNE) == settings
    with pytest.raises(TypeError, match="seed"):
        settings.replace(seed=3)


def test_numbers_of_random_bits_are_those_of_the_mode():
    assert (Settings(fp.BINARY16).random_bits, Settings(fp.BINARY16).random_most) == (0, 0)
    assert Settings(fp.BINARY32, "SR").random_bits == 27
    shallow = Settings(fp.BINARY16, fp.SR(13, subnormal_bits=16))
    assert (shallow.random_bits, shallow.random_most) == (13, 16)
    assert Settings(fp.BINARY16, "SR_EQUAL").random_most == 1
    with pytest.raises(ValueError, match="at most min"):
        Settings(fp.BINARY32, fp.SR(28))


def test_names_stand_for_records():
    assert Settings("binary16", "rtz") == Settings(fp.BINARY16, fp.RTZ)


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        ({"overflow": "wrap"}, "infinity, saturate, nan"),
        ({"subnormals": "flush"}, ", ".join(SUBNORMALS)),
        ({"tininess": "never"}, "after, before"),
        ({"nan": "quiet"}, "canonical, propagate_first, x86"),
        ({"infinite_input": "infinity"}, "keep, saturate, nan"),
        ({"divide_by_zero": "saturate"}, "infinity, nan"),
        ({"quiet_nan_raises": 2}, "False, True"),
        ({"subnormals": None}, ", ".join(SUBNORMALS)),
    ],
    ids=str,
)
def test_an_unknown_choice_is_refused_with_the_known_ones(choice, offered):
    (name,) = choice
    with pytest.raises(ValueError, match=f"{name}=.*use one of {offered}"):
        Settings(fp.BINARY16, **choice)


@pytest.mark.parametrize(
    ("fmt", "choice", "offered"),
    [
        (fp.E4M3FN, {"overflow": "infinity"}, "saturate or nan"),
        (fp.E2M1FN, {"overflow": "nan"}, "use saturate"),
        (fp.E4M3FN, {"infinite_input": "keep"}, "saturate or nan"),
        (fp.E2M1FN, {"infinite_input": "nan"}, "use saturate"),
        (fp.E2M1FN, {"divide_by_zero": "nan"}, "use infinity"),
    ],
    ids=str,
)
def test_a_value_that_the_format_has_not_is_refused(fmt, choice, offered):
    with pytest.raises(ValueError, match=offered):
        Settings(fmt, **choice)


def test_a_scale_format_has_no_arithmetic():
    with pytest.raises(TypeError, match=r"E8M0\.encode"):
        Settings(fp.E8M0)


@pytest.mark.parametrize(
    "choice",
    [
        {"rounding": "RTZ"}, {"rounding": "SR"}, {"overflow": "saturate"}, {"tininess": "before"},
        {"subnormals": "flush_both"}, {"nan": "x86"}, {"infinite_input": "nan"},
        {"divide_by_zero": "nan"}, {"quiet_nan_raises": True},
    ],
    ids=str,
)
def test_binary64_is_the_processors_own_arithmetic_alone(choice):
    assert Settings(fp.BINARY64).native
    assert not Settings(fp.BINARY32).native
    with pytest.raises(ValueError, match="computes natively"):
        Settings(fp.BINARY64, **choice)


def test_settings_do_not_change():
    settings = Settings(fp.BINARY16)
    with pytest.raises(FrozenInstanceError):
        settings.rounding = fp.RTZ
    settings.choices()["rounding"] = fp.RTZ
    assert settings.choices()["rounding"] is RNE
