"""Arithmetic against the oracle, values and flags: exhaustive from the full tier on, else a stride.

All pairs x modes x operations of the formats with at most 4 significant bits (fma: all triples of
codes of at most 4 bits, samples otherwise), the policies one by one, conversions between all
formats, and the corners of the wider formats. The oracle takes 50 microseconds a result, and each
mode of an operation is a kernel to compile: the full tier has the cases of the quick one with all
operands, three modes of policies and FEW of conversions; every mode of every operation is deep.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge import oracle
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    CATALOGUE,
    E2M1FN,
    E3M2FN,
    E4M3FN,
    E5M2,
    F143,
    TF32,
    Format,
)
from fpsim.records.rounding import MODES, RNE, RTN, RTO, SR, Rounding
from fpsim.records.settings import Settings
from fpsim.state.draws import Draw
from fpsim.state.threads import get_threads, set_threads
from tests.tiers import pick, reaches

SMALL = [f for f in CATALOGUE.values() if isinstance(f, Format) and f.precision <= 4]
CUSTOM = [
    Format.custom(6, 10),
    Format.custom(8, 6, bias=121, name="e8m5 bias 121"),
    Format.custom(8, 16),
    Format.custom(9, 26, name="e9m25"),
    Format.custom(5, 3, specials="fn"),
    Format.custom(3, 4, specials="fnuz"),
]
WIDE = [BINARY16, BFLOAT16, TF32, BINARY32, *CUSTOM]
STOCHASTIC = [SR(3), SR(3, "half"), SR(3, "even"), SR(5, subnormal_bits=7), SR()]
ROUNDINGS = [*MODES.values(), *STOCHASTIC]
#: One mode of each kind, for additions of the wide formats. Operation, mode, subnormals, -0 and
#: lane width do not know of each other, and every combination is a kernel: below deep there is each
#: operation to nearest and stochastically, each mode, each policy, each width, but no products of
#: these lists.
FEW = [RNE, RTN, RTO, SR(5, subnormal_bits=7), SR()]
#: The modes that every operation has in the quick tier.
ENDS = [RNE, SR()]
POLICIES = [
    {"overflow": "saturate"}, {"overflow": "nan"}, {"subnormals": "flush_results"},
    {"subnormals": "flush_both"}, {"tininess": "before"}, {"nan": "propagate_first"},
    {"nan": "x86"}, {"quiet_nan_raises": True}, {"divide_by_zero": "nan"},
    {"infinite_input": "saturate"}, {"infinite_input": "nan"},
    {"subnormals": "flush_results", "tininess": "before", "overflow": "saturate"},
    {"subnormals": "flush_both", "overflow": "saturate"},
]
BINARY = ["add", "subtract", "multiply", "divide"]
OPERATIONS = [*BINARY, "sqrt", "fma", "round_to_integral"]
SEED, NUMBER = 0x0123_4567_89AB_CDEF, 5
BITS = Draw(np.uint64(SEED), np.uint64(NUMBER), None)

Codes = tuple[int, ...]


def settings_of(fmt: Format, rounding: Rounding, policy: dict[str, object]) -> Settings | None:
    """The settings, None where the format cannot hold what the policy asks."""
    asked = {v for k, v in policy.items() if k in ("overflow", "infinite_input", "divide_by_zero")}
    if "nan" in asked and not fmt.has_nan:
        return None
    return Settings(fmt, rounding, **policy)  # type: ignore[arg-type]


def as_oracle(s: Settings) -> oracle.OracleSettings:
    return oracle.OracleSettings(
        s.rounding, s.overflow, s.subnormals, s.tininess, s.nan, s.infinite_input,
        s.divide_by_zero, s.quiet_nan_raises,
    )


def check(operation: str, rows: list[Codes], s: Settings, source: Format | None = None) -> None:
    """Compare code and flags of every row; random bits are Philox's, drawn by the oracle itself."""
    fmt = s.format
    held = source or fmt
    columns = [from_codes(np.array(c, held.code_dtype), held) for c in zip(*rows, strict=True)]
    marks = np.zeros(len(rows), np.uint8)
    kernel = "copy" if operation == "convert" and held == fmt else operation
    values, _ = apply(kernel, columns, s, element_flags=marks, bits=BITS)
    result = zip(to_codes(values, fmt).tolist(), marks.tolist(), strict=True)
    reference, digits = as_oracle(s), s.random_most
    for i, (row, got) in enumerate(zip(rows, result, strict=True)):
        if s.rounding.stochastic:
            word = oracle.elementwise_word(SEED, NUMBER, i, digits)
            reference = replace(reference, word=word)
        expected = judge(operation, row, s, reference, source)
        assert got == expected, (
            f"{operation}{tuple(map(hex, row))} in {fmt} {s.rounding} {reference}: "
            f"got {got[0]:#x} {got[1]}, expected {expected[0]:#x} {expected[1]}"
        )
    if not checks_sticky_flags(operation, s):
        return
    again, flags = apply(kernel, columns, s, bits=BITS)
    union = int(np.bitwise_or.reduce(marks, initial=0))
    assert flags == union, f"sticky flags {flags} of {operation}, of the elements {union}"
    assert np.array_equal(to_codes(again, fmt), to_codes(values, fmt))


def checks_sticky_flags(operation: str, s: Settings) -> bool:
    """Whether the kernel without flags of each element runs too; the quick tier has each once."""
    if reaches("full"):
        return True
    if not s.format.has_negative_zero or s.subnormals != "keep":
        return False
    return s.rounding in ENDS if operation == "add" else s.rounding == RNE and s.format.bits <= 8


def judge(
    operation: str, row: Codes, s: Settings, reference: oracle.OracleSettings, source: Format | None
) -> tuple[int, int]:
    if s.rounding.stochastic:
        return _judge(operation, row, s, reference, source)
    return _judge_once(operation, row, s, reference, source)


def _judge(
    operation: str, row: Codes, s: Settings, reference: oracle.OracleSettings, source: Format | None
) -> tuple[int, int]:
    if operation == "convert":
        code, flags = oracle.convert(row[0], source or s.format, s.format, reference)
    else:
        code, flags = oracle.operate(operation, row, s.format, reference)
    return code, int(flags)


_judge_once = lru_cache(maxsize=1 << 16)(_judge)


def sample(fmt: Format, arity: int, n: int, seed: int = 0) -> list[Codes]:
    """All operand tuples if they are at most n, else n of them: corners and random codes."""
    if fmt.n_codes**arity <= n:
        return list(product(range(fmt.n_codes), repeat=arity))
    rng = np.random.default_rng((seed, arity, fmt.bits))
    corner_codes = np.array(corners(fmt), np.uint64)
    columns = []
    for _ in range(arity):
        anywhere = rng.integers(0, fmt.n_codes - 1, n, np.uint64, endpoint=True)
        corner = rng.choice(corner_codes, n)
        columns.append(np.where(rng.random(n) < 0.5, corner, anywhere).tolist())
    # Neighbours of the first operand: cancellation, quotients near one.
    steps, signs = rng.integers(-3, 4, n).tolist(), rng.integers(0, 2, n).tolist()
    for i in np.flatnonzero(rng.random(n) < 0.2):
        columns[-1][i] = (columns[0][i] + steps[i]) % fmt.n_codes ^ signs[i] << (fmt.bits - 1)
    return list(zip(*columns, strict=True))


def corners(fmt: Format) -> list[int]:
    """Zeros, ends, subnormals, one, specials: with their neighbours, of both signs."""
    hidden, half = 1 << (fmt.precision - 1), 1 << (fmt.bits - 1)
    centres = [0, 2, hidden // 2, hidden, fmt.bias * hidden, (fmt.bias - 1) * hidden, half - 2]
    centres += [half - hidden, half - hidden + hidden // 2, (fmt.bias + fmt.precision) * hidden]
    around = {(c + d) % half for c in centres for d in (-2, -1, 0, 1, 2)}
    return sorted(around | {half + c for c in around})


def cases(formats: list[Format], roundings: list[Rounding]) -> list[object]:
    results: list[object] = []
    for fmt in formats:
        for rounding in roundings:
            if isinstance(rounding, SR) and (rounding.bits or 1) > fmt.sr_bits_max:
                continue
            results.append(pytest.param(fmt, rounding, id=f"{fmt}-{rounding}"))
    return results


def pairs(
    operations: list[str], formats: list[Format], additions: list[Rounding], others: list[Rounding]
) -> list[object]:
    """Operations with modes and formats; below the deep tier each mode with additions alone."""
    results: list[object] = []
    for operation in operations:
        for fmt in formats:
            modes = additions if operation == "add" else others
            if fmt.carrier == np.float64:  # lanes of their own; modes do not know of them
                modes = [rounding for rounding in modes if rounding in ENDS]
            if not fmt.has_negative_zero:  # kernels of their own
                modes = [RNE, RTN, SR()] if operation == "add" else []
            results += [
                pytest.param(operation, *case.values, id=f"{operation}-{case.id}")
                for case in cases([fmt], ROUNDINGS if reaches("deep") else modes)
            ]
    return results


@pytest.mark.parametrize(("operation", "fmt", "rounding"), pairs(BINARY, SMALL, ROUNDINGS, ENDS))
def test_pairs_of_small_formats(operation: str, fmt: Format, rounding: Rounding) -> None:
    rows = sample(fmt, 2, pick(90, 1 << 16, 1 << 16))
    check(operation, rows, Settings(fmt, rounding))


@pytest.mark.parametrize(
    ("operation", "fmt", "rounding"), pairs(["sqrt", "round_to_integral"], SMALL, ROUNDINGS, ENDS)
)
def test_roots_and_integrals_of_small_formats(
    operation: str, fmt: Format, rounding: Rounding
) -> None:
    check(operation, sample(fmt, 1, 1 << 8), Settings(fmt, rounding))


@pytest.mark.parametrize(("operation", "fmt", "rounding"), pairs(["fma"], SMALL, ROUNDINGS, ENDS))
def test_fma_of_small_formats(operation: str, fmt: Format, rounding: Rounding) -> None:
    check(operation, sample(fmt, 3, pick(90, 100_000, 500_000)), Settings(fmt, rounding))


@pytest.mark.parametrize(("operation", "fmt", "rounding"), pairs(OPERATIONS, WIDE, FEW, [RNE]))
def test_corners_of_wide_formats(operation: str, fmt: Format, rounding: Rounding) -> None:
    arity = {"sqrt": 1, "round_to_integral": 1, "fma": 3}.get(operation, 2)
    check(operation, sample(fmt, arity, pick(60, 5_000, 50_000)), Settings(fmt, rounding))


@pytest.mark.parametrize("precision", [8, 12, 13, 16, 22, 24])
def test_sums_just_below_twice_the_largest_power(precision: int) -> None:
    # In binary32, to nearest, those of 13 digits and more are infinite; exactly, they are not.
    fmt = Format.custom(8, precision)
    most = (1 << fmt.bits - 1) - (1 << precision - 1) - 1
    unit = most + 1 - (precision << precision - 1)  # of the largest value's last digit
    sign = 1 << fmt.bits - 1
    for rounding in pick(ENDS, ROUNDINGS, ROUNDINGS):
        if (getattr(rounding, "bits", None) or 1) <= fmt.sr_bits_max:
            rows = [(most, unit + d) for d in range(-3, 2)]
            check("add", rows + [(sign | x, sign | y) for x, y in rows], Settings(fmt, rounding))
            check("subtract", [(x, sign | y) for x, y in rows], Settings(fmt, rounding))


def policy_operations(fmt: Format, rounding: Rounding, subnormals: str) -> list[str]:
    """Operations under each policy: in the quick tier all of them with one format and mode."""
    if reaches("full"):
        return OPERATIONS
    if subnormals != "keep":  # kernels of their own
        return ["add", "fma"] if fmt == E4M3FN and rounding == RNE else ["add"]
    if fmt == E4M3FN and rounding == RNE:
        return OPERATIONS
    return ["add", "multiply"] if rounding == RNE else ["add"]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("fmt", [E4M3FN, E5M2, F143, E2M1FN, BINARY16, BFLOAT16], ids=str)
def test_policies(fmt: Format, policy: dict[str, object]) -> None:
    few = [RNE, SR(3)] if fmt == E4M3FN else [RNE]
    for rounding in pick(few, [RNE, RTN, SR()], ROUNDINGS):
        s = settings_of(fmt, rounding, policy)
        if s is None:
            with pytest.raises(ValueError, match=r"use saturate|has no NaN"):
                Settings(fmt, rounding, **policy)  # type: ignore[arg-type]
            return
        for operation in policy_operations(fmt, rounding, s.subnormals):
            arity = {"sqrt": 1, "round_to_integral": 1, "fma": 3}.get(operation, 2)
            check(operation, sample(fmt, arity, pick(50, 2_500, 40_000)), s)
        # Which operands of a conversion flush_both reads as zero: those of the format itself.
        source = fmt if s.subnormals == "flush_both" else BINARY64
        check("convert", sample(source, 1, pick(60, 2_000, 20_000)), s, source)


@pytest.mark.parametrize("target", [f for f in [*SMALL, *WIDE] if f.bits < 36], ids=str)
def test_conversions_between_formats(target: Format) -> None:
    few = [RNE, SR(3)] if target.has_negative_zero else [RNE]
    for rounding in pick(few, FEW, ROUNDINGS):
        for source in [E3M2FN, E5M2, F143, BINARY16, BINARY32, BINARY64]:
            rows = conversions(source, target, pick(50, 2_000, 20_000))
            check("convert", rows, Settings(target, rounding), source)


def conversions(source: Format, target: Format, n: int) -> list[Codes]:
    """Codes of source at and around the values and midpoints of target, its ends, and anywhere."""
    if source.n_codes <= n:
        return sample(source, 1, n)
    rng = np.random.default_rng(target.bits)
    codes = np.append(rng.integers(0, target.n_codes, n), corners(target)).tolist()
    results = []
    for code in codes:
        d = oracle.decode(code, target)
        if d.kind != "finite":
            continue
        q = oracle.decode(1, target).magnitude
        unit = max(q, d.magnitude / (1 << (target.precision - 1)))
        k = int(rng.integers(0, 4))
        x = d.magnitude + unit * k / 4
        at, _ = oracle.round_exact(-x if d.sign else x, source)
        results.append(((at + int(rng.integers(-1, 2))) % source.n_codes,))
    rng.shuffle(results)
    return results[:n] + sample(source, 1, n // 4)


@pytest.mark.parametrize("shape", [(257,), (7, 40)])
@pytest.mark.parametrize("first", [1, 2, 16, 100])
@pytest.mark.parametrize("rounding", [SR(13, subnormal_bits=16), SR(24)])
def test_a_shard_draws_the_bits_of_its_place_in_the_whole(rounding, first, shape):
    rng = np.random.default_rng(first)
    x, y = (rng.standard_normal(shape).astype(np.float16).astype(np.float32) for _ in range(2))
    settings = Settings(BINARY16, rounding)
    complete, _ = apply("multiply", (x, y), settings, bits=BITS)
    shard, _ = apply(
        "multiply", (x.reshape(-1)[first:], y.reshape(-1)[first:]), settings,
        bits=BITS._replace(first=first),
    )
    strided, _ = apply(
        "multiply",
        (x.reshape(-1)[first::-1][::-1], y.reshape(-1)[: first + 1]),
        settings,
        bits=BITS,
    )
    assert np.array_equal(shard, complete.reshape(-1)[first:])
    assert np.array_equal(strided, complete.reshape(-1)[: first + 1])


#: Blocks of the kernel have 1024 elements.
@pytest.mark.parametrize("period", [1, 3, 16, 1000, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("rounding", [RNE, SR(13, subnormal_bits=16)])
def test_operands_that_repeat_are_read_as_if_written_out(period, rounding):
    rng = np.random.default_rng(period)
    settings, shape = Settings(BINARY16, rounding), (7, -(-1300 // period), period)
    row, rows, whole = (
        rng.standard_normal(size).astype(np.float16).astype(np.float32)
        for size in (shape[2:], shape[1:], shape)
    )
    for operation, operands in (
        ("fma", (whole, row, rows)), ("fma", (row, rows, whole)), ("add", (row, whole)),
    ):
        written_out = [np.array(np.broadcast_to(x, shape)) for x in operands]
        marks = np.zeros((2, *shape), np.uint8)
        results = [
            apply(operation, layout, settings, bits=BITS, element_flags=m)
            for layout, m in zip((operands, written_out), marks, strict=True)
        ]
        assert np.array_equal(results[0][0].view(np.uint32), results[1][0].view(np.uint32))
        assert np.array_equal(*marks)
        assert results[0][1] == results[1][1]


#: Of few elements copies are taken; larger arrays pass through scratch memory, block by block.
@pytest.mark.parametrize("n", [1, 7, 33, 100])
@pytest.mark.parametrize("laid_out", ["as usual", "transposed"])
@pytest.mark.parametrize("rounding", [RNE, SR(13, subnormal_bits=16)])
def test_operands_of_any_layout_are_read_as_if_written_out(rounding, laid_out, n):
    rng = np.random.default_rng(n)
    x, settings = np.float32(rng.standard_normal((n, n)).astype(np.float16)), Settings(BINARY16)
    settings = settings.replace(rounding=rounding)
    frozen = x.copy()
    frozen.flags.writeable = False
    for y in (x.T, x[:, :1], x[:1], x[::-1], frozen, np.broadcast_to(x[0, 0], (n, n))):
        for operands in ((x, y), (y, x)):
            results = []
            for layout in (operands, [np.array(np.broadcast_to(o, (n, n))) for o in operands]):
                out = np.empty((n, n), np.float32)
                out = out.T if laid_out == "transposed" and layout is operands else out
                marks = np.zeros((n, n), np.uint8)
                values, flags = apply(
                    "divide", layout, settings, out=out, bits=BITS, element_flags=marks
                )
                assert values is out
                results.append((values.view(np.uint32).tolist(), marks.tolist(), flags))
            assert results[0] == results[1]


@pytest.mark.parametrize("rounding", [RNE, SR(13, subnormal_bits=16)])
def test_operands_of_large_results_are_read_as_if_written_out(rounding):
    """In boxes of 65 536 elements and what is left, cut along any axis."""
    settings = Settings(BINARY16).replace(rounding=rounding)
    for shape in ((3, 5, 70, 80), (2, 1, 70_000), (70_001, 1, 3)):
        rng = np.random.default_rng(shape[1])
        x = np.float32(rng.standard_normal(shape).astype(np.float16))
        columns = [np.ascontiguousarray(y) for y in (x[..., :1], x[:, :1, ..., :1])]
        for y in (
            *columns, x[..., :1], x[:, :1], x[:1, ..., :1], x[:, ::-1], np.asfortranarray(x),
        ):
            results = []
            for operands in ((x, y), (x, np.array(np.broadcast_to(y, shape)))):
                marks = np.zeros(shape, np.uint8)
                values, flags = apply(
                    "divide", operands, settings, bits=BITS, element_flags=marks
                )
                results.append((values.tobytes(), marks.tobytes(), flags))
            assert results[0] == results[1]


def test_threads_begin_with_whole_periods():
    settings, x = Settings(BINARY16, SR(13)), np.float32(np.arange(900) % 7 - 3)
    y = np.float32(np.random.default_rng(0).standard_normal((700, 900)).astype(np.float16))
    before, results = get_threads(), []
    try:
        for threads in (1, 2, 3):
            set_threads(threads)
            results.append(apply("multiply", (x, y), settings, bits=BITS))
    finally:
        set_threads(before)
    written_out = apply("multiply", (np.array(np.broadcast_to(x, y.shape)), y), settings, bits=BITS)
    for values, flags in results:
        assert np.array_equal(values.view(np.uint32), written_out[0].view(np.uint32))
        assert flags == written_out[1]
