"""The one rounding on two grids: that of normal magnitudes, and quanta below the smallest of them.

Every normal magnitude loses the same digits, and every smaller one is counted in the same unit: no
lane needs a shift of its own, which halves the instructions of `round_fixed`. 1.5 * 2**(digits - 1)
quanta, added and taken away, round a small magnitude to nearest even; a comparison tells on which
side of it the result lies. These are additions of floats: they take the processor's usual settings
(see `fpsim.kernels.guard`) and may raise its inexact flag, so kernels that read it keep to
`round_fixed`.

Source    docs/semantics.md §1.
"""

from __future__ import annotations

from fpsim.kernels.lanes.vectors import as_bits, as_float, select, sign_like
from fpsim.kernels.rounding.modes import (
    ABOVE_HALF,
    ALWAYS,
    FROM_HALF,
    NEVER,
    is_signed,
    steps_of,
)

__all__ = ["round_normal", "round_on_grids"]

_TO_NEAREST_EVEN, _TO_ODD = (ABOVE_HALF, FROM_HALF), (ALWAYS, NEVER)


def _addend(steps, a, rule):
    """What takes the tails of these steps over the last digit of a normal magnitude."""
    one = (a ^ a) + 1
    below = (one << rule.drop) - one
    half = below >> 1
    by_step = {NEVER: a ^ a, ABOVE_HALF: half, FROM_HALF: half + 1, ALWAYS: below}
    even, odd = (by_step[step] for step in steps)
    if steps[0] == steps[1]:
        return even
    if steps == _TO_NEAREST_EVEN:
        return half + ((a >> rule.drop) & 1)
    return select((a & (one << rule.drop)) != 0, odd, even)


def round_normal(mode, a, negative, rule):
    """Round zeros and normal magnitudes by a deterministic mode; the grid goes on above the largest
    value.
    """
    addend = _addend(steps_of(mode, False), a, rule)
    if is_signed(mode):
        addend = select(negative, _addend(steps_of(mode, True), a, rule), addend)
    zero = a ^ a
    return (a + addend) & (zero - (zero + 1 << rule.drop))


def _goes_up(steps, tail, quantum, is_odd):
    """Where a tail of these steps takes a whole number of quanta up; None: nowhere."""
    if steps[0] != steps[1]:
        even, odd = (_goes_up((step, step), tail, quantum, is_odd) for step in steps)
        if even is None or odd is None:
            return odd & is_odd if even is None else even & ~is_odd
        return (odd & is_odd) | (even & ~is_odd)
    half = quantum * 0.5
    if steps[0] == NEVER:
        return None
    if steps[0] == ALWAYS:
        return tail != 0.0
    return tail > half if steps[0] == ABOVE_HALF else tail >= half


def _goes_up_by_sign(mode, tail, quantum, is_odd, negative):
    positive = _goes_up(steps_of(mode, False), tail, quantum, is_odd)
    if not is_signed(mode):
        return positive
    other = _goes_up(steps_of(mode, True), tail, quantum, is_odd)
    if positive is None or other is None:
        return other & negative if positive is None else positive & ~negative
    return (other & negative) | (positive & ~negative)


def _in_quanta(mode, a, negative, rule, digits):
    """Magnitudes below the smallest normal one, as floats; others mean nothing."""
    x, quantum = as_float(a), as_float(rule.quantum_sr)
    magic = as_float((rule.emin + rule.drop << digits) | (rule.hidden >> 1))
    moved = x + magic
    nearest = moved - magic
    is_odd = (as_bits(moved) & 1) != 0
    steps = None if is_signed(mode) else steps_of(mode, False)
    if steps == _TO_NEAREST_EVEN:
        return nearest
    if steps == _TO_ODD:
        tail = x - nearest
        step = as_float(rule.quantum_sr | (as_bits(tail) & sign_like(a)))
        return select((tail != 0.0) & ~is_odd, nearest + step, nearest)
    above = nearest > x
    floor = select(above, nearest - quantum, nearest)
    up = _goes_up_by_sign(mode, x - floor, quantum, is_odd ^ above, negative)
    return floor if up is None else select(up, floor + quantum, floor)


def round_on_grids(mode, a, negative, rule, width):
    """Round finite magnitudes by a deterministic mode; the grid goes on above the largest value."""
    digits = 23 if width == 32 else 52
    small = as_bits(_in_quanta(mode, a, negative, rule, digits))
    return select(a < rule.emin << digits, small, round_normal(mode, a, negative, rule))
