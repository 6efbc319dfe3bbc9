"""The oracle of matrix units on sums that are done by hand (golden)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import fpsim as fp
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.records.flags import Flags
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit, find_unit

UNIT = MatrixUnit("TEST_F16_F32", "a test", (fp.BINARY16,), fp.BINARY32, 4, 24, rounding=fp.RTZ)
ONE = 0x3C00
INF, NAN, SIGNALLING = 0x7C00, 0x7E00, 0x7D01


def ask(unit: MatrixUnit, fmt: fp.Format = fp.BINARY32, **choices: object) -> Ask:
    scale = choices.pop("scale", 0)
    subnormals = choices.pop("subnormals", "keep")
    settings = Settings(fmt, **choices)  # type: ignore[arg-type]
    return Ask(unit, unit.inputs[0], unit.inputs[-1], settings, scale, subnormals)  # type: ignore[arg-type]


def half(x: float) -> int:
    return int(fp.encode(x, fp.BINARY16))


def output(asked: Ask, a: Sequence[float], b: Sequence[float], c: float = 0.0) -> object:
    code = int(fp.encode(c, asked.unit.partials))
    datum, flags = one_output(asked, [half(x) for x in a], [half(x) for x in b], code)
    return (float(datum.value) if datum.kind == "finite" else datum.kind), flags


def test_products_are_exact_and_summed_before_they_are_rounded():
    a, b = [1.0, 2.0**-12, -1.0], [1.0, 2.0**-12, 1.0]
    assert output(ask(UNIT), a, b) == (2.0**-24, Flags.NONE)
    assert output(ask(UNIT), a, b, 1.0) == (1.0, Flags.NONE)


def test_addends_are_cut_below_the_largest_exponent():
    a, b = [1.0, 2.0**-13, -1.0], [1.0, 2.0**-12, 1.0]
    assert output(ask(UNIT), a, b) == (0.0, Flags.NONE)
    assert output(ask(replace(UNIT, window=25)), a, b) == (2.0**-25, Flags.NONE)
    assert output(ask(replace(UNIT, cut="sticky")), a, b) == (2.0**-24, Flags.NONE)
    assert output(ask(replace(UNIT, window=None)), a, b) == (2.0**-25, Flags.NONE)


def test_the_next_call_takes_the_rounded_sum():
    one = [1.0] * 5
    a = [2.0**-12] * 4 + [1.0]
    unit = replace(UNIT, terms=1, window=None)
    assert output(ask(unit), [1.0, *a[:2]], [1.0, 2.0**-12, 2.0**-12]) == (1.0, Flags.NONE)
    # Four quarters of a unit in one call are a unit, one after the other nothing.
    quarters = [2.0**-13] * 4
    wide = replace(UNIT, window=None)
    assert output(ask(wide), quarters, [2.0**-12] * 4, 1.0)[0] == 1.0 + 2.0**-23  # type: ignore[index]
    assert output(ask(unit), quarters, [2.0**-12] * 4, 1.0)[0] == 1.0  # type: ignore[index]
    assert output(ask(UNIT), one, one) == (5.0, Flags.NONE)


def test_pairs_are_taken_even_ones_first():
    """B200 into binary16: 4096 + 2, rounded to 4096 (a tie), then 1 + 1, and c at the end."""
    unit = find_unit("B200_MMA_E4M3_F16")
    eight = replace(unit, inputs=(fp.BINARY16,))
    a = [64.0, 1.0, 1.0, 0.0, 1.0] + [0.0] * 27
    b = [64.0, 2.0, 2.0, 0.0, 0.0] + [0.0] * 27
    # Terms 0, 1, 4, 5 …: 4096 + 2 is a tie and goes to 4096; then 2, term 2: again a tie.
    assert output(ask(eight, fp.BINARY16), a, b) == (4096.0, Flags.NONE)
    ascending = replace(eight, order="ascending")
    assert output(ask(ascending, fp.BINARY16), a, b) == (4100.0, Flags.NONE)
    assert output(ask(eight, fp.BINARY16), a, b, 2.0) == (4096.0, Flags.NONE)
    assert output(ask(eight, fp.BINARY16), a, b, 4.0) == (4100.0, Flags.NONE)


def test_special_operands():
    inf, nan = float("inf"), float("nan")
    assert output(ask(UNIT), [inf], [1.0]) == ("infinite", Flags.NONE)
    assert output(ask(UNIT), [inf], [0.0]) == ("nan", Flags.INVALID)
    assert output(ask(UNIT), [inf, inf], [1.0, -1.0]) == ("nan", Flags.INVALID)
    assert output(ask(UNIT), [nan], [1.0]) == ("nan", Flags.NONE)
    assert output(ask(UNIT, quiet_nan_raises=True), [nan], [1.0]) == ("nan", Flags.INVALID)
    code = 0
    datum, flags = one_output(ask(UNIT), [SIGNALLING], [ONE], code)
    assert (datum.kind, flags) == ("nan", Flags.INVALID)


def test_a_scale_moves_products_and_not_the_partial():
    assert output(ask(UNIT, scale=-3), [8.0], [1.0], 8.0) == (9.0, Flags.NONE)


def test_flushing_is_for_formats_with_the_exponents_of_binary32():
    tiny = 2.0**-24
    assert output(ask(UNIT, subnormals="flush_both"), [tiny], [1.0])[0] == tiny  # type: ignore[index]
    small = 2.0**-140
    assert output(ask(UNIT), [], [], small)[0] == small  # type: ignore[index]
    assert output(ask(UNIT, subnormals="flush_both"), [], [], small)[0] == 0.0  # type: ignore[index]


@pytest.mark.parametrize(("overflow", "kind"), [("infinity", "infinite"), ("nan", "nan")])
def test_a_result_beyond_its_format_follows_the_policy(overflow, kind):
    got = output(ask(UNIT, fp.BINARY16, overflow=overflow), [256.0], [256.0])
    assert got == (kind, Flags.OVERFLOW)
    assert output(ask(UNIT, fp.BINARY16, overflow="saturate"), [256.0], [256.0]) == (
        65504.0, Flags.OVERFLOW,
    )


def test_each_store_of_narrow_partials_draws_its_own_bits():
    unit = replace(find_unit("V100_F16_F16"), accumulator=fp.BINARY32, rounding=fp.RTZ)
    places: list[int] = []

    def draw(place: int) -> int:
        places.append(place)
        return 0

    asked = ask(unit, fp.BINARY16, rounding=fp.SR(4))
    one_output(asked, [ONE] * 9, [ONE] * 9, 0, draw)
    assert places == [0, 1, 2, 3]  # three passes, and the last rounding, which changes nothing
