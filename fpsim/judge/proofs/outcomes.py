"""What an operation should give: a number or a special value, and flags; beside what a code is.

Source    IEEE 754-2019 §6, §7; docs/semantics.md §1 and §3.
"""

from __future__ import annotations

from typing import NamedTuple

from fpsim.judge.proofs.exact import decoded
from fpsim.judge.proofs.specification import (
    Chance,
    Magnitude,
    ValueGrid,
    grid_of,
    rounded,
)
from fpsim.judge.proofs.terms import Truth, Word, choose
from fpsim.records.formats import Format
from fpsim.records.rounding import SR
from fpsim.records.settings import Settings

__all__ = ["ExpectedResult", "agrees", "chance_of", "mode_name", "not_a_number", "result_of"]

_INEXACT, _UNDERFLOW, _OVERFLOW, _INVALID = 1, 2, 4, 16

#: Infinity and the canonical NaN of binary32 and binary64, by width.
_SPECIAL = {32: (0x7F800000, 0x7FC00000), 64: (0x7FF0000000000000, 0x7FF8000000000000)}


class ExpectedResult(NamedTuple):
    """A result and its flags; the magnitude is that of a finite result."""

    magnitude: Magnitude
    negative: Truth
    infinite: Truth
    nan: Truth
    flags: Word

    def where(self, condition: Truth, other: ExpectedResult) -> ExpectedResult:
        """This where the condition holds, else the other."""
        units = choose(condition, self.magnitude.units, other.magnitude.units)
        return ExpectedResult(
            Magnitude(units, self.magnitude.unit),
            choose(condition, self.negative, other.negative),
            choose(condition, self.infinite, other.infinite),
            choose(condition, self.nan, other.nan),
            choose(condition, self.flags, other.flags),
        )


def mode_name(settings: Settings) -> str:
    """The mode as the specification names it."""
    return settings.rounding.name


def chance_of(settings: Settings, word: Word | None) -> Chance | None:
    """The random number that the mode takes of a word; None for a deterministic mode."""
    if word is None or not settings.rounding.stochastic:
        return None
    rounding = settings.rounding
    if not isinstance(rounding, SR):
        return Chance(word, 1, 1)
    bits = rounding.random_bits(settings.format)
    return Chance(word, bits, rounding.subnormal_bits or bits)


def _stops_at_largest(mode: str, negative: Truth) -> Truth:
    """Where a mode rounds what is too large toward zero."""
    truth = negative.theory.truth
    if mode in ("RTZ", "RTO"):
        return truth(True)
    if mode == "RTP":
        return negative
    return ~negative if mode == "RTN" else truth(False)


def _largest(like: Magnitude, grid: ValueGrid) -> Magnitude:
    return Magnitude(like.of(grid.last, grid.last_exponent), like.unit)


def _beyond(
    choice: str, like: Magnitude, negative: Truth, grid: ValueGrid, flags: Word
) -> ExpectedResult:
    """What stands for a result that is too large, or for an infinity."""
    truth = negative.theory.truth
    is_infinite, is_nan = truth(choice == "infinity"), truth(choice == "nan")
    return ExpectedResult(_largest(like, grid), negative, is_infinite, is_nan, flags)


def _overflow(settings: Settings) -> str:
    """What a format gives beyond its range: an infinity, NaN, or its largest value."""
    habit = {"ieee": "infinity", "fn": "nan", "fnuz": "nan", "finite": "saturate"}
    return settings.arguments["overflow"] or habit[settings.format.specials]


def result_of(
    exact: Magnitude, negative: Truth, settings: Settings, word: Word | None
) -> ExpectedResult:
    """The one rounding of an exact number, with what happens at the ends of the range."""
    theory, grid, mode = exact.theory, grid_of(settings.format), mode_name(settings)
    value, inexact, tiny, over = rounded(
        exact, negative, grid, mode, settings.tininess, chance_of(settings, word)
    )
    flags = theory.word
    zero = exact.of(0, exact.unit)
    raised = choose(inexact, flags(_INEXACT, 8), flags(0, 8))
    raised = choose(inexact & tiny, flags(_INEXACT | _UNDERFLOW, 8), raised)
    no = theory.truth(False)
    plain = ExpectedResult(Magnitude(value, exact.unit), negative, no, no, raised)
    if settings.subnormals not in ("keep", "flush_results", "flush_both"):
        raise ValueError(f"subnormals={settings.subnormals!r} is not specified here")
    if settings.subnormals != "keep":
        lost = ExpectedResult(
            Magnitude(zero, exact.unit), negative, no, no, flags(_INEXACT | _UNDERFLOW, 8)
        )
        plain, over = lost.where(tiny, plain), over & ~tiny
    beyond = flags(_INEXACT | _OVERFLOW, 8)
    stopped = _beyond("saturate", exact, negative, grid, beyond)
    usual = _beyond(_overflow(settings), exact, negative, grid, beyond)
    outcome = stopped.where(_stops_at_largest(mode, negative), usual).where(over, plain)
    return _without_minus_zero(outcome, settings.format)


def _without_minus_zero(outcome: ExpectedResult, fmt: Format) -> ExpectedResult:
    """A zero has no sign where the format has one zero."""
    if fmt.specials != "fnuz":
        return outcome
    is_zero = (outcome.magnitude.units == 0) & ~outcome.infinite & ~outcome.nan
    return outcome._replace(negative=outcome.negative & ~is_zero)


def not_a_number(like: Magnitude, invalid: Truth, settings: Settings) -> ExpectedResult:
    """The result where there is no number: NaN, or the largest value of a format without one."""
    theory = like.theory
    has_nan = settings.format.specials != "finite"
    invalid = invalid if has_nan else theory.truth(True)
    flags = choose(invalid, theory.word(_INVALID, 8), theory.word(0, 8))
    no = theory.truth(False)
    return ExpectedResult(
        _largest(like, grid_of(settings.format)), no, no, theory.truth(has_nan), flags
    )


def infinity_converted(like: Magnitude, negative: Truth, settings: Settings) -> ExpectedResult:
    """What an infinite operand of a conversion becomes."""
    theory, grid = like.theory, grid_of(settings.format)
    choice = settings.arguments["infinite_input"]
    has_infinity = settings.format.specials == "ieee"
    if has_infinity and choice in (None, "keep"):
        return _beyond("infinity", like, negative, grid, theory.word(0, 8))
    flags = theory.word(_INEXACT | _OVERFLOW, 8)
    return _beyond(choice or _overflow(settings), like, negative, grid, flags)


def agrees(code: Word, flags: Word, outcome: ExpectedResult) -> Truth:
    """Whether a binary32 code and flags are this outcome; NaN is the canonical one."""
    top = 1 << (code.width - 1)
    body = code & (top - 1)
    infinity, quiet = _SPECIAL[code.width]
    expected = outcome.magnitude
    units, fits = decoded(code, expected.unit, expected.units.width)
    is_finite = (body < infinity) & fits & (units == expected.units)
    signed = code.is_negative.same(outcome.negative)
    number = choose(outcome.infinite, body == infinity, is_finite) & signed
    return choose(outcome.nan, code == quiet, number) & (flags == outcome.flags)

