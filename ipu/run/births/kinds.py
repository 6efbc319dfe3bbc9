"""Kinds of births, by the names that a report has."""

from __future__ import annotations

__all__ = [
    "ABSORBED", "CONSTANT", "DATA_BEYOND", "DATA_DIGITS", "DATA_ZERO", "DIFFERENCE", "DIVISION",
    "INFINITY", "INTEGERS", "NAN", "OF_OPERANDS", "ONE", "SATURATED", "ZERO",
]

NAN, INFINITY, SATURATED, ZERO = "NaN", "infinity", "saturation", "flush to zero"
DIVISION, ABSORBED, CONSTANT, INTEGERS = "division by zero", "absorption", "constant", "integers"
#: What numbers from outside lose on their way in.
DATA_BEYOND, DATA_ZERO, DATA_DIGITS = "data beyond", "data to zero", "data without digits"
#: A zero that is exact: told of a division by it alone, and no birth of its own.
DIFFERENCE = "difference"
#: Of a zero: it is flushed where an operation casts its operands to a narrower format.
OF_OPERANDS = "of operands"
#: A constant that is 1 and was none in the program: told of a division by what it leads to alone.
ONE = "one"
