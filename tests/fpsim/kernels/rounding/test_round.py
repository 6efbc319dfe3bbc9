"""The one rounding on lanes against its definition, at and beside midpoints (corners)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.elementwise.constants import LANES, mode_number, plan
from fpsim.judge.oracle.rounding import floor_log2, split, steps_up
from fpsim.kernels.rounding.round import round_fixed, round_random, round_residual
from fpsim.kernels.rounding.rule import RoundingRule
from fpsim.records.formats import BFLOAT16, BINARY16, E4M3FN, E5M2
from fpsim.records.rounding import MODES, RNE, SR, SR_EQUAL, Rounding, Up
from fpsim.records.settings import Settings
from tests.fpsim.kernels.on_lanes import on_bits
from tests.tiers import pick

DETERMINISTIC = [m for m in MODES.values() if not m.stochastic]
RNU = Rounding(
    "RNU", steps=(Up.FROM_HALF,) * 2, negative_steps=(Up.ABOVE_HALF,) * 2
)  # ties toward +infinity
DEFINITION = {"RNU": lambda m, w, sign: w > Fraction(1, 2) or (w == Fraction(1, 2) and not sign)}


def rule_of(constants, a):
    """The constants in all lanes of a formula."""
    return RoundingRule(*((a ^ a) + int(c) for c in constants))


def near_midpoints(fmt, width):
    """Magnitudes of lanes: m q, (m + 1/2) q and their neighbours, from below the quantum upward."""
    carrier = np.float32 if width == 32 else np.float64
    values = []
    for e in (fmt.emin - 2, fmt.emin - 1, fmt.emin, fmt.emin + 1, 0, fmt.emax - 1):
        q = 2.0 ** (max(e, fmt.emin) - fmt.precision + 1)
        m = int(2.0**e / q)
        values += [(m + n) * q + half * q for n in (0, 1) for half in (0, 0.5)]
    x = np.array([v for v in values if v > 0], carrier)
    around = np.concatenate([np.nextafter(x, 0, dtype=carrier), x, np.nextafter(x, 2 * x)])
    bits = around.astype(carrier).view(f"u{width // 8}")
    return np.resize(bits, -(-len(bits) // 16) * 16)


#: Formats and lanes; the quick tier has lanes of both widths.
PLACES = [(BINARY16, 32), (E5M2, 64), (BFLOAT16, 32), (E4M3FN, 64)]


def goes_up(m, w, sign, rounding):
    """Whether a tail w > 0 takes m up: by the oracle, or by the steps of a mode without a name."""
    if rounding.name in DEFINITION:
        return DEFINITION[rounding.name](m, w, sign)
    if rounding.name in MODES:
        return steps_up(m, w, sign, rounding, 0, 0)
    step, half = rounding.steps_of(bool(sign))[m % 2], Fraction(1, 2)
    return {Up.NEVER: False, Up.ABOVE_HALF: w > half, Up.FROM_HALF: w >= half, Up.ALWAYS: True}[
        step
    ]


def check_definition(function, rounding, fmt, width, magnitudes):
    """function(mode, a, negative, rule) of magnitudes of both signs, against the definition."""
    constants = plan("convert", Settings(fmt, rounding), width).constants
    mode = mode_number(rounding)
    signs = np.repeat([0, 1], len(magnitudes)).astype(magnitudes.dtype)

    def rounded(a, negative):
        return function(mode, a, negative != (a ^ a), rule_of(constants, a))

    both = on_bits(rounded, np.tile(magnitudes, 2), signs).view(f"f{width // 8}")
    for sign, actual in enumerate(np.split(both, 2)):
        for bits, result in zip(magnitudes.view(f"f{width // 8}"), actual, strict=True):
            x = Fraction(float(bits))
            m, w, q = split(x, max(floor_log2(x), fmt.emin) if x else fmt.emin, fmt)
            up = w > 0 and goes_up(m, w, sign, rounding)
            assert Fraction(float(result)) == (m + up) * q, (float(x), sign)


@pytest.mark.parametrize("rounding", [*DETERMINISTIC, RNU], ids=repr)
@pytest.mark.parametrize(("fmt", "width"), pick(PLACES[:2], PLACES, PLACES), ids=str)
def test_a_deterministic_mode_rounds_by_its_definition(rounding, fmt, width):
    def rounded(mode, a, negative, rule):
        return round_fixed(mode, a, negative, rule, width)

    check_definition(rounded, rounding, fmt, width, near_midpoints(fmt, width))


@pytest.mark.parametrize("rounding", [SR(1), SR(5), SR(3, subnormal_bits=7), SR_EQUAL], ids=repr)
@pytest.mark.parametrize("low", [False, True])
def test_a_stochastic_mode_goes_up_for_exactly_its_random_digits(rounding, low):
    fmt = E5M2
    settings = Settings(fmt, rounding)
    constants, mode = plan("convert", settings, 64).constants, mode_number(rounding)
    magnitudes = near_midpoints(fmt, 64)[:64]
    most = settings.random_most
    patterns = sorted({0, 1, (1 << most) - 1, 1 << (most - 1), (1 << most) // 3})
    words = np.array([R if low else R << (32 - most) for R in patterns], np.uint64)
    outcomes = on_bits(
        lambda a, w: round_random(mode, a, w, low, rule_of(constants, a), 64),
        np.tile(magnitudes, len(words)), words.repeat(64),
    ).view(np.float64)
    for R, actual in zip(patterns, np.split(outcomes, len(patterns)), strict=True):
        for x, result in zip(map(Fraction, magnitudes.view(np.float64)), actual, strict=True):
            m, w, q = split(x, max(floor_log2(x), fmt.emin), fmt)
            below = max(0, fmt.emin - floor_log2(x))
            r = settings.random_bits
            if isinstance(rounding, SR) and rounding.subnormal_bits:
                r = min(r + below, rounding.subnormal_bits)
            # From the low end the digits are R mod 2**r, from the top the first r of the largest R.
            digits = R % (1 << r) if low else R >> (most - r)
            up = steps_up(m, w, 0, rounding, r, digits << (32 - r))
            assert Fraction(float(result)) == (m + up) * q, (float(x), R)


@pytest.mark.parametrize("even", [False, True])
def test_a_residual_is_rounded_to_the_digits_of_sr(even):
    """w = (t + 1/2) 2**-r: half up takes t + 1, nearest even the even one."""
    fmt, r = BINARY16, 4
    settings = Settings(fmt, SR(r, residual="even" if even else "half"))
    constants = plan("convert", settings, 64).constants
    t = np.arange(16)
    x = 1 + 2.0**-10 * ((t + 0.5) / 16)
    actual = on_bits(
        lambda a: round_residual(a, even, rule_of(constants, a)), x.view(np.uint64)
    ).view(np.float64)
    rounded_up = t + 1 if not even else t + t % 2
    assert actual.tolist() == (1 + 2.0**-10 * (rounded_up / 16)).tolist()


def test_the_bits_of_a_lane_are_those_of_the_native_float():
    for width, lane in LANES.items():
        for x in (1.0, 1.5, 2.0**-126, 0.0, 65504.0):
            dtype, bits = f"f{width // 8}", f"u{width // 8}"
            assert lane.bits(x) == int(np.array(x, dtype).view(bits))
    assert Settings(BINARY16, RNE).random_bits == 0
