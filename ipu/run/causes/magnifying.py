"""Why an operation magnifies the error of its operands: a clause for its sentence.

Evidence    The condition of a function: the derivative times the operand beside the result.
"""

from __future__ import annotations

import re

from ipu.run.births.verbs import base_of
from ipu.run.causes.clauses import name_of, place_of
from ipu.run.causes.rows import Row

__all__ = ["magnified_as", "where_grown"]

#: Names of operations that add or subtract elements.
_SUMS = re.compile(
    r"add|sub|sum|mean|(^|b)mm$|matmul|conv|dot|linear|einsum|norm|^(var|std)|diff|dist|mse|lerp|"
    r"log_?softmax")
#: Functions that magnify without a sum, and where.
_FUNCTIONS = {
    "exponentials of large numbers": (
        "exp", "exp2", "expm1", "softmax", "sinh", "cosh", "sigmoid", "softplus", "silu"),
    "powers of large exponents": ("pow", "float_power"),
    "logarithms that are nearly zero": ("log", "log2", "log10"),
    "periodic functions of large numbers": (
        "sin", "cos", "tan", "remainder", "fmod", "floormod", "mod"),
    "divisions by small numbers that are wrong by much": (
        "div", "divide", "truediv", "realdiv", "divnonan", "reciprocal", "inv", "rsqrt"),
}
_WHERE = {name: where for where, names in _FUNCTIONS.items() for name in names}


def magnified_as(row: Row) -> str:
    """A comparison that goes on from what an operation did to errors; "" where none is known.

    >>> magnified_as({"operation": "aten._softmax"}), magnified_as({"operation": "aten.erfinv"})
    (', as with exponentials of large numbers', '')
    """
    if _is_sum(row):
        return ", as where nearly equal numbers are subtracted"
    where = _WHERE.get(_verb(row))
    return f", as with {where}" if where else ""


def where_grown(row: Row) -> str:
    """The sum that an operation's operands have their error from; "" where none is known."""
    growth = row.get("grown")
    if not growth or _is_sum(row):
        return ""
    return (f"; the error comes of {name_of(growth)} ({place_of(growth)}), whose operands, "
            f"together {growth['amplification']:.2g} times as large as its results in the mean, "
            "cancel")


def _verb(row: Row) -> str:
    return base_of(str(row["operation"])).lstrip("_")


def _is_sum(row: Row) -> bool:
    return _SUMS.search(_verb(row)) is not None
