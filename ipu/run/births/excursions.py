"""What a result has of numbers outside of their range: born in it, carried on, or ended by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu.run.births.birth import Birth
from ipu.run.births.elements import NOWHERE, TESTS, fits
from ipu.run.births.kinds import ABSORBED, DIFFERENCE, DIVISION, INFINITY, NAN, ONE, SATURATED, ZERO
from ipu.run.births.result import OperationResult
from ipu.run.births.verbs import JOINT, OF_POSITIVE, ONE_SIDED, base_of, is_killer
from ipu.run.births.zeros import zero_of, zeros_before

__all__ = ["origins_of"]


def origins_of(result: OperationResult) -> dict[str, Birth]:
    """What its elements come from: births here, or those of operands."""
    origins: dict[str, Birth] = {}
    division, is_usual = _division(result), result.is_usual()
    kinds = set[str]().union(*result.inherited)
    if not is_usual or not kinds.isdisjoint(TESTS):
        _carried_on(result, origins, division, is_usual=is_usual)
    _hidden_overflow(result, origins)
    if ABSORBED in kinds:
        _lost_terms(result, origins)
    zeros = result.n_zeros()
    zero = zero_of(
        result.book, result.operation, result.where, result.array, zeros, result.flags,
        zeros_before(result) if zeros else ()
    )
    if zero is not None:
        origins[ZERO] = zero
    difference = result.before(DIFFERENCE)
    if difference is not None and zeros:
        origins[DIFFERENCE] = difference
    return origins


def _carried_on(
    result: OperationResult, origins: dict[str, Birth], division: Birth | None, *, is_usual: bool
) -> None:
    """NaN, infinities and saturated numbers, born here or in operands."""
    for kind, is_of in TESTS.items():
        before = result.before(kind)
        n, mask = 0, NOWHERE
        if not is_usual:
            mask = is_of(result.values, result.fmt)
            n = int(np.count_nonzero(mask))
        if not n:
            if before is not None:
                _read(result, kind, before)
            continue
        born = _births_among(result, mask, is_of)
        result.book.carried[kind] += n - born
        if born and _is_raised(result, kind):
            detail = _detail(result, kind)
            causes = () if detail else (division,) if division else _causes(result, kind)
            origins[kind] = result.book.born(
                kind, result.where, result.operation, result.fmt, born, result.values.size, causes,
                detail,
            )
        elif before is not None:
            origins[kind] = before
            before.is_trained_with |= result.where[1] in ("backward", "optimizer")


def _lost_terms(result: OperationResult, origins: dict[str, Birth]) -> None:
    """Terms that a mask absorbed die with it; else the result has them from operands."""
    for x, before in zip(result.operands, result.inherited, strict=True):
        birth = before.get(ABSORBED)
        if birth is None or not fits(np.shape(x.carrier), result.values.shape):
            continue
        if is_killer(result.operation) and _is_masked(result, x.carrier):
            birth.deaths[result.operation] += 1
        else:
            origins[ABSORBED] = birth


def _is_masked(result: OperationResult, x: NDArray[Any]) -> bool:
    """Whether the largest numbers of an operand are negative, and zeros in the result."""
    sizes = np.abs(x)
    large = sizes >= 0.5 * np.max(sizes, initial=0)
    return not result.values[large & (x < 0)].any() and not (large & (x > 0)).any()


def _division(result: OperationResult) -> Birth | None:
    n = result.flags.get("DIVBYZERO", 0)
    if not n:
        return None
    zero, difference = result.before(ZERO), result.before(DIFFERENCE)
    causes, detail = (_limits(result) if zero is None else [zero]), ""
    if difference is not None and zero is None:
        line = difference.line if difference.line != result.book.line() else ""
        detail = (f"what the {base_of(difference.operation)} of equal numbers"
                  f"{f', {line},' if line else ''} gives")
        causes = list(difference.causes)
    return result.book.born(
        DIVISION, result.where, result.operation, result.fmt, n, result.values.size,
        tuple(result.book.told(x) if x.detail == ONE else x for x in causes), detail,
    )


def _limits(result: OperationResult) -> list[Birth]:
    """The constant of a function that has no value at 1, as log1p(-p), and reads no zero."""
    is_only = len(result.operands) == 1 and np.asarray(result.operands[0].carrier).all()
    return result.all_before(ONE) if is_only else []


def _births_among(
    result: OperationResult, mask: NDArray[np.bool_], is_of: Callable[..., Any]
) -> int:
    """Those of these elements that no operand has; saturated ones may come of infinities."""
    for x in result.operands:
        carrier = np.asarray(x.carrier)
        bad = ~np.isfinite(carrier) | is_of(carrier, x.format)
        if not bad.any():
            continue
        if _is_joint(result) or not fits(carrier.shape, mask.shape):
            return 0
        same = np.isnan(carrier) | is_of(carrier, x.format)
        mask = mask & ~np.broadcast_to(same, mask.shape)
    return int(np.count_nonzero(mask))


def _is_joint(result: OperationResult) -> bool:
    return any(word in base_of(result.operation) for word in JOINT)


def _is_raised(result: OperationResult, kind: str) -> bool:
    names = ("OVERFLOW", "DIVBYZERO", "INVALID") if kind == NAN else ("OVERFLOW", "DIVBYZERO")
    return any(result.flags.get(name) for name in names)


def _causes(result: OperationResult, kind: str) -> tuple[Birth, ...]:
    kinds = (INFINITY, SATURATED, ZERO) if kind == NAN else (SATURATED,)
    rows = (result.before(k) for k in kinds if k != kind)
    return tuple(birth for birth in rows if birth is not None)


def _detail(result: OperationResult, kind: str) -> str:
    """Of a NaN: what its operands were."""
    if kind != NAN or not result.operands:
        return ""
    base = base_of(result.operation)
    is_zero = result.flags.get("DIVBYZERO")
    if is_zero:
        return ""
    if any(word in base for word in OF_POSITIVE):
        return "of a negative number"
    if any(word in result.book.invalid for word in OF_POSITIVE):
        return f"in the {result.book.invalid} of a negative number, as a difference of " \
               "nearly equal ones may be"
    return ""


def _read(result: OperationResult, kind: str, birth: Birth) -> None:
    """Operands hold it and the result does not."""
    if kind == NAN:
        birth.deaths[result.operation] += 1
        return
    is_one_sided = any(word in base_of(result.operation) for word in ONE_SIDED)
    if is_killer(result.operation) and (not is_one_sided or _is_negative(result)):
        birth.deaths[result.operation] += 1
    else:
        birth.spread += 1


def _is_negative(result: OperationResult) -> bool:
    largest = float(result.fmt.max)
    return not any(bool((np.asarray(x.carrier) >= largest).any()) for x in result.operands)


def _hidden_overflow(result: OperationResult, origins: Mapping[str, Birth]) -> None:
    """An overflow inside of the operation that its result does not show."""
    n = result.flags.get("OVERFLOW", 0)
    if n and not (origins or result.flags.get("DIVBYZERO") or _holds_excursions(result)):
        birth = result.book.born(
            SATURATED, result.where, result.operation, result.fmt, n, result.values.size, (),
            "inside",
        )
        birth.spread += 1


def _holds_excursions(result: OperationResult) -> bool:
    return any(
        bool(is_of(np.asarray(x.carrier), x.format).any())
        for x in result.operands for is_of in TESTS.values()
    )
