"""Test vectors for hardware: operands that are hard to round first, results by the oracle.

First come the counterexamples that the proofs (`fpsim.judge.proofs`) gave for faulty kernels. Hard
are ties and their neighbours, the ends of the range, the smallest normal number before and
after rounding, subnormals, signed zeros, infinities and every kind of NaN; then operands at random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, islice, product
from typing import NamedTuple

from fpsim.judge.oracle import OracleSettings, convert, encode, operate
from fpsim.judge.oracle.outputs import code_of
from fpsim.judge.oracle.rounding import Datum, decode
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.records.formats import BINARY32, Format
from fpsim.records.rounding import SR, Rounding
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit

__all__ = ["FORMS", "Row", "Vectors", "of_format", "of_unit", "written"]

#: Operations and their operands.
OPERANDS = {
    "convert": ("x",), "add": ("x", "y"), "subtract": ("x", "y"), "multiply": ("x", "y"),
    "divide": ("x", "y"), "sqrt": ("x",), "fma": ("x", "y", "z"),
}
FORMS = ("hex", "c", "systemverilog")

Row = tuple[int, ...]

#: Operands, in binary32, at which a solver refuted named mutants of the kernels: digits of ties,
#: binades of subnormals, where overflow and tininess begin, carries of random digits, NaN, signs of
#: zero, TwoSum, odd last digits (tests/fpsim/judge/proofs/mutants.py).
COUNTEREXAMPLES: dict[str, tuple[Row, ...]] = {
    "convert": (
        (0xBE7BF000,), (0x3C56FE98,), (0x80000000,), (0xC3E80000,), (0xB7F800B8,), (0xEF8A0180,),
        (0xFFFFFFFF,),
    ),
    "add": (
        (0xB7800000, 0x45800000), (0xB8400000, 0x46200000), (0x00000000, 0x80000000),
        (0x45000000, 0xB8004000),
    ),
    "subtract": ((0x80000000, 0x00000000), (0x45000000, 0x38004000)),
    "multiply": ((0x37C00000, 0xC02AA000),),
    "divide": ((0x00000000, 0x80000000),),
    "sqrt": ((0x00000000,),),
}


class Vectors(NamedTuple):
    """Named columns of so many bits, and their rows."""

    title: str
    columns: tuple[tuple[str, int], ...]
    rows: list[Row]


def _hard_magnitudes(fmt: Format) -> Iterator[Fraction]:
    """Where a rounding into the format changes its mind, and both sides of it."""
    quantum = Fraction(2) ** (fmt.emin - fmt.precision + 1)
    ulp_below_one = Fraction(2) ** (1 - fmt.precision)
    largest, smallest = Fraction(fmt.max), Fraction(2) ** fmt.emin
    last_ulp = Fraction(2) ** (fmt.emax - fmt.precision + 1)
    places = (
        (largest, last_ulp), (smallest, quantum), (quantum, quantum), (Fraction(0), quantum),
        (Fraction(1), ulp_below_one), (Fraction(2), 2 * ulp_below_one), (smallest / 2, quantum),
    )
    for offset in (Fraction(1, 2), Fraction(0), Fraction(1), Fraction(1, 4), Fraction(3, 4),
                   Fraction(3, 2), Fraction(-1, 2), Fraction(-1)):
        for value, unit in places:
            if value + offset * unit >= 0:
                yield value + offset * unit


def _held(value: Fraction, fmt: Format) -> int | None:
    """The code of the number of the format at or below a value; None beyond the largest."""
    if value > Fraction(fmt.max):
        return None
    exponent = max(_floor_log2(value), fmt.emin) if value else fmt.emin
    unit = Fraction(2) ** (exponent - fmt.precision + 1)
    return encode(0, value // unit * unit, fmt)


def _floor_log2(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def _hard_codes(target: Format, source: Format) -> list[int]:
    """Codes of `source` that are hard to round into `target`, special ones included."""
    codes: dict[int, None] = {}
    sign = 1 << (source.bits - 1)
    for value in _hard_magnitudes(target):
        code = _held(value, source)
        for near in () if code is None else (code, code + 1, max(code - 1, 0)):
            codes |= {near: None, near | sign: None}
    if source.specials == "ieee":
        infinity = ((1 << source.exponent_bits) - 1) << (source.precision - 1)
        quiet = infinity | 1 << (source.precision - 2)
        for special in (infinity, quiet, infinity | 1, quiet | 1):
            codes |= {special: None, special | sign: None}
    return [code for code in codes if code < source.n_codes]


def of_format(fmt: Format, operation: str, rounding: Rounding, count: int, seed: int) -> Vectors:
    """Rows of operands, the random number where the mode takes one, the result, and flags.

    Conversions take binary32 numbers.

    >>> from fpsim.records.formats import BINARY16
    >>> from fpsim.records.rounding import RNE
    >>> of_format(BINARY16, "convert", RNE, 1, 0).rows
    [(3195793408, 46048, 1)]
    """
    if operation not in OPERANDS:
        raise ValueError(f"operation={operation!r} is not known; use one of {', '.join(OPERANDS)}")
    bits = Settings(fmt, rounding).random_most
    source = BINARY32 if operation == "convert" else fmt
    names = OPERANDS[operation]
    draw = random.Random(seed)
    hard = _hard_codes(fmt, source)
    operands = chain(
        _counterexamples(operation, source), _operands(hard, len(names), source, draw)
    )
    rows = []
    for row in islice(operands, count):
        number = draw.choice((0, (1 << bits) - 1, draw.randrange(1 << bits))) if bits else 0
        settings = OracleSettings(rounding, word=number << (32 - bits) if bits else 0)
        if operation == "convert":
            code, flags = convert(row[0], source, fmt, settings)
        else:
            code, flags = operate(operation, row, fmt, settings)
        rows.append((*row, *([number] if bits else []), code, int(flags)))
    random_column = [("random", bits)] if bits else []
    columns = [*((name, source.bits) for name in names), *random_column,
               ("result", fmt.bits), ("flags", 5)]
    return Vectors(f"{operation} {fmt.name} {rounding!r}", tuple(columns), rows)


def _counterexamples(operation: str, source: Format) -> Iterator[Row]:
    """Those whose numbers the format has, as its codes."""
    for bits in COUNTEREXAMPLES.get(operation, ()):
        if source == BINARY32:
            yield bits
            continue
        numbers = [decode(code, BINARY32) for code in bits]
        codes = [
            None if datum.kind != "finite" else _code_of_value(datum, source) for datum in numbers
        ]
        if None not in codes:
            yield tuple(code for code in codes if code is not None)


def _code_of_value(datum: Datum, fmt: Format) -> int | None:
    """The code of a finite number that the format has."""
    code = _held(datum.magnitude, fmt)
    signed = code is not None and (fmt.has_negative_zero or datum.magnitude != 0 or not datum.sign)
    if code is None or not signed or decode(code, fmt).magnitude != datum.magnitude:
        return None
    return code | datum.sign << (fmt.bits - 1)


def _operands(
    hard: list[int], n: int, source: Format, draw: random.Random
) -> Iterator[tuple[int, ...]]:
    """Hard operands: each with a few others, all in turn; then any."""
    if n == 1:
        yield from ((code,) for code in hard)
    else:
        few = hard[:: max(1, len(hard) // 16)]
        yield from product(*([few] * (n - 1)), hard)
    while True:
        yield tuple(draw.randrange(source.n_codes) for _ in range(n))


def of_unit(unit: MatrixUnit, rounding: Rounding, count: int, seed: int) -> Vectors:
    """Rows of the left and right operands of one pass, its partial, the result and flags.

    Terms cancel, lie about a window apart, or are hard numbers of the format.
    """
    fmt, terms = unit.inputs[0], unit.channels
    if isinstance(rounding, SR) or rounding.stochastic:
        raise ValueError(
            f"mode={rounding!r} takes random bits at each store; give a deterministic one"
        )
    ask = Ask(unit, fmt, fmt, Settings(unit.partials, rounding))
    draw = random.Random(seed)
    hard = [c for c in _hard_codes(fmt, fmt) if c & (fmt.n_codes // 2 - 1) < fmt.n_codes // 2]
    starts = _hard_codes(unit.partials, unit.partials)
    rows = []
    for i in range(count):
        a = [draw.choice(hard) if draw.random() < 0.5 else _near_one(fmt, draw)
             for _ in range(terms)]
        b = [draw.choice(hard) if draw.random() < 0.2 else _near_one(fmt, draw)
             for _ in range(terms)]
        if terms > 1 and i % 3 == 0:  # the second product takes the first away, or nearly
            a[1], b[1] = a[0] ^ 1 << (fmt.bits - 1), b[0] ^ (i & 1)
        start = draw.choice(starts) if i % 2 else 0
        datum, flags = one_output(ask, a, b, start)
        rows.append((*a, *b, start, code_of(datum, unit.partials), int(flags)))
    columns = [(f"{side}{k}", fmt.bits) for side in "ab" for k in range(terms)]
    ends = [("c", unit.partials.bits), ("result", unit.partials.bits), ("flags", 5)]
    return Vectors(f"{unit.name} {rounding!r}", (*columns, *ends), rows)


def _near_one(fmt: Format, draw: random.Random) -> int:
    """A number of either sign within some binades of one."""
    reach = min(6, -fmt.emin, fmt.emax)
    magnitude = Fraction(2) ** draw.randint(-reach, reach - 1)
    digits = draw.randrange(1 << (fmt.precision - 1), 1 << fmt.precision)
    return encode(draw.randrange(2), magnitude * digits / (1 << (fmt.precision - 1)), fmt)


def written(vectors: Vectors, form: str) -> Iterator[str]:
    """Lines of a file: hexadecimal columns, a C array of structures, or a SystemVerilog package.

    >>> table = Vectors("convert e5m2 RNE", (("x", 32), ("result", 8), ("flags", 5)), [(1, 0, 3)])
    >>> print(*written(table, "hex"), sep="\\n")
    # convert e5m2 RNE: x result flags (inexact 1, underflow 2, overflow 4, divbyzero 8, invalid 16)
    00000001 00 03
    """
    names = " ".join(name for name, _ in vectors.columns)
    note = f"{vectors.title}: {names}"
    if vectors.columns and vectors.columns[-1][0] == "flags":
        note += " (inexact 1, underflow 2, overflow 4, divbyzero 8, invalid 16)"
    if form == "hex":
        yield f"# {note}"
        for row in vectors.rows:
            yield " ".join(_digits(v, bits) for v, (_, bits) in zip(row, vectors.columns,
                                                                    strict=True))
    elif form == "c":
        yield from _as_c(vectors, note)
    elif form == "systemverilog":
        yield from _as_systemverilog(vectors, note)
    else:
        raise ValueError(f"as={form!r} is not known; use one of {', '.join(FORMS)}")


def _digits(value: int, bits: int) -> str:
    return f"{value:0{-(-bits // 4)}x}"


def _as_c(vectors: Vectors, note: str) -> Iterator[str]:
    yield f"/* {note} */"
    yield "#include <stdint.h>"
    fields = " ".join(
        f"uint{next(w for w in (8, 16, 32, 64) if w >= bits)}_t {name};"
        for name, bits in vectors.columns
    )
    yield f"static const struct {{ {fields} }} vectors[] = {{"
    for row in vectors.rows:
        values = ", ".join(
            f"0x{_digits(v, bits)}" for v, (_, bits) in zip(row, vectors.columns, strict=True)
        )
        yield f"  {{ {values} }},"
    yield "};"


def _as_systemverilog(vectors: Vectors, note: str) -> Iterator[str]:
    yield f"// {note}"
    yield "package vectors_pkg;"
    fields = " ".join(f"logic [{bits - 1}:0] {name};" for name, bits in vectors.columns)
    yield f"  typedef struct packed {{ {fields} }} vector_t;"
    yield f"  localparam int N = {len(vectors.rows)};"
    # Arrays of structures as parameters are unknown to some simulators; a function is not.
    yield "  function automatic vector_t vector(input int i);"
    yield "    case (i)"
    for i, row in enumerate(vectors.rows):
        values = ", ".join(
            f"{bits}'h{_digits(v, bits)}" for v, (_, bits) in zip(row, vectors.columns, strict=True)
        )
        yield f"      {i}: vector = {{{values}}};"
    yield "      default: vector = 'x;"
    yield "    endcase"
    yield "  endfunction"
    yield "endpackage"
