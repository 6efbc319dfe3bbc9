"""Vectors of Berkeley TestFloat through the core: values and flags of every line.

A line of testfloat_gen is operands, result and flags in hexadecimal. Integer results and
roundToInt expect vectors made with -exact. NaN results in them follow x86: by default any NaN
equals any other; `nan="x86"` asks for the very payload, except between binary32 and bfloat16, whose
recorded payloads are shifted by one bit (a defect of TestFloat). `odd` jams to odd also where it
rounds to an integer, as testfloat_gen does, not as its help says.

Source    Hauser, Berkeley TestFloat 3e.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise import compare, integers
from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.remainder import remainder
from fpsim.judge.verify.lines import blocks, parse
from fpsim.judge.verify.report import VerificationReport
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, BINARY64, Format
from fpsim.records.settings import Settings

__all__ = ["FUNCTIONS", "ROUNDINGS", "Function", "verify"]

#: testfloat_gen's names of the modes.
ROUNDINGS = {
    "near_even": "RNE", "minMag": "RTZ", "min": "RTN", "max": "RTP", "near_maxMag": "RNA",
    "odd": "RTO",
}

FLOATS = {"f16": BINARY16, "bf16": BFLOAT16, "f32": BINARY32, "f64": BINARY64}
INTEGERS = {"i32": np.int32, "ui32": np.uint32, "i64": np.int64, "ui64": np.uint64}
DIGITS = {"f16": 4, "bf16": 4, "f32": 8, "f64": 16, "i32": 8, "ui32": 8, "i64": 16, "ui64": 16,
          "bool": 1}

#: Arithmetic: name -> (ours, number of operands).
ARITHMETIC = {
    "add": ("add", 2), "sub": ("subtract", 2), "mul": ("multiply", 2), "div": ("divide", 2),
    "sqrt": ("sqrt", 1), "mulAdd": ("fma", 3), "roundToInt": ("round_to_integral", 1),
    "rem": ("ieee_remainder", 2),
}

#: Comparison: name -> (relation, whether a quiet NaN raises INVALID).
COMPARISONS = {
    "eq": ("equal", False), "le": ("less_equal", True), "lt": ("less", True),
    "eq_signaling": ("equal", True), "le_quiet": ("less_equal", False), "lt_quiet": ("less", False),
}

CONVERSIONS = [
    *("f16_to_f32", "f32_to_f16", "f64_to_f16", "f64_to_f32", "f32_to_bf16", "bf16_to_f32"),
    *(f"{f}_to_{i}" for f in ("f16", "f32") for i in INTEGERS),
    *(f"{i}_to_{f}" for f in ("f16", "f32") for i in INTEGERS),
]

#: Functions whose recorded NaN payloads are no judge.
SHIFTED_PAYLOADS = ("f32_to_bf16", "bf16_to_f32")

Columns = NDArray[np.uint64]
FlagBytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Function:
    """A function of testfloat_gen: the kinds of its operands and of its result."""

    name: str
    operation: str
    operands: tuple[str, ...]
    result: str

    @property
    def widths(self) -> tuple[int, ...]:
        """Hexadecimal digits of each field of a line: operands, result, flags."""
        return (*(DIGITS[kind] for kind in self.operands), DIGITS[self.result], 2)


def _functions() -> Iterator[Function]:
    for name in ("f16", "f32"):
        for operation, (_, n) in ARITHMETIC.items():
            yield Function(f"{name}_{operation}", operation, (name,) * n, name)
        for relation in COMPARISONS:
            yield Function(f"{name}_{relation}", relation, (name,) * 2, "bool")
    for conversion in CONVERSIONS:
        source, _, target = conversion.partition("_to_")
        yield Function(conversion, "convert", (source,), target)


FUNCTIONS = {function.name: function for function in _functions()}


def compute(function: Function, columns: Columns, settings: Settings) -> tuple[Columns, FlagBytes]:
    """Result codes and flags of the core for operand codes, one column each.

    Shapes    columns (operands, n); results and flags (n,).
    """
    source = function.operands[0]
    if source in INTEGERS:
        integer = columns[0].astype(f"u{DIGITS[source] // 2}").view(INTEGERS[source])
        x: list[NDArray[Any]] = [integers.to_binary64(integer)]
    else:
        fmt = FLOATS[source]
        x = [from_codes(column.astype(fmt.code_dtype), fmt) for column in columns]
    flags = np.zeros(columns.shape[1], np.uint8)
    if function.operation in COMPARISONS:
        relation, signalling = COMPARISONS[function.operation]
        truth, flags = compare.compare(relation, x[0], x[1], settings, signalling)
        return truth.astype(np.uint64), flags
    if function.result in INTEGERS:
        return _to_integers(x[0], function.result, settings)
    name = ARITHMETIC.get(function.operation, (function.operation,))[0]
    if name == "ieee_remainder":
        values, flags[...] = remainder(x[0], x[1], settings, nearest=True)
    else:
        values, _ = apply(name, x, settings, element_flags=flags)
    return to_codes(values, settings.format).astype(np.uint64), flags


def _to_integers(x: NDArray[Any], kind: str, settings: Settings) -> tuple[Columns, FlagBytes]:
    integral, _ = apply("round_to_integral", (x,), settings, track=False)
    values, flags = integers.to_integers(x, integral, np.dtype(INTEGERS[kind]))
    return values.view(f"u{values.itemsize}").astype(np.uint64), flags


def _is_nan(codes: Columns, kind: str) -> NDArray[np.bool_]:
    fmt = FLOATS[kind]
    infinity = ((1 << fmt.exponent_bits) - 1) << (fmt.precision - 1)
    is_nan: NDArray[np.bool_] = codes & np.uint64((1 << (fmt.bits - 1)) - 1) > infinity
    return is_nan


def _settings(function: Function, rounding: str, tininess: str, nan: str) -> Settings:
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding={rounding!r} is not known; use one of {', '.join(ROUNDINGS)}")
    if nan not in ("class", "x86"):
        raise ValueError(f"nan={nan!r} is not known; use class or x86")
    if nan == "x86" and function.name in SHIFTED_PAYLOADS:
        raise ValueError(
            f"nan='x86' cannot judge {function.name}: TestFloat's payloads are shifted by one bit "
            "there; use nan='class'"
        )
    fmt: Format = FLOATS.get(function.result) or FLOATS[function.operands[0]]
    policy = "x86" if nan == "x86" else "canonical"
    return Settings(fmt, ROUNDINGS[rounding], tininess=tininess, nan=policy)  # type: ignore[arg-type]


def find_function(name: str) -> Function:
    """The function of that name.

    Raises    ValueError with close names for one that is not known.
    """
    if name not in FUNCTIONS:
        close = difflib.get_close_matches(name, FUNCTIONS, 1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Use one of {', '.join(FUNCTIONS)}."
        raise ValueError(f"function={name!r} is not known. {hint}")
    return FUNCTIONS[name]


def verify(
    name: str,
    rounding: str,
    streams: Iterable[tuple[str, BinaryIO]],
    *,
    tininess: str = "after",
    nan: str = "class",
    stride: int = 1,
    watch: Callable[[int], None] = lambda n: None,
) -> VerificationReport:
    """Compare every `stride`-th line of the streams, (name, binary file) each, with the core.

    Raises    ValueError for an unknown choice or a malformed line, with its number.

    >>> import io
    >>> lines = io.BytesIO(b"3C00 3C00 4000 00\\n3C00 1000 3C00 00\\n")
    >>> report = verify("f16_add", "near_even", [("these", lines)])
    >>> print(report, *report.failures, sep="\\n")
    f16_add near_even: 2 vectors, 1 mismatches
      these, line 2: operands 3C00 1000  got 3C00 01  expected 3C00 00
    """
    function = find_function(name)
    settings = _settings(function, rounding, tininess, nan)
    report = VerificationReport(f"{name} {rounding}")
    for source, stream in streams:
        first = 0
        for block in blocks(stream, source):
            columns, bad = parse(block, function.widths)
            n = columns.shape[1]
            if bad >= 0:
                raise ValueError(_malformed(function, source, first + bad + 1, block, bad))
            where = slice(-first % stride, None, stride)
            _check(function, settings, nan, columns[:, where], report, source, first, stride)
            first += n
            watch(n)
        if not first:
            raise ValueError(f"{source} holds no vectors; give lines of testfloat_gen {name}")
    return report


def _malformed(function: Function, source: str, line: int, block: bytes, index: int) -> str:
    text = block.split(b"\n", index + 1)[index][:60].decode("ascii", "replace")
    digits = ", ".join(map(str, function.widths))
    return (
        f"{source}, line {line}: {text!r} is no vector of {function.name}; "
        f"expected fields of {digits} hexadecimal digits (operands, result, flags)"
    )


def _check(
    function: Function, settings: Settings, nan: str, columns: Columns, report: VerificationReport,
    source: str, first: int, stride: int,
) -> None:
    """Compare a block of vectors; columns are operands, result, flags."""
    operands, expected, flags = columns[:-2], columns[-2], columns[-1]
    got, raised = compute(function, operands, settings)
    same = got == expected
    if nan == "class" and function.result in FLOATS:
        same |= _is_nan(got, function.result) & _is_nan(expected, function.result)
    wrong = np.flatnonzero(~same | (raised != flags))
    report.checked += columns.shape[1]
    file = [] if source == "stdin" else [source]
    start = first + -first % stride + 1

    def shown(kind: str, code: Any) -> str:
        return f"{int(code):0{DIGITS[kind]}X}"

    def describe(i: int) -> str:
        codes = " ".join(map(shown, function.operands, operands[:, i]))
        where = ", ".join([*file, f"line {start + i * stride}"])
        return (
            f"  {where}: operands {codes}  got {shown(function.result, got[i])} {raised[i]:02X}"
            f"  expected {shown(function.result, expected[i])} {int(flags[i]):02X}"
        )

    report.fail(wrong.size, map(describe, wrong.tolist()))
