"""Conversions of every binary32 number into a format: value, sign, NaN and flags."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.elementwise.apply import apply
from fpsim.elementwise.constants import exact_width
from fpsim.judge.oracle import OracleSettings, convert
from fpsim.judge.proofs.compiled import answers, bits_of, told
from fpsim.judge.proofs.elementwise import replayed
from fpsim.judge.proofs.outcomes import (
    ExpectedResult,
    agrees,
    infinity_converted,
    not_a_number,
    result_of,
)
from fpsim.judge.proofs.replay import TermBuilder
from fpsim.judge.proofs.specification import magnitude_of
from fpsim.judge.proofs.terms import Theory, Truth, Word
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.kernels.elementwise.step import FLAGS_EACH, FLAGS_NONE
from fpsim.records.formats import BINARY32, CATALOGUE, Format
from fpsim.records.rounding import MODES, SR
from fpsim.records.settings import Settings

__all__ = ["conversion", "expected", "narrow_formats", "theorems"]

#: Random bits of the stochastic roundings that are proved.
_RANDOM_BITS = (8, 13, 16)

_ABOUT = {
    "conversion": "every binary32 number into a format, in every mode: value, sign, NaN, flags",
    "conversion, given bits": "the same with the caller's own random bits",
    "conversion, without flags": "the values of the kernels that tell no flags",
    "conversion, policies": "overflow, infinities, subnormals, tininess, quiet NaN: one choice "
    "at a time",
}

#: Those of the subset of a minute.
_QUICK = {("binary16", "RNE"), ("e4m3fn", "RTP"), ("e5m2", "SR(8)")}


def expected(x: Word, settings: Settings, word: Word | None) -> ExpectedResult:
    """What a binary32 code becomes by the rules."""
    body, negative = x & 0x7FFFFFFF, x.is_negative
    exact = magnitude_of(x)
    finite = result_of(exact, negative, settings, word)
    is_quiet = x.cut(22, 22) == 1
    invalid = ~is_quiet | x.theory.truth(settings.quiet_nan_raises)
    nan = not_a_number(exact, invalid, settings)
    special = nan.where(body > 0x7F800000, infinity_converted(exact, negative, settings))
    return special.where(body >= 0x7F800000, finite)


def claim(settings: Settings, supplied: bool, level: int = FLAGS_EACH) -> SolverClaim:
    """The kernel's step gives the outcome of the specification; FLAGS_NONE tells no flags."""
    theory = Theory()
    x = theory.variable("x", 32)
    word = top = None
    premises: list[Truth] = []
    if settings.rounding.stochastic:
        word = top = theory.variable("word", 32)
        if supplied:
            # Given bits are integers below 2**r; the specification reads them from the top.
            r = settings.random_most
            premises.append(word < 1 << r)
            top = word << (32 - r)
    step = replayed(
        TermBuilder(theory), "convert", settings, [x], word, supplied=supplied, level=level
    )
    outcome = expected(x, settings, top)
    flags = outcome.flags if level == FLAGS_NONE else step.flags
    goal = agrees(step.code, flags, outcome)
    return SolverClaim(theory, goal, premises)


def oracle_settings(settings: Settings, word: int = 0) -> OracleSettings:
    """The same choices for the oracle, which resolves their defaults by itself."""
    choices: dict[str, Any] = {k: v for k, v in settings.choices().items() if k != "format"}
    return OracleSettings(**choices, word=word)


def check(settings: Settings, supplied: bool, point: Point) -> Finding:
    """The compiled kernel and the oracle at a point."""
    x, word = point["x"], point.get("word", 0)
    if supplied:
        word = word << (32 - settings.random_most) & 0xFFFFFFFF
    code, flags = convert(x, BINARY32, settings.format, oracle_settings(settings, word))
    outcomes = answers("convert", settings, [x], word, supplied)
    return Finding(told(outcomes), told({(bits_of(code, settings.format), int(flags))}))


def check_without_flags(settings: Settings, point: Point) -> Finding:
    """The compiled kernel that tells no flags and the oracle at a point."""
    code, _ = convert(point["x"], BINARY32, settings.format, oracle_settings(settings))
    x = np.array([point["x"]], np.uint32).view(np.float32)
    out, _ = apply("convert", [x], settings, track=False)
    return Finding(
        told({(int(out.view(np.uint32)[0]), 0)}), told({(bits_of(code, settings.format), 0)})
    )


def _without_flags(fmt: Format, rounding: Any) -> Theorem:
    settings, kind = Settings(fmt, rounding), "conversion, without flags"
    return Theorem(
        f"convert {fmt.name} {rounding} without flags", kind,
        f"the kernel that tells no flags converts every binary32 number into {fmt.name} as well",
        partial(claim, settings, False, FLAGS_NONE), partial(check_without_flags, settings),
        about=_ABOUT[kind],
    )


def conversion(
    fmt: Format, rounding: Any, label: str = "", *, supplied: bool = False, **policies: Any
) -> Theorem:
    """The theorem of one format, mode and policy."""
    settings = Settings(fmt, rounding, **policies)
    mode = repr(settings.rounding).replace("bits=", "")
    name = " ".join(filter(None, ["convert", fmt.name, mode, label]))
    kind = "conversion" if not label else "conversion, policies"
    if supplied:
        kind = "conversion, given bits"
    return Theorem(
        name, kind,
        f"every binary32 number becomes the {fmt.name} that {mode} names, with its flags",
        partial(claim, settings, supplied), partial(check, settings, supplied),
        quick=not label and (fmt.name, mode) in _QUICK, about=_ABOUT[kind],
    )


def narrow_formats() -> list[Format]:
    """Formats of the catalogue whose conversions are computed in lanes of 32 bits."""
    formats = [fmt for fmt in CATALOGUE.values() if isinstance(fmt, Format)]
    return [f for f in formats if f.bits < 32 and exact_width("convert", Settings(f), 4) == 32]


def _policies(fmt: Format) -> Iterator[Theorem]:
    """What happens at the ends of the range: one choice at a time, toward both signs."""
    for overflow in ("saturate", "nan"):
        if overflow == "saturate" or fmt.has_nan:
            yield conversion(fmt, "RNE", f"overflow={overflow}", overflow=overflow)
            yield conversion(
                fmt, "RTP", f"infinite_input={overflow}", infinite_input=overflow
            )
    for mode in ("RNE", "RTN", SR(8)):
        yield conversion(fmt, mode, "subnormals=flush_results", subnormals="flush_results")
    yield conversion(fmt, "RTZ", "subnormals=flush_both", subnormals="flush_both")
    yield conversion(fmt, "RNE", "tininess=before", tininess="before")
    yield conversion(
        fmt, "RAZ", "tininess=before flush_results", tininess="before",
        subnormals="flush_results",
    )
    yield conversion(fmt, "RNE", "quiet_nan_raises", quiet_nan_raises=True)


def theorems() -> Iterator[Theorem]:
    """Every format of 32-bit lanes in every mode, and every policy."""
    modes = [*MODES.values(), *map(SR, _RANDOM_BITS)]
    for fmt in narrow_formats():
        for mode in modes:
            yield conversion(fmt, mode)
        for mode in modes:
            if mode.stochastic:
                yield conversion(fmt, mode, "given bits", supplied=True)
        yield from _policies(fmt)
        for rounding in ("RNE", "RTP"):
            yield _without_flags(fmt, rounding)
