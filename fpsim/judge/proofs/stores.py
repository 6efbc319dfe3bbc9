"""Roundings of partial results where they are stored, and the same by a magic number.

A stored partial is a binary32 number rounded once; of its flags OVERFLOW and INVALID are told. The
longer formula takes every number. The shorter ones take what their callers promise: normal numbers
where random bits decide, numbers that cannot overflow where 1.5 * 2**k is added and taken away.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from fpsim.elementwise.constants import KernelPlan, exact_width, plan
from fpsim.judge.oracle import convert
from fpsim.judge.proofs.compiled import bits_of, told
from fpsim.judge.proofs.conversions import expected, narrow_formats, oracle_settings
from fpsim.judge.proofs.elementwise import rule_of
from fpsim.judge.proofs.outcomes import agrees
from fpsim.judge.proofs.replay import TermBuilder
from fpsim.judge.proofs.terms import Theory, Truth, Word, choose
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.kernels.by_unit.outputs import output_kernel
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.memory import load_float, store_float
from fpsim.kernels.lanes.vectors import as_bits, infinity_like
from fpsim.kernels.rounding.rule import spread
from fpsim.kernels.rounding.store import (
    BY_INTEGERS,
    LOUD,
    QUIET,
    is_rare,
    ordinary_below,
    store_lanes,
    store_normal,
    store_ordinary,
)
from fpsim.kernels.target import HAS_QUIET_ADD
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, TF32, Format
from fpsim.records.rounding import MODES, SR
from fpsim.records.settings import Settings

__all__ = ["theorems"]

#: OVERFLOW and INVALID.
_TOLD = 4 | 16


def _partial(theory: Theory, settings: Settings, width: int) -> tuple[Word, Word, Word | None]:
    """A binary32 number, its bits in these lanes, and a random word if the mode takes it."""
    x = theory.variable("x", 32)
    bits = x if width == 32 else theory.real(x).converted(64).bits
    word = theory.variable("word", 32) if settings.rounding.stochastic else None
    return x, bits, word


def _in_lanes(builder: TermBuilder, word: Word | None, bits: Word) -> Any:
    """The random word as a formula reads it: with zeros above, or anything where none is taken."""
    return builder.bits(bits if word is None else word.extended(bits.width))


def _one_zero(code: Word, settings: Settings) -> Word:
    """The caller makes every zero +0 where the format has one zero."""
    if settings.format.has_negative_zero:
        return code
    return choose(code << 1 == 0, code ^ code, code)


def _narrowed(code: Word) -> Word:
    """Bits of binary32 from lanes of 64 bits: partials are stored in binary32."""
    return code if code.width == 32 else code.theory.real(code).converted(32).bits


def _any_partial(settings: Settings, width: int, low: bool) -> SolverClaim:
    theory = Theory()
    x, bits, word = _partial(theory, settings, width)
    builder = TermBuilder(theory)
    numbers = plan("convert", settings, width)
    rule = rule_of(builder, numbers.constants, width)
    what = numbers.mode, low, numbers.residual
    result, flags = store_lanes(what, builder.bits(bits), _in_lanes(builder, word, bits), rule)
    outcome = expected(x, settings, _from_top(word, settings, low))
    outcome = outcome._replace(flags=outcome.flags & _TOLD)
    code = _one_zero(_narrowed(builder.word(result)), settings)
    goal = agrees(code, builder.word(flags).cut(7, 0), outcome)
    return SolverClaim(theory, goal, [_computed(x), *_numbers_below(word, settings, low)])


def _computed(x: Word) -> Truth:
    """No signalling NaN, which no sum is."""
    return ((x & 0x7FFFFFFF) <= 0x7F800000) | (x & 0x400000 != 0)


def _numbers_below(word: Word | None, settings: Settings, low: bool) -> list[Truth]:
    """Given random bits are integers below 2**r."""
    return [word < 1 << settings.random_most] if low and word is not None else []


def _from_top(word: Word | None, settings: Settings, low: bool) -> Word | None:
    if word is None or not low:
        return word
    return word << (32 - settings.random_most)


def _stored(settings: Settings, low: bool, point: Point) -> Finding:
    """The compiled rounding of outputs and the oracle at a point, alone and beside others."""
    x, word = point["x"], point.get("word", 0)
    r = settings.random_most
    number = word if low else word >> (32 - r) if r else 0
    top = number << (32 - r) if r else 0
    code, flags = convert(x, BINARY32, settings.format, oracle_settings(settings, top))
    numbers = plan("convert", settings, exact_width("convert", settings, 4))
    loop = output_kernel(numbers.mode, numbers.stochastic, numbers.residual, False)
    outcomes = set()
    for beside in (x, 0, 0x7F800000, 1):
        values = np.array([x] + [beside] * 31, np.uint32).view(np.float32)
        raised = np.zeros(32, np.uint8)
        words = np.full(32, number, np.uint32)
        nothing = (0, np.uint64(0), np.uint64(0), 0, 0)
        loop(values, raised, (1, 32), words, nothing, numbers.constants)
        if numbers.one_zero:
            values[values == 0] = 0.0
        outcomes.add((int(values.view(np.uint32)[0]), int(raised[0])))
    return Finding(
        told(outcomes), told({(bits_of(code, settings.format), int(flags) & _TOLD)})
    )


def _normal_partial(settings: Settings) -> SolverClaim:
    """What is not rare is rounded as every partial, and raises nothing."""
    theory = Theory()
    x, bits, word = _partial(theory, settings, 32)
    builder = TermBuilder(theory)
    numbers = plan("convert", settings, 32)
    rule = rule_of(builder, numbers.constants, 32)
    what = numbers.mode, False, numbers.residual
    ordinary = ~builder.content(is_rare(builder.bits(bits), rule))
    result = store_normal(what, builder.bits(bits), _in_lanes(builder, word, bits), rule)
    outcome = expected(x, settings, word)
    outcome = outcome._replace(flags=outcome.flags & _TOLD)
    code = _one_zero(builder.word(result), settings)
    return SolverClaim(theory, agrees(code, theory.word(0, 8), outcome), [ordinary])


def _ordinary_partial(settings: Settings, width: int, care: int) -> SolverClaim:
    theory = Theory()
    x, bits, word = _partial(theory, settings, width)
    builder = TermBuilder(theory)
    numbers = plan("convert", settings, width)
    rule = rule_of(builder, numbers.constants, width)
    lanes = builder.bits(bits)
    how = numbers.mode, False, numbers.residual, care
    field = lanes & infinity_like(lanes)
    result = store_ordinary(how, lanes, field, _in_lanes(builder, word, bits), rule)
    code = _narrowed(builder.word(result))
    outcome = expected(x, settings, word)
    # What becomes zero may be +0: its sign is settled by the caller.
    sign = choose(outcome.magnitude.units == 0, code.is_negative, outcome.negative)
    outcome = outcome._replace(negative=sign, flags=theory.word(0, 8))
    goal = agrees(code, theory.word(0, 8), outcome)
    short = builder.content(field < ordinary_below(rule))
    return SolverClaim(theory, goal, [short])


@cache
def _ordinary_kernel(mode: int, residual: int, care: int) -> Any:
    HOW = (mode, False, residual, care)

    @compiled
    def loop(values, constants):  # type: ignore[no-untyped-def]
        rule = spread(constants)
        bits = as_bits(load_float(values, 0, rule.drop))
        field = bits & infinity_like(bits)
        store_float(values, 0, store_ordinary(HOW, bits, field, bits, rule))

    return loop


def _rounded_by_magic(settings: Settings, width: int, care: int, point: Point) -> Finding:
    """The compiled formula to nearest and the oracle at a point; zeros without a sign."""
    numbers: KernelPlan = plan("convert", settings, width)
    values = np.full(16, point["x"], np.uint32).view(np.float32)
    _ordinary_kernel(numbers.mode, numbers.residual, care)(values, numbers.constants)
    code, _ = convert(point["x"], BINARY32, settings.format, oracle_settings(settings))
    stored, right = int(values.view(np.uint32)[0]), bits_of(code, settings.format)
    if stored << 1 & 0xFFFFFFFF == 0 and right << 1 & 0xFFFFFFFF == 0:
        stored = right
    return Finding(told({(stored, 0)}), told({(right, 0)}))


def _mode(settings: Settings) -> str:
    return repr(settings.rounding).replace("bits=", "")


def _store(fmt: Format, rounding: Any, width: int = 32, low: bool = False) -> Theorem:
    settings = Settings(fmt, rounding)
    name = f"store {fmt.name} {_mode(settings)}" + (" given bits" if low else "")
    name += " 64-bit lanes" if width == 64 else ""
    return Theorem(
        name, "store", "a partial, any binary32 number, is rounded once where it is stored",
        partial(_any_partial, settings, width, low), partial(_stored, settings, low),
        quick=name == "store binary16 RNE", about="every partial where it is stored",
    )


def _magic(fmt: Format, width: int, care: int) -> Theorem:
    settings = Settings(fmt)
    how = {LOUD: "loud", QUIET: "quiet", BY_INTEGERS: "integers"}[care]
    name = f"magic {fmt.name} {how}" + (" 64-bit lanes" if width == 64 else "")
    return Theorem(
        name, "magic number",
        "adding and subtracting 1.5 * 2**k rounds to nearest even, as integers do",
        partial(_ordinary_partial, settings, width, care),
        partial(_rounded_by_magic, settings, width, care), quick=name == "magic binary16 loud",
        about="1.5 * 2**k added and taken away: rounding to nearest even, as integers do it",
    )


def theorems() -> Iterator[Theorem]:
    """Every format to nearest and stochastically; binary16 in every mode and in wide lanes."""
    for fmt in narrow_formats():
        modes = [*MODES.values(), SR(8), SR(16)] if fmt == BINARY16 else [MODES["RNE"], SR(8)]
        for rounding in modes:
            yield _store(fmt, rounding)
        yield _store(fmt, SR(8), low=True)
        settings = Settings(fmt, SR(8))
        yield Theorem(
            f"store {fmt.name} SR(8) normal", "store, normal numbers",
            "what is not rare is rounded by the short formula as by the long one",
            partial(_normal_partial, settings), partial(_stored, settings, False),
            about="the short stochastic rounding of partials that are normal numbers",
        )
    yield _store(BINARY16, MODES["RNE"], 64)
    for fmt in (BINARY16, BFLOAT16, TF32):
        for care in (LOUD, BY_INTEGERS, *([QUIET] if HAS_QUIET_ADD else [])):
            yield _magic(fmt, 32, care)
    yield _magic(BINARY16, 64, LOUD)
