"""From settings to the constants of a kernel.

Overflow and tininess are thresholds on the operand of the rounding: for a format, mode and sign the
smallest magnitude that overflows, and the smallest that does not round below the smallest normal,
are numbers. Written down once here, they cost the kernels a comparison each.

Source    docs/semantics.md §1 and §3; the tests compare every constant's effect with the oracle.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.by_operation.lane_rounding import DIRECTIONS, NATIVE_MODES
from fpsim.kernels.rounding.modes import RNE, SR, SR_EQUAL, deterministic
from fpsim.kernels.rounding.rule import RoundingRule
from fpsim.kernels.status_register import FLUSHING, HAS_STATUS, IS_ARM, TININESS
from fpsim.kernels.target import HAS_FMA
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32, Format
from fpsim.records.rounding import RESIDUALS, Rounding, Steps, Up
from fpsim.records.settings import ZERO_OR_NORMAL, Settings

__all__ = [
    "LANES", "KernelPlan", "Lane", "exact_width", "mode_number", "plan", "processor_constants",
    "processor_status",
]


class Lane(NamedTuple):
    """A native float as the kernels see it."""

    width: int
    digits: int
    bias: int

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        return (self.sign - 1) >> (self.digits - 1) << (self.digits - 1)

    @property
    def quiet(self) -> int:
        return 1 << (self.digits - 2)

    def bits(self, value: float) -> int:
        """Bit pattern of a value >= 0 that the lane holds exactly (no conversion may flush it)."""
        fraction, exponent = math.frexp(value)
        significand = int(math.ldexp(fraction, self.digits))
        field = exponent - 1 + self.bias
        if field < 1 or significand == 0:
            return significand >> max(1 - field, 0)
        return (field << (self.digits - 1)) + significand - (1 << (self.digits - 1))


LANES = {32: Lane(32, 24, 127), 64: Lane(64, 53, 1023)}


class KernelPlan(NamedTuple):
    """What one kernel call needs besides operands and random bits."""

    constants: NDArray[np.unsignedinteger]
    mode: int
    residual: int
    flush: bool
    one_zero: bool
    stochastic: bool
    whole_words: bool
    #: Stochastic rounding below the normal numbers may take `fpsim.kernels.rounding.quanta`.
    in_quanta: bool


def _fits_32(fmt: Format) -> bool:
    """Whether 32-bit lanes can round into the format: two digits to spare, a grid they can hold.

    They also hold the number whose last digit is the quantum (see `fpsim.kernels.rounding.grids`).
    """
    quantum = fmt.emin - fmt.precision + 1
    return (
        fmt.carrier == np.float32
        and fmt.precision <= 22
        and (fmt.emin == -126 or -126 <= quantum <= 127 - 23)
    )


@lru_cache(maxsize=4096)
def exact_width(operation: str, settings: Settings, input_size: int) -> int:
    """Lanes in which the exact result, rounded to odd, still decides every rounding: 32 or 64.

    Error     none: two digits beyond the precision (and beyond SR's digits) are kept; of sums that
              SR rounds the lanes hold every digit that it looks at.
    """
    fmt = settings.format
    if (
        input_size == 8
        or not _fits_32(fmt)
        # Where the lanes' own subnormals are the format's, their depth does not show.
        or (fmt.emin == -126 and settings.random_most > settings.random_bits)
        # SR would look at digits of zero and of the lanes' own subnormals.
        or (fmt.emin != -126 and fmt.emin - fmt.precision + 1 < settings.random_most - 126)
        or settings.rounding.residual != "truncate"
    ):
        return 64
    if operation in ("convert", "copy", "round_to_integral"):
        return 32
    # Of subnormal results SR looks at no digit that it would not look at elsewhere.
    cut = settings.rounding.proportional and settings.random_bits <= 24 - fmt.precision
    if operation in ("add", "subtract"):
        # Just below 2**128 a sum of more digits would become infinite in the lanes already.
        short = fmt.emax < 127 or 2 * fmt.precision <= 24
        return 32 if short and (cut or settings.random_most <= 22 - fmt.precision) else 64
    if operation == "multiply":
        small = 2 * (fmt.emin - fmt.precision + 1) >= -149
        return 32 if 2 * fmt.precision <= 24 and small and 2 * (fmt.emax + 1) <= 127 else 64
    if operation in ("divide", "sqrt"):
        decided = cut or not settings.rounding.proportional
        return 32 if decided and _divides_in_32(fmt) else 64
    return 64


def _divides_in_32(fmt: Format) -> bool:
    """Whether lanes of 32 bits hold a quotient, a root and what is left of their operands exactly.

    What is left has no digit below 2**-23 of a quotient's first one times the divisor's last one.
    """
    quantum, top = fmt.emin - fmt.precision + 1, fmt.emax + 1
    return fmt.precision <= 11 and 2 * quantum - top - 23 >= -149 and max(-quantum, top) <= 62


def mode_number(rounding: Rounding) -> int:
    """The mode as kernels take it."""
    if rounding.stochastic:
        return SR if rounding.proportional else SR_EQUAL
    return deterministic(rounding.steps_of(False), rounding.steps_of(True), rounding.minus_zero)


def _steps(rounding: Rounding, negative: bool) -> Steps:
    """The steps of the mode; those of a stochastic one are not looked at."""
    return (Up.ABOVE_HALF,) * 2 if rounding.stochastic else rounding.steps_of(negative)


#: Operations of binary32 whose inexact results are tiny after rounding if they are so before it.
#: Tiny sums are exact; no root is tiny; a quotient of numbers of 24 digits that is below a power of
#: two is at least 2**-24 of it below.
_SURELY_TINY = ("add", "subtract", "divide", "sqrt")


@lru_cache(maxsize=4096)
def processor_status(operation: str, settings: Settings, input_size: int) -> int:
    """Modes of the status word under which the processor rounds as the settings say; else -1."""
    mode = mode_number(settings.rounding)
    rounds = operation in ("add", "subtract", "multiply", "divide", "sqrt") or (
        operation == "fma" and HAS_FMA and settings.quiet_nan_raises
    )
    if (
        HAS_STATUS and rounds and input_size == 4 and settings.format == BINARY32
        and mode in NATIVE_MODES and settings.rounding.residual == "truncate"
        and (settings.overflow, settings.divide_by_zero) == ("infinity", "infinity")
        and (settings.tininess == TININESS or operation in _SURELY_TINY)
        and settings.nan == "canonical" and settings.subnormals in FLUSHING
    ):
        return DIRECTIONS[mode] | FLUSHING[settings.subnormals]
    return -1


def has_processor_marks(operation: str, settings: Settings) -> bool:
    """Whether flags of each element are known where the processor rounds (`processor_status`).

    To nearest, of all but fma, by its own fma; of x86 alone, where it was tried.
    """
    return (
        HAS_FMA and not IS_ARM and operation != "fma" and mode_number(settings.rounding) == RNE
        and settings.subnormals in ("keep", "flush_both")
    )


def processor_constants(settings: Settings) -> NDArray[np.unsignedinteger]:
    """What the kernel needs beside the processor: the NaN that results become, and its flags."""
    rule = RoundingRule(*[0] * len(RoundingRule._fields))._replace(**_nan_rule(settings, LANES[32]))
    return np.array(rule, np.uint32)


class Brink(NamedTuple):
    """The end of a grid: its last value, the one that would follow, and the middle between them."""

    last: int
    middle: int
    beyond: int
    odd: int  # whether the last value is an odd number of units


def _brink(fmt: Format, lane: Lane, integral: bool) -> Brink:
    if integral:
        whole = math.floor(fmt.max)
        return Brink(lane.bits(whole), lane.bits(whole + 0.5), lane.bits(whole + 1.0), whole & 1)
    last, unit = lane.bits(fmt.max), 1 << (lane.digits - fmt.precision)
    return Brink(last, last + unit // 2, last + unit, last // unit & 1)


def _overflow_threshold(rounding: Rounding, end: Brink, negative: bool) -> int:
    """Smallest magnitude that, rounded with unbounded exponent, exceeds the largest value."""
    step = _steps(rounding, negative)[end.odd]
    return {
        Up.NEVER: end.beyond, Up.ABOVE_HALF: end.middle + 1, Up.FROM_HALF: end.middle,
        Up.ALWAYS: end.last + 1,
    }[step]


def _tiny_threshold(settings: Settings, lane: Lane, negative: bool) -> int:
    """Smallest magnitude that is not tiny: it rounds, exponent unbounded, to the smallest normal.

    The last number below that has an odd significand, all ones.
    """
    drop = lane.digits - settings.format.precision
    normal = lane.bits(settings.format.smallest_normal)
    if settings.tininess == "before" or settings.rounding.stochastic:
        return normal
    # Half a unit of the binade below, as the lane spaces it (its own subnormals do not shrink).
    half = 1 << (drop - (2 if normal >> (lane.digits - 1) == 1 else 1))
    _, step = _steps(settings.rounding, negative)
    return normal - {
        Up.NEVER: 0, Up.ABOVE_HALF: half - 1, Up.FROM_HALF: half, Up.ALWAYS: 2 * half - 1,
    }[step]


def _up_threshold(rounding: Rounding, half: int, lane: Lane, negative: bool) -> int:
    """Below the quantum, where m = 0 is even, a larger magnitude goes up to it."""
    step, _ = _steps(rounding, negative)
    return {
        Up.NEVER: lane.sign - 1, Up.ABOVE_HALF: half, Up.FROM_HALF: half - 1, Up.ALWAYS: 0,
    }[step]


def _value_bits(choice: str, fmt: Format, lane: Lane, negative: bool, nan: int) -> int:
    if choice == "nan":
        return nan
    magnitude = lane.bits(fmt.max) if choice == "saturate" else lane.infinity
    return magnitude | (lane.sign if negative else 0)


def _nan_rule(settings: Settings, lane: Lane) -> dict[str, int]:
    """How a NaN result is made: canonical, or from the first NaN operand."""
    fmt = settings.format
    canonical = lane.infinity | lane.quiet
    if not fmt.has_nan:
        largest = lane.bits(fmt.max)
        return {
            "nan_keep": 0, "nan_set": largest, "nan_made": largest, "made_first": 0,
            "nan_flags": int(Flags.INVALID),
        }
    keep = 0
    if settings.nan != "canonical" and fmt.specials not in ("fnuz", "extended"):
        payload = (1 << (fmt.precision - 1)) - 1 if fmt.specials == "ieee" else 0
        keep = lane.sign | lane.infinity | payload << (lane.digits - fmt.precision)
    x86 = settings.nan == "x86" and fmt.has_negative_zero
    return {
        "nan_keep": keep,
        "nan_set": canonical,
        "nan_made": canonical | (lane.sign if x86 else 0),
        "made_first": lane.sign | (lane.sign - 1) if settings.nan == "x86" else 0,
        "nan_flags": int(Flags.INVALID) if settings.quiet_nan_raises else 0,
    }


def _edges(settings: Settings, lane: Lane, integral: bool) -> dict[str, int]:
    """Overflow, tininess and special values, for both signs."""
    fmt, rounding = settings.format, settings.rounding
    nan = _nan_rule(settings, lane)
    overflow = settings.overflow
    # The choice is for conversions; an infinity rounded to a whole number stays one.
    infinite = "keep" if integral and fmt.has_infinity else settings.infinite_input
    assert overflow is not None
    assert infinite is not None
    pole = settings.divide_by_zero
    # Asked for, the NaN of x / 0 is made from numbers; where infinity is missing it is overflow's.
    pole_nan = nan["nan_made"] if pole == "nan" else nan["nan_set"]
    if pole == "infinity" and not fmt.has_infinity:
        pole = overflow
    end = _brink(fmt, lane, integral and fmt.max < 2 ** (fmt.precision - 1))
    edges = {
        **nan,
        "last": end.last,
        "infinite_flags": 0 if infinite == "keep" else int(Flags.OVERFLOW | Flags.INEXACT),
    }
    for name, negative in (("pos", False), ("neg", True)):
        beyond = "saturate" if rounding.stops_at_largest(negative) else overflow
        nan_bits = nan["nan_set"]
        edges[f"over_{name}"] = _overflow_threshold(rounding, end, negative)
        edges[f"over_value_{name}"] = _value_bits(beyond, fmt, lane, negative, nan_bits)
        edges[f"tiny_{name}"] = 0 if integral else _tiny_threshold(settings, lane, negative)
        edges[f"infinite_{name}"] = _value_bits(infinite, fmt, lane, negative, nan_bits)
        edges[f"zero_divide_{name}"] = _value_bits(pole, fmt, lane, negative, pole_nan)
    return edges


def _grid(fmt: Format, emin: int, rounding: Rounding, lane: Lane) -> dict[str, int]:
    """The spacing of results: the format's own, or that of whole numbers."""
    field = emin + lane.bias
    # Powers by ldexp: pow is exact only where the processor rounds to nearest.
    quantum = lane.bits(math.ldexp(1.0, emin - fmt.precision + 1))
    half = lane.bits(math.ldexp(1.0, emin - fmt.precision))
    return {
        "drop": lane.digits - fmt.precision,
        "emin": 0 if field == 1 else field,
        "hidden": 1 << (lane.digits - 1),
        "quantum": quantum,
        "quantum_sr": 0 if field == 1 else quantum,
        "up_pos": _up_threshold(rounding, half, lane, False),
        "up_neg": _up_threshold(rounding, half, lane, True),
    }


def _rule(operation: str, settings: Settings, lane: Lane) -> RoundingRule:
    fmt = settings.format
    integral = operation == "round_to_integral"
    emin = fmt.precision - 1 if integral else fmt.emin
    values = _grid(fmt, emin, settings.rounding, lane) | _edges(settings, lane, integral)
    everything = lane.sign | (lane.sign - 1)
    flush_operands = settings.subnormals == "flush_both" and operation != "convert"
    return RoundingRule(
        flush=0 if settings.subnormals == "keep" else everything,
        # The operand of a conversion is of another format and need not be subnormal there.
        daz=lane.bits(fmt.smallest_normal) if flush_operands else 0,
        largest=lane.bits(fmt.max),
        random_bits=settings.random_bits,
        # Whole numbers are not subnormals, so they look at no more digits than others.
        random_most=settings.random_bits if integral else settings.random_most,
        **values,
    )


@lru_cache(maxsize=4096)
def plan(operation: str, settings: Settings, width: int) -> KernelPlan:
    """Constants and compile-time choices of an operation under these settings.

    Raises    TypeError for what is computed by single operations alone.
    """
    if settings.subnormals == ZERO_OR_NORMAL:
        raise TypeError(
            "subnormals='zero_or_normal' is modelled for single operations, sequential sums and "
            "products without a unit; for this one choose keep, flush_results or flush_both"
        )
    rule = _rule(operation, settings, LANES[width])
    rounding = settings.rounding
    return KernelPlan(
        constants=np.array(rule, np.uint32 if width == 32 else np.uint64),
        mode=mode_number(rounding),
        residual=RESIDUALS.index(rounding.residual),
        flush=settings.subnormals != "keep",
        one_zero=not settings.format.has_negative_zero,
        stochastic=rounding.stochastic,
        whole_words=settings.random_most > 16,
        in_quanta=width == 32 and _in_quanta(settings, rule),
    )


def _in_quanta(settings: Settings, rule: RoundingRule) -> bool:
    """Whether digits of subnormals fit 31 bits with the random ones, and none is left unseen."""
    proportional = settings.rounding.proportional and settings.rounding.residual == "truncate"
    has_whole_digits = (
        rule.random_bits in (rule.random_most, rule.drop) or rule.random_bits > rule.drop
    )
    return proportional and has_whole_digits and settings.format.precision + rule.random_most <= 31
