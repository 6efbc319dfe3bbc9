"""Conversions of every binary32 number into a format: value, sign, NaN and flags."""

from __future__ import annotations

from functools import partial
from typing import Any

from fpsim.judge.oracle import Settings as OracleSettings
from fpsim.judge.oracle import convert
from fpsim.judge.proofs.compiled import answers
from fpsim.judge.proofs.elementwise import replayed
from fpsim.judge.proofs.outcomes import (
    Outcome,
    agrees,
    infinity_converted,
    not_a_number,
    result_of,
)
from fpsim.judge.proofs.replay import Builder
from fpsim.judge.proofs.specification import magnitude_of
from fpsim.judge.proofs.terms import Theory, Truth, Word
from fpsim.judge.proofs.theorem import Claim, Finding, Point, Theorem
from fpsim.records.formats import BINARY32, Format
from fpsim.records.settings import Settings

__all__ = ["conversion", "expected"]


def expected(x: Word, settings: Settings, word: Word | None) -> Outcome:
    """What a binary32 code becomes by the rules."""
    body, negative = x & 0x7FFFFFFF, x.is_negative
    exact = magnitude_of(x)
    finite = result_of(exact, negative, settings, word)
    is_quiet = x.cut(22, 22) == 1
    invalid = ~is_quiet | x.theory.truth(settings.quiet_nan_raises)
    nan = not_a_number(exact, invalid, settings)
    special = nan.where(body > 0x7F800000, infinity_converted(exact, negative, settings))
    return special.where(body >= 0x7F800000, finite)


def claim(settings: Settings, supplied: bool) -> Claim:
    """The kernel's step gives the outcome of the specification."""
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
    step = replayed(Builder(theory), "convert", settings, [x], word, supplied=supplied)
    goal = agrees(step.code, step.flags, expected(x, settings, top))
    return Claim(theory, goal, premises)


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
    found = answers("convert", settings, [x], word, supplied)
    return Finding(_told(found), _told({(code, int(flags))}))


def _told(pairs: set[tuple[int, int]]) -> str:
    return " or ".join(f"{code:#x} flags {flags:#x}" for code, flags in sorted(pairs))


def conversion(
    fmt: Format, rounding: Any, label: str = "", *, supplied: bool = False, quick: bool = False,
    **policies: Any,
) -> Theorem:
    """The theorem of one format, mode and policy."""
    settings = Settings(fmt, rounding, **policies)
    mode = repr(settings.rounding).replace("bits=", "")
    name = " ".join(filter(None, ["convert", fmt.name, mode, label]))
    return Theorem(
        name, "conversion",
        f"every binary32 number becomes the {fmt.name} that {mode} names, with its flags",
        partial(claim, settings, supplied), partial(check, settings, supplied), quick=quick,
    )
