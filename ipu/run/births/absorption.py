"""Terms of sums that leave them as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu.run.births.birth import Birth
from ipu.run.births.elements import fits
from ipu.run.births.kinds import ABSORBED
from ipu.run.births.result import OperationResult

__all__ = ["absorbed_terms"]

#: Share of elements that are last sums, at least, where a number is added to them again.
_MOST_SUMS = 0.5


def absorbed_terms(result: OperationResult) -> dict[str, Birth]:
    """Terms of a sum that left the other one as it was.

    One number that is added to all elements counts where they are its last sums: one that
    keeps a divisor from zero may vanish beside it, each time beside another one. Where it is large
    itself they vanish beside it, and a sum that is this number is none of the last ones.
    """
    alike = [
        x.carrier for x in result.operands if fits(np.shape(x.carrier), result.values.shape)
    ]
    if len(result.operands) == 1 and alike:
        return _absorbed_by_number(result, alike[0])
    if len(alike) != 2:
        return {}
    x, y = (np.broadcast_to(v, result.values.shape) for v in alike)
    inside = np.isfinite(result.values) & (np.abs(result.values) < float(result.fmt.max))
    terms = inside & (x != 0) & (y != 0)
    if 1 in map(np.size, alike):
        terms = _terms_of_last_sum(result, terms, alike)
    n = int(np.count_nonzero(terms & ((result.values == x) | (result.values == y))))
    if not n:
        return {}
    line = result.book.line()
    birth = result.book.born(
        ABSORBED, result.where, result.operation, result.fmt, n, int(np.count_nonzero(terms)), (),
        "", line)
    birth.lost_terms(n, line, result.where[2], result.inherited)
    if result.where[2] == birth.step:
        size = _size_of_terms(result, terms, x, y)
        birth.lost[line] = max(birth.lost.get(line, 0.0), size)
    again = _lost_again(result, n, x, y, is_one=1 in map(np.size, alike))
    if again:
        birth.was_lost_again(again, line)
    return {ABSORBED: birth}


def _terms_of_last_sum(
    result: OperationResult, terms: NDArray[np.bool_], operands: Sequence[NDArray[Any]]
) -> NDArray[np.bool_]:
    """Those of terms that were added to the last sum of the place, where they are most."""
    place = result.book.place(result.operation, result.where)
    before = result.book.sums.replace(place, result.values)
    if before is not None and before.shape == result.values.shape:
        elements = [x for x in operands if x.size > 1] or operands
        alike: NDArray[np.bool_] = terms & (result.values == before)
        alike &= np.any([x == before for x in elements], axis=0)
        if np.count_nonzero(alike) >= _MOST_SUMS * np.count_nonzero(terms):
            return alike
    result.book.sums.lost_in_a_row(place, 0)  # alike by chance
    return np.zeros_like(terms)


def _lost_again(
    result: OperationResult, n: int, x: NDArray[Any], y: NDArray[Any], *, is_one: bool
) -> int:
    """Of n terms that a sum has lost, those that add up with those that it lost before.

    What is added to an average of an optimiser is lost again in each step, though the average
    decays in between.
    """
    if result.where[1] == "optimizer":
        return n
    place = result.book.place(result.operation, result.where)
    is_again = is_one or result.book.sums.is_sum_of_sums(place, (x, y), result.values)
    return result.book.sums.lost_in_a_row(place, n if is_again else 0)


def _size_of_terms(
    result: OperationResult, terms: NDArray[np.bool_], x: NDArray[Any], y: NDArray[Any]
) -> float:
    """How large the terms that a sum has lost are beside it."""
    lost = np.zeros((), np.float64)
    for term, other in ((x, y), (y, x)):
        lost += np.sum(np.square(term, where=terms & (result.values == other),
                                 out=np.zeros(terms.shape)))
    size = np.sum(np.square(result.values, where=np.isfinite(result.values),
                            out=np.zeros(terms.shape)))
    return float(np.sqrt(lost / size)) if size else 0.0


def _absorbed_by_number(result: OperationResult, terms: NDArray[Any]) -> dict[str, Birth]:
    """Terms below a quarter of a unit of their sum with a number of the program, as 1 - p.

    It is that number then. Most such terms may vanish: it is told of a program that is harmed.
    """
    if result.values.dtype != np.float32:
        return {}
    _, exponents = np.frexp(result.values)
    quarters = np.ldexp(np.float32(0.25), exponents - result.fmt.precision)
    is_term = (terms != 0) & np.isfinite(result.values)
    n = int(np.count_nonzero(is_term & (np.abs(terms) < quarters)))
    if not n:
        return {}
    return {ABSORBED: result.book.born(
        ABSORBED, result.where, result.operation, result.fmt, n, int(np.count_nonzero(is_term)), (),
        "")}
