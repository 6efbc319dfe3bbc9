"""IBM FPgen's .fptest files, binary32: values and flags of every line that applies.

A line is `operation mode [traps] operands -> result [flags]`:

operation    b32+ b32- b32* b32/ b32*+ (fused multiply-add); lines of others are ignored
mode         =0 RNE, 0 RTZ, > RTP, < RTN, =^ RNA
traps        letters; a line that traps o, u, z or i describes another result and is skipped
values       ±1.HHHHHHP±e, the 23-bit fraction as an integer; ±0.HHHHHHP-126; ±Zero, ±Inf;
             Q and S are quiet and signalling NaN, # is no result
flags        x inexact, o overflow, u tiny before rounding and inexact, z divide by zero, i invalid

Source    IBM FPgen, Floating-Point Test-Suite for IEEE (format description).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np

from fpsim.elementwise.apply import apply
from fpsim.judge.verify.report import VerificationReport
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32
from fpsim.records.settings import Settings

__all__ = ["decode", "encode", "verify"]

#: Operation -> (ours, number of operands).
OPERATIONS = {
    "b32+": ("add", 2), "b32-": ("subtract", 2), "b32*": ("multiply", 2), "b32/": ("divide", 2),
    "b32*+": ("fma", 3),
}

MODES = {"=0": "RNE", "0": "RTZ", ">": "RTP", "<": "RTN", "=^": "RNA"}

LETTERS = {
    "x": Flags.INEXACT, "u": Flags.UNDERFLOW, "o": Flags.OVERFLOW, "z": Flags.DIVBYZERO,
    "i": Flags.INVALID,
}

#: Lines compared at a time.
_BATCH = 1 << 16

#: A trap on one of these changes the result; one on x does not.
CHANGING = frozenset("ouzi")

WORDS = {"Q": 0x7FC00000, "S": 0x7FA00000, "+Zero": 0, "-Zero": 1 << 31, "+Inf": 0x7F800000,
         "-Inf": 0xFF800000}
NUMBER = re.compile(r"([+-])([01])\.([0-9A-Fa-f]{6})P([+-]?\d{1,4})")


class Vector(NamedTuple):
    """One line; `result` is None where it gives none, and 7FC00000 for any quiet NaN."""

    line: int
    text: str
    operation: str
    mode: str
    operands: tuple[int, ...]
    result: int | None
    flags: Flags


def decode(text: str) -> int:
    """Code of a value as FPgen writes it.

    Raises    ValueError for what is no value.

    >>> [f"{decode(t):08X}" for t in ("+1.000000P0", "-0.000001P-126", "+1.7FFFFFP127", "-Zero")]
    ['3F800000', '80000001', '7F7FFFFF', '80000000']
    """
    if text in WORDS:
        return WORDS[text]
    match = NUMBER.fullmatch(text)
    if match:
        sign, leading, fraction, exponent = match.groups()
        f, e = int(fraction, 16), int(exponent)
        normal = leading == "1"
        if f >> 23 == 0 and (-126 <= e <= 127 if normal else e == -126):
            return (sign == "-") << 31 | (e + 127 if normal else 0) << 23 | f
    raise ValueError(f"{text!r} is no value of binary32")


def encode(code: int) -> str:
    """A code as FPgen writes it.

    >>> encode(0x3F800000), encode(0x80000001), encode(0x7FC00000), encode(0xFF800000)
    ('+1.000000P0', '-0.000001P-126', 'Q', '-Inf')
    """
    sign, field, fraction = "+-"[code >> 31], code >> 23 & 0xFF, code & 0x7FFFFF
    if field == 255:
        return ("Q" if fraction >> 22 else "S") if fraction else f"{sign}Inf"
    if field == 0:
        return f"{sign}0.{fraction:06X}P-126" if fraction else f"{sign}Zero"
    return f"{sign}1.{fraction:06X}P{field - 127}"


def _flags(letters: Iterable[str]) -> Flags:
    flags = Flags.NONE
    for letter in "".join(letters):
        if letter not in LETTERS:
            raise ValueError(f"{letter!r} is no flag; they are {' '.join(LETTERS)}")
        flags |= LETTERS[letter]
    return flags


def parse(text: str, line: int) -> Vector | str:
    """A line as a vector, or the word for why it is none: skipped or ignored.

    Raises    ValueError for a line of a known operation that is malformed.

    >>> parse("b32+ =0 +1.000000P0 +1.000000P0 -> +1.000000P1", 1).operands
    (1065353216, 1065353216)
    >>> parse("b32+ =0 o +1.7FFFFFP127 +1.7FFFFFP127 -> +1.7FFFFFP-64 o", 2), parse("d64+ =0", 3)
    ('skipped', 'ignored')
    """
    fields = text.split()
    if not fields or fields[0] not in OPERATIONS:
        return "ignored"
    operation, n = OPERATIONS[fields[0]]
    if "->" not in fields or len(fields) < 2:
        raise ValueError("it has no ->")
    arrow = fields.index("->")
    left, right = fields[1:arrow], fields[arrow + 1 :]
    if len(left) < n + 1 or len(left) > n + 2 or len(right) not in (1, 2):
        raise ValueError(f"it does not have {n} operands and one result")
    mode, operands = left[0], left[-n:]
    if mode not in MODES:
        raise ValueError(f"{mode!r} is no mode; they are {' '.join(MODES)}")
    traps = left[1] if len(left) == n + 2 else ""
    _flags(traps)
    if CHANGING & set(traps):
        return "skipped"
    codes = tuple(map(decode, operands))
    result = None if right[0] == "#" else decode(right[0])
    return Vector(line, text.strip(), operation, mode, codes, result, _flags(right[1:]))


def verify(name: str, lines: Iterable[str]) -> VerificationReport:
    """Compare the lines of one file with the core.

    Raises    ValueError for a malformed line, with its number.

    >>> print(verify("these", ["b32/ > +1.000000P0 +1.400000P1 -> +1.2AAAABP-2 x"]))
    these: 1 vectors, 0 mismatches, 0 skipped, 0 ignored
    """
    report = VerificationReport(name, notes={"skipped": 0, "ignored": 0})
    numbered = enumerate(lines, 1)
    while batch := list(islice(numbered, _BATCH)):
        _verify_batch(report, batch)
    return report


def _verify_batch(report: VerificationReport, batch: list[tuple[int, str]]) -> None:
    groups: dict[tuple[str, str], list[Vector]] = {}
    for number, text in batch:
        try:
            vector = parse(text, number)
        except ValueError as error:
            line = f"{report.label}, line {number}: {text.strip()[:60]!r}"
            raise ValueError(f"{line}: {error}") from None
        if isinstance(vector, str):
            report.notes[vector] += 1
        else:
            groups.setdefault((vector.operation, vector.mode), []).append(vector)
    wrong: list[tuple[int, str]] = []
    for (operation, mode), vectors in groups.items():
        report.checked += len(vectors)
        wrong += _check(operation, mode, vectors)
    report.fail(len(wrong), (text for _, text in sorted(wrong)))


def _check(operation: str, mode: str, vectors: list[Vector]) -> list[tuple[int, str]]:
    """(line number, description) of the vectors that the core computes otherwise."""
    codes = np.array([v.operands for v in vectors], np.uint32).T
    settings = Settings(BINARY32, MODES[mode], tininess="before")  # type: ignore[arg-type]
    element_flags = np.empty(len(vectors), np.uint8)
    operands = [np.ascontiguousarray(column).view(np.float32) for column in codes]
    values, _ = apply(operation, operands, settings, element_flags=element_flags)
    wrong = []
    for vector, got, raised in zip(
        vectors, values.view(np.uint32).tolist(), element_flags.tolist(), strict=True
    ):
        if raised != vector.flags or vector.result not in (None, got):
            letters = "".join(letter for letter, flag in LETTERS.items() if raised & flag)
            wrong.append(
                (vector.line, f"  line {vector.line}: {vector.text}  got {encode(got)} {letters}")
            )
    return wrong
