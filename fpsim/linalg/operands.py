"""What factorisations and solvers take, checked before anything is computed; updates of rank one.

Source    docs/linear-algebra.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from fpsim.array import Array
from fpsim.array_moves import check_alike
from fpsim.context import Context
from fpsim.core import core_of
from fpsim.products.rank_one import OuterBlock, is_compiled
from fpsim.products.rank_one import subtract_outer as subtract_at_once

__all__ = [
    "MOST", "OuterBlock", "checked_choice", "context_of", "matrix", "right_side", "square",
    "subtract_outer",
]

#: Rows and columns of a matrix: beyond it a factorisation takes hours.
MOST = 1 << 13


def matrix(a: Any, name: str = "a") -> Array:
    """An Array with two axes that are not too long."""
    core_of(a, name=name)
    array: Array = a
    if array.ndim != 2:
        raise ValueError(f"{name} has shape {array.shape}; give a matrix, which has two axes")
    if max(array.shape) > MOST:
        raise ValueError(
            f"{name} has shape {array.shape}; matrices here have at most {MOST} rows and columns"
        )
    return array


def square(a: Any, name: str = "a") -> Array:
    """A matrix with as many rows as columns."""
    array = matrix(a, name)
    if array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} has shape {array.shape}; give a square matrix")
    return array


def right_side(b: Any, n: int, name: str = "b") -> Array:
    """A vector of n elements, or a matrix of n rows."""
    core_of(b, name=name)
    array: Array = b
    if array.ndim not in (1, 2) or array.shape[0] != n:
        raise ValueError(
            f"{name} has shape {array.shape}; give a vector of {n} elements or a matrix of {n} rows"
        )
    return array


def checked_choice(name: str, value: Any, allowed: Sequence[Any], otherwise: str = "") -> Any:
    """A choice by its name or number, refused if it is not offered."""
    kinds = (bool,) if isinstance(allowed[0], bool) else (str, int, float)
    is_flag = isinstance(value, bool) and kinds != (bool,)
    if is_flag or not isinstance(value, kinds) or value not in allowed:
        offered = ", ".join(map(repr, allowed))
        raise ValueError(f"{name}={value!r} is not offered; use one of {offered}{otherwise}")
    return value


def context_of(context: Context | None, *arrays: Array) -> Context:
    """The context that computes, once it is clear that all arrays are of its format.

    Without a named one, arrays of other settings than the first one's are refused as by operators.
    """
    core = core_of(arrays[0], context)
    if context is None:
        check_alike(arrays)
    core.carriers(arrays)
    return cast(Context, core.context)


def subtract_outer(
    context: Context, target: Array, block: tuple[int, int, int, int], column: Array, row: Array
) -> None:
    """target[block] -= column row: all products are rounded, then all differences.

    block   first row, last row, first column, last column; the last ones are not of it.

    Compiled where nothing looks at single operations, with the same bits.
    """
    if is_compiled(context.core):
        subtract_at_once(
            context.core, target.carrier, OuterBlock(*block), column.carrier, row.carrier
        )
        return
    first_row, last_row, first_column, last_column = block
    part = target[first_row:last_row, first_column:last_column]
    product = context.multiply(column.reshape(-1, 1), row.reshape(1, -1))
    context.subtract(part, product, out=part)
