"""NaN, infinity and division by zero: the lanes whose result is a rule, not a rounding.

Kernels look here only for blocks that hold such an operand, so the cost is that of rare data.

Source    IEEE 754-2019 §6, §7.2, §7.3; docs/semantics.md §3.
"""

from __future__ import annotations

from typing import NamedTuple

from fpsim.kernels.lanes.memory import load_raw
from fpsim.kernels.lanes.vectors import (
    as_bits,
    infinity_like,
    is_nan,
    quiet_like,
    select,
    sign_like,
    sqrt,
)

__all__ = [
    "ADD",
    "CONVERT",
    "DIVIDE",
    "FMA",
    "MULTIPLY",
    "OPERATIONS",
    "SQRT",
    "SUBTRACT",
    "processors_answer",
    "resolve",
    "signalling",
]

OPERATIONS = ("convert", "add", "subtract", "multiply", "divide", "sqrt", "fma")
CONVERT, ADD, SUBTRACT, MULTIPLY, DIVIDE, SQRT, FMA = range(len(OPERATIONS))

_OVERFLOW_INEXACT, _DIVBYZERO, _INVALID = 5, 8, 16


class Special(NamedTuple):
    """Where a rule decides (mask), the bits it gives, the flags it raises."""

    where: int
    bits: int
    flags: int


def processors_answer(op, x, y, z):
    """By the processor's own operations, x * y + z with two: right about which of NaN, infinity or
    number a result is.
    """
    if op == ADD:
        return x + y
    if op == SUBTRACT:
        return x - y
    if op == MULTIPLY:
        return x * y
    if op == DIVIDE:
        return x / y
    if op == SQRT:
        return sqrt(x)
    if op == FMA:
        return x * y + z
    return x


def signalling(array, i, like):
    """Where an operand as stored is a signalling NaN (widening would have made it quiet)."""
    raw = load_raw(array, i, like)
    return ((raw & ~sign_like(raw)) > infinity_like(raw)) & ((raw & quiet_like(raw)) == 0)


def _first_nan(op, x, y, z, product_nan, rule):
    """Bits of the NaN that a NaN result descends from."""
    bits = rule.nan_made
    carry = rule.nan_keep, rule.nan_set
    if op == FMA:
        taken = is_nan(z) & ~(product_nan & (rule.made_first != 0))
        bits = select(taken, (as_bits(z) & carry[0]) | carry[1], bits)
    if op != CONVERT and op != SQRT:
        bits = select(is_nan(y), (as_bits(y) & carry[0]) | carry[1], bits)
    return select(is_nan(x), (as_bits(x) & carry[0]) | carry[1], bits)


def resolve(op, x, y, z, signalling, rule):
    """What the rules say of operands x, y, z; `signalling`: the lanes with a signalling NaN."""
    zero = rule.drop ^ rule.drop
    sign, infinity = sign_like(zero), infinity_like(zero)
    native = processors_answer(op, x, y, z)
    bits = as_bits(native)
    # By its bits: whether a root is a NaN, LLVM asks by x < 0, which raises a flag of its own.
    result_nan = (bits & ~sign) > infinity
    operand_nan = is_nan(x)
    nonfinite = (as_bits(x) & ~sign) >= infinity
    product_nan = operand_nan ^ operand_nan
    if op != CONVERT and op != SQRT:
        operand_nan = operand_nan | is_nan(y)
        nonfinite = nonfinite | ((as_bits(y) & ~sign) >= infinity)
    if op == FMA:
        product_nan = is_nan(x * y) & ~operand_nan
        operand_nan = operand_nan | is_nan(z)
        nonfinite = nonfinite | ((as_bits(z) & ~sign) >= infinity)
    invalid = signalling | product_nan | (result_nan & ~operand_nan)
    flags = select(invalid, zero + _INVALID, zero) | select(result_nan, rule.nan_flags, zero)
    bits = select(result_nan, _first_nan(op, x, y, z, product_nan, rule), bits)
    where = nonfinite | result_nan
    if op == CONVERT:
        infinite = (as_bits(x) & ~sign) == infinity
        negative = as_bits(x) >= sign
        bits = select(infinite, select(negative, rule.infinite_neg, rule.infinite_pos), bits)
        flags = select(infinite, rule.infinite_flags, flags)
    if op == DIVIDE:
        pole = (y == 0.0) & (x != 0.0) & ~nonfinite
        negative = (as_bits(x) ^ as_bits(y)) >= sign
        bits = select(pole, select(negative, rule.zero_divide_neg, rule.zero_divide_pos), bits)
        flags = select(pole, zero + _DIVBYZERO, flags)
        where = where | pole
    return Special(where, bits, flags)
