"""The definition of rounding as a judge: is this result the neighbour that the mode names?

No arithmetic is shared with the core, and nothing is rounded. The exact result stays a question:
on which side of t does it lie? For + - * and conversions it is a binary64 number v, compared
with t; for x / y compare |x| with t |y|, for a root compare x with t t. All these products are
exact, since t has at most one digit more than the format. A returned value r is right if the exact
result equals it, or lies between r and a neighbour of r while the mode chooses r of the two; the
flags follow from the same comparisons.

Source    IEEE 754-2019 §4.3, §6.1 to §6.3, §7; docs/semantics.md §1 and §3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fpsim.kernels.compiling import compiled

__all__ = ["MODES", "OPERATIONS", "Grid", "judge", "table_of"]

OPERATIONS = ("convert", "add", "subtract", "multiply", "divide", "sqrt")
CONVERT, ADD, SUBTRACT, MULTIPLY, DIVIDE, SQRT = range(len(OPERATIONS))

INEXACT, UNDERFLOW, OVERFLOW, DIVBYZERO, INVALID = 1, 2, 4, 8, 16
SIGN, INFINITY, QUIET = 0x80000000, 0x7F800000, 0x00400000

#: Mode -> does the magnitude go up? side is the sign of w - 1/2, odd says whether m is; 0 < w < 1.
MODES: dict[str, Callable[[bool, int, bool], bool]] = {
    "RNE": lambda negative, side, odd: side > 0 or (side == 0 and odd),
    "RNA": lambda negative, side, odd: side >= 0,
    "RNZ": lambda negative, side, odd: side > 0,
    "RTZ": lambda negative, side, odd: False,
    "RTP": lambda negative, side, odd: not negative,
    "RTN": lambda negative, side, odd: negative,
    "RAZ": lambda negative, side, odd: True,
    "RTO": lambda negative, side, odd: not odd,
}

#: Modes that never leave the range: a result beyond it becomes the largest value (per sign).
INWARD = {"RTZ": (True, True), "RTO": (True, True), "RTP": (False, True), "RTN": (True, False)}


class Grid(NamedTuple):
    """What the judge knows of a format, all as numbers; bits are those of the binary32 carrier."""

    precision: int
    emin: int
    largest: float
    beyond: int  # what an overflow of a positive result becomes
    infinite: int  # what a converted +infinity becomes …
    infinite_flags: int  # … and raises
    nan: int  # a NaN result …
    nan_flags: int  # … and what it raises
    signed_zero: bool
    has_tiny: bool = True  # whole numbers have no subnormals


class _Law(NamedTuple):
    """A grid, a mode and an operation as the compiled judge takes them."""

    operation: int
    downward: bool
    tiny_before: bool
    up: int  # bit 6 negative + 2 (side + 1) + odd: the magnitude goes up
    signed_zero: bool
    largest: float
    unit: float  # distance of the largest value to the next
    largest_odd: bool
    normal: float
    half: float  # distance of the smallest normal to the next smaller number of as many digits
    largest_bits: int
    over_positive: int
    over_negative: int
    infinite: int
    infinite_flags: int
    nan: int
    nan_flags: int


def table_of(mode: str) -> list[bool]:
    """Whether the magnitude goes up, at index 6 negative + 2 (side + 1) + odd.

    >>> sum(table_of("RAZ")), sum(table_of("RTP")), sum(table_of("RTZ"))
    (12, 6, 0)
    """
    up = MODES[mode]
    signs, sides = (False, True), (-1, 0, 1)
    return [up(negative, side, odd) for negative in signs for side in sides for odd in signs]


def _law(operation: str, mode: str, grid: Grid, tiny_before: bool) -> _Law:
    unit = math.ldexp(1.0, math.frexp(grid.largest)[1] - grid.precision)
    largest_bits = int(np.float32(grid.largest).view(np.uint32))
    positive, negative = (
        largest_bits if inside else grid.beyond for inside in INWARD.get(mode, (False, False))
    )
    return _Law(
        operation=OPERATIONS.index(operation),
        downward=mode == "RTN",
        tiny_before=tiny_before,
        up=sum(1 << i for i, goes in enumerate(table_of(mode)) if goes),
        signed_zero=grid.signed_zero,
        largest=grid.largest,
        unit=unit,
        largest_odd=grid.largest / unit % 2 == 1,
        normal=math.ldexp(1.0, grid.emin) if grid.has_tiny else 0.0,
        half=math.ldexp(1.0, grid.emin - grid.precision),
        largest_bits=largest_bits,
        over_positive=positive,
        over_negative=negative | (SIGN if negative <= INFINITY else 0),  # NaN keeps its one sign
        infinite=grid.infinite,
        infinite_flags=grid.infinite_flags,
        nan=grid.nan,
        nan_flags=grid.nan_flags,
    )


def _gaps(grid: Grid) -> NDArray[np.float64]:
    """Distance to the next larger value, by the exponent field of the carrier."""
    exponents = np.maximum(np.arange(256), 1) - 127
    gaps: NDArray[np.float64] = np.ldexp(1.0, np.maximum(exponents, grid.emin) - grid.precision + 1)
    return gaps


def judge(
    operation: str, mode: str, grid: Grid, *, tiny_before: bool = False
) -> Callable[[Any, Any, Any, Any, Any], int]:
    """Compiled judge of one operation and mode: judge(x, y, got, flags, wrong) -> how many.

    Shapes    x, got float32 and flags uint8 of one length; y of length 1 or the same.
    Error     none; `wrong` (bool, the same length) marks the results that break the definition.
    """
    law, gaps = _law(operation, mode, grid, tiny_before), _gaps(grid)

    def check(x: Any, y: Any, got: Any, flags: Any, wrong: Any) -> int:
        bits = (a.view(np.uint32) for a in (x, y, got))
        return int(_judge(x, y, got, flags, wrong, *bits, gaps, law))

    return check


#: Tables stay outside of what is inlined: an array handed on costs an atomic reference count.
_INLINE = {"nogil": True, "error_model": "numpy", "forceinline": True}


@njit(**_INLINE)
def _side(left: Any, t: Any, scale: Any, root: Any) -> Any:
    """Sign of (exact magnitude - t)."""
    right = t * (t if root else scale)
    return int(left > right) - int(left < right)


@njit(**_INLINE)
def _goes_up(negative: Any, side: Any, odd: Any, law: Any) -> Any:
    return (law.up >> (6 * int(negative) + 2 * (side + 1) + int(odd))) & 1 == 1


@njit(**_INLINE)
def _special(a: Any, b: Any, law: Any) -> Any:
    """Bits and flags where NaN, infinity or a zero divisor decides; flags -1 where none does."""
    op = law.operation
    ma, mb, sign = a & ~SIGN, b & ~SIGN, (a ^ b) & SIGN
    if ma > INFINITY or mb > INFINITY:
        signalling = (ma > INFINITY and a & QUIET == 0) or (mb > INFINITY and b & QUIET == 0)
        return law.nan, (INVALID if signalling else 0) | law.nan_flags
    if op == CONVERT:
        if ma != INFINITY:
            return 0, -1
        return law.infinite | (a & SIGN if law.infinite <= INFINITY else 0), law.infinite_flags
    if op == SQRT:
        return (law.nan, INVALID) if a > SIGN else (a, 0 if ma == INFINITY else -1)
    if op == MULTIPLY:
        return _special_product(ma, mb, sign, law)
    if op == DIVIDE:
        return _special_quotient(ma, mb, sign, law)
    other = b if op == ADD else b ^ SIGN
    if ma == INFINITY:
        return (law.nan, INVALID) if mb == INFINITY and a != other else (a, 0)
    return other, 0 if mb == INFINITY else -1


@njit(**_INLINE)
def _special_product(ma: Any, mb: Any, sign: Any, law: Any) -> Any:
    if ma != INFINITY and mb != INFINITY:
        return 0, -1
    return (law.nan, INVALID) if ma == 0 or mb == 0 else (sign | INFINITY, 0)


@njit(**_INLINE)
def _special_quotient(ma: Any, mb: Any, sign: Any, law: Any) -> Any:
    if ma == mb and (ma == INFINITY or ma == 0):
        return law.nan, INVALID
    if ma == INFINITY:
        return sign | INFINITY, 0
    if mb == 0:
        return sign | INFINITY, DIVBYZERO
    return sign, 0 if mb == INFINITY else -1


@njit(**_INLINE)
def _exact(x: Any, y: Any, a: Any, b: Any, law: Any) -> Any:
    """The exact result as sign, left, scale: its magnitude is left / scale, or the root of left."""
    op = law.operation
    negative, differ = a & SIGN != 0, (a ^ b) & SIGN != 0
    if op == CONVERT or op == SQRT:
        return negative, abs(x), 1.0
    if op == MULTIPLY:
        return differ, abs(x * y), 1.0
    if op == DIVIDE:
        return differ, abs(x), abs(y)
    v = x - y if op == SUBTRACT else x + y
    if v == 0.0:
        # Opposite numbers cancel to +0, rounding down to -0; equal zeros keep their sign.
        cancelled = differ != (op == SUBTRACT)
        return (law.downward if cancelled else negative), 0.0, 1.0
    return v < 0.0, abs(v), 1.0


@njit(**_INLINE)
def _beyond(left: Any, scale: Any, root: Any, negative: Any, law: Any) -> Any:
    """Whether a magnitude above the largest value, rounded with unbounded exponent, exceeds it."""
    if _side(left, law.largest + law.unit, scale, root) >= 0:
        return True
    side = _side(left, law.largest + 0.5 * law.unit, scale, root)
    return _goes_up(negative, side, law.largest_odd, law)


@njit(**_INLINE)
def _tiny(left: Any, scale: Any, root: Any, negative: Any, law: Any) -> Any:
    """Whether a nonzero magnitude is tiny: before rounding, or after it with unbounded exponent."""
    if _side(left, law.normal, scale, root) >= 0:
        return False
    if law.tiny_before or _side(left, law.normal - law.half, scale, root) <= 0:
        return True
    # Above the last value of the binade below, whose digits are all ones: odd.
    side = _side(left, law.normal - 0.5 * law.half, scale, root)
    return not _goes_up(negative, side, True, law)


@njit(**_INLINE)
def _is_neighbour(
    left: Any, scale: Any, root: Any, negative: Any, r: Any, gap: Any, below: Any, law: Any
) -> Any:
    """Whether the finite magnitude r is what the mode names, and whether it is inexact.

    gap and below are the distances from r to the next larger and the next smaller value.
    """
    m = np.int64(r / gap)
    if m * gap != r:
        return False, True
    side = _side(left, r, scale, root)
    if side == 0:
        return True, False
    if side > 0:
        if _side(left, r + gap, scale, root) >= 0:
            return False, True
        middle = _side(left, r + 0.5 * gap, scale, root)
        return not _goes_up(negative, middle, m & 1, law), True
    if r == 0.0 or _side(left, r - below, scale, root) <= 0:
        return False, True
    middle = _side(left, r - 0.5 * below, scale, root)
    return _goes_up(negative, middle, np.int64(r / below) & 1 == 0, law), True


@njit(**_INLINE)
def _number(
    negative: Any, left: Any, scale: Any, got: Any, g: Any, raised: Any, gap: Any, below: Any,
    law: Any,
) -> Any:
    """Whether got (its bits g) and the flags raised are those of a number, rounded once."""
    root = law.operation == SQRT
    if _side(left, law.largest, scale, root) > 0:
        if _beyond(left, scale, root, negative, law):
            bits = law.over_negative if negative else law.over_positive
            return g == bits and raised == INEXACT | OVERFLOW
        return g == law.largest_bits | (SIGN if negative else 0) and raised == INEXACT
    if g & ~SIGN >= INFINITY:
        return False
    r = abs(got)
    right, inexact = _is_neighbour(left, scale, root, negative, r, gap, below, law)
    due = 0
    if inexact:
        due = INEXACT | (UNDERFLOW if _tiny(left, scale, root, negative, law) else 0)
    sign = negative and (law.signed_zero or r != 0.0)
    return right and sign == (g >= SIGN) and raised == due


@partial(compiled, guarded=False)
def _judge(
    x: Any, y: Any, got: Any, flags: Any, wrong: Any, a: Any, b: Any, g: Any, gaps: Any, law: Any
) -> Any:
    """Mark the wrong results; a, b, g are the bits of x, y, got."""
    count = 0
    for i in range(x.shape[0]):
        j = 0 if y.shape[0] == 1 else i
        p, q, r, raised = np.int64(a[i]), np.int64(b[j]), np.int64(g[i]), np.int64(flags[i])
        bits, due = _special(p, q, law)
        if due >= 0:
            right = r == bits and raised == due
        else:
            negative, left, scale = _exact(np.float64(x[i]), np.float64(y[j]), p, q, law)
            magnitude = r & ~SIGN
            # Below a power of two the next smaller value may be nearer.
            gap, below = gaps[magnitude >> 23], gaps[(magnitude - 1 if magnitude else 0) >> 23]
            right = _number(negative, left, scale, np.float64(got[i]), r, raised, gap, below, law)
        wrong[i] = not right
        count += not right
    return count
