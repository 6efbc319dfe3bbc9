"""Operations without a rounding of their own, against the oracle: remainder, comparisons, extremes,
sign operations, integers.

Small formats exhaustively from the full tier on, which has every policy in one format and every
format once; the deep tier has all pairs of them.
"""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.context import Context
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.compare import compare, extreme, with_sign
from fpsim.elementwise.remainder import remainder
from fpsim.judge import oracle
from fpsim.records.flags import Flags
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    E2M1FN,
    E4M3FN,
    E5M2,
    F143,
    TF32,
    Format,
)
from fpsim.records.rounding import RNE, RTN, Rounding
from fpsim.records.settings import Settings
from tests.fpsim.elementwise.test_apply import (
    FEW,
    NUMBER,
    ROUNDINGS,
    SEED,
    Codes,
    as_oracle,
    sample,
    settings_of,
)
from tests.tiers import pick

FORMATS = [E2M1FN, E4M3FN, E5M2, F143, BINARY16, BFLOAT16, TF32, BINARY32, Format.custom(9, 26)]
POLICIES: list[dict[str, object]] = [
    {}, {"nan": "propagate_first"}, {"nan": "x86"}, {"quiet_nan_raises": True},
    {"subnormals": "flush_both"}, {"subnormals": "flush_results"},
]
#: Every policy in one format, and every format once; the deep tier has all pairs.
EVERY = [(fmt, policy) for policy in POLICIES for fmt in FORMATS]
ONCE = [case for case in EVERY if case[0] == BINARY16 or not case[1]]
by_format = pytest.mark.parametrize("fmt", FORMATS, ids=str)
by_policy = pytest.mark.parametrize(("fmt", "policy"), pick(ONCE, ONCE, EVERY), ids=str)


def operands(fmt: Format, arity: int) -> tuple[list[Codes], list[np.ndarray]]:
    rows = sample(fmt, arity, pick(200, 1 << 16, 1 << 16), seed=1)
    columns = zip(*rows, strict=True)
    return rows, [from_codes(np.array(c, fmt.code_dtype), fmt) for c in columns]


def agree(
    operation: str, rows: list[Codes], codes: np.ndarray, flags: np.ndarray, s: Settings
) -> None:
    reference = as_oracle(s)
    for row, code, raised in zip(rows, codes.tolist(), flags.tolist(), strict=True):
        expected = oracle.operate(operation, row, s.format, reference)
        assert (code, Flags(raised)) == expected, (
            f"{operation}{tuple(map(hex, row))} in {s.format} {reference}: "
            f"got {code:#x} {raised}, expected {expected[0]:#x} {int(expected[1])}"
        )


@by_policy
@pytest.mark.parametrize("operation", ["ieee_remainder", "fmod"])
def test_remainders(fmt: Format, policy: dict[str, object], operation: str) -> None:
    for rounding in (RNE, RTN):
        s = settings_of(fmt, rounding, policy)
        assert s is not None
        rows, (x, y) = operands(fmt, 2)
        marks = np.zeros(x.shape, np.uint8)
        nearest = operation == "ieee_remainder"
        values, marks[...] = remainder(x, y, s, nearest=nearest)
        flags = int(np.bitwise_or.reduce(marks))
        agree(operation, rows, to_codes(values, fmt), marks, s)
        assert flags == np.bitwise_or.reduce(marks)


@by_policy
@pytest.mark.parametrize("signalling", [False, True])
def test_comparisons(fmt: Format, policy: dict[str, object], signalling: bool) -> None:
    s = settings_of(fmt, RNE, policy)
    assert s is not None
    rows, (x, y) = operands(fmt, 2)
    for name in ("equal", "less", "less_equal"):
        truth, flags = compare(name, x, y, s, signalling)
        operation = f"{name}_signalling" if signalling else name
        agree(operation, rows, truth.astype(np.uint8), flags, s)


@by_policy
@pytest.mark.parametrize("operation", ["maximum", "minimum", "fmax", "fmin"])
def test_extremes(fmt: Format, policy: dict[str, object], operation: str) -> None:
    s = settings_of(fmt, RNE, policy)
    assert s is not None
    rows, (x, y) = operands(fmt, 2)
    values, flags = extreme(operation, x, y, s)
    agree(operation, rows, to_codes(values, fmt), flags, s)


@by_format
@pytest.mark.parametrize("operation", ["negative", "absolute"])
def test_sign_operations(fmt: Format, operation: str) -> None:
    rows, (x,) = operands(fmt, 1)
    values = with_sign(operation, x, Settings(fmt))
    agree(operation, rows, to_codes(values, fmt), np.zeros(x.shape, np.uint8), Settings(fmt))


KINDS = {"i32": np.int32, "i64": np.int64, "ui32": np.uint32, "ui64": np.uint64}


#: Formats whose values have fewer digits before the point than behind it, or a scale of their own.
SHORT = [Format.custom(2, 26), Format.custom(5, 20), Format.custom(4, 9, bias=300)]


@pytest.mark.parametrize("fmt", [*FORMATS, *SHORT], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_conversions_to_integers(fmt: Format, kind: str) -> None:
    rows, (x,) = operands(fmt, 1)
    for rounding in modes(fmt, kind):
        if not allowed(fmt, rounding):
            continue
        context = Context(fmt, rounding=rounding, seed=SEED)
        context.operation = NUMBER
        result = context.to_integers(context.wrap(x), KINDS[kind])
        union = Flags.NONE
        for i, (row, n) in enumerate(zip(rows, result.tolist(), strict=True)):
            expected, flags = oracle.to_integer(row[0], fmt, kind, drawn(context.core.settings, i))
            assert n == expected, f"{row[0]:#x} of {fmt} to {kind} by {rounding}"
            union |= flags
        assert context.flags == union


def modes(fmt: Format, kind: str) -> list[Rounding]:
    """Of binary16 as i32 more than of the others: one mode of each kind, from full on every one."""
    if fmt == BINARY16 and kind == "i32":
        return pick(FEW, ROUNDINGS, ROUNDINGS)
    return pick([RNE], FEW, ROUNDINGS)


def allowed(fmt: Format, rounding: Rounding) -> bool:
    return (getattr(rounding, "subnormal_bits", None) is None) and (
        getattr(rounding, "bits", None) or 1
    ) <= fmt.sr_bits_max


def drawn(s: Settings, i: int) -> oracle.OracleSettings:
    """The oracle's settings with the random word of element i."""
    word = 0
    if s.rounding.stochastic:
        word = oracle.elementwise_word(SEED, NUMBER, i, s.random_most)
    return oracle.OracleSettings(s.rounding, word=word)


@by_format
def test_flags_of_conversions_to_integers(fmt: Format) -> None:
    rows, (x,) = operands(fmt, 1)
    context = Context(fmt)
    for row, value in zip(rows[:: pick(7, 1, 1)], x[:: pick(7, 1, 1)], strict=True):
        context.clear_flags()
        context.to_integers(context.wrap(value.reshape(())), np.int32)
        assert context.flags == oracle.to_integer(row[0], fmt, "i32")[1]


@by_format
@pytest.mark.parametrize("kind", KINDS)
def test_conversions_from_integers(fmt: Format, kind: str) -> None:
    low, high = np.iinfo(KINDS[kind]).min, np.iinfo(KINDS[kind]).max
    numbers = {0, 1, low, high, high - 1, low + 1, high // 3}
    for power in range(3, 63):
        for step in (-1, 0, 1, 1 << max(power - fmt.precision, 0), 3 << max(power - 25, 0)):
            numbers |= {(1 << power) + step, -(1 << power) - step}
    held = np.array([n for n in sorted(numbers) if low <= n <= high], KINDS[kind])
    for rounding in modes(fmt, kind):
        if not allowed(fmt, rounding):
            continue
        context = Context(fmt, rounding=rounding, seed=SEED)
        context.operation = NUMBER
        codes = to_codes(context.array(held).values, fmt)
        union = Flags.NONE
        for i, (n, code) in enumerate(zip(held.tolist(), codes.tolist(), strict=True)):
            expected, flags = oracle.from_integer(n, fmt, drawn(context.core.settings, i))
            assert code == expected, f"{n} to {fmt} by {rounding}"
            union |= flags
        assert context.flags == union
