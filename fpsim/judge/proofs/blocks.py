"""Quantisers of block-scaled formats: the scale of a block, its largest magnitude, its elements.

The elements are the loop's own step, run on terms for any product of a number and a factor (an
IEEE product, an axiom); the scales are numpy's own text, run on terms for any largest magnitude.
A power of two is the scale of a rule by the interval in which the magnitude then lies; nothing
here knows exponent fields of binary32. For the largest magnitude the loop is run on a block of two
vectors, of which the first may hold any magnitude so far: so it is a step of an induction.

Source    docs/semantics.md §3 (blocks), §1 (rounding).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
from numba.core import types

from fpsim.elementwise.blocks import elements, scales
from fpsim.judge.oracle.blocks import block_scale, digits, element_code
from fpsim.judge.proofs.conversions import expected
from fpsim.judge.proofs.elementwise import replayed
from fpsim.judge.proofs.numpy_terms import ArrayElement, functions_of
from fpsim.judge.proofs.outcomes import ExpectedResult, agrees
from fpsim.judge.proofs.replay import LaneValue, TermBuilder
from fpsim.judge.proofs.specification import Magnitude, magnitude_of
from fpsim.judge.proofs.terms import Real, Theory, Truth, Word, choose
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.kernels.blocks import encode, largest
from fpsim.kernels.elementwise.step import FLAGS_NONE
from fpsim.records.blocks import BLOCKS, SCALE_RULES, Block, BlockFlags
from fpsim.records.formats import Format
from fpsim.records.rounding import RNE, SR, Rounding
from fpsim.records.settings import Settings
from fpsim.state.draws import Draw

__all__ = ["theorems"]

_INFINITY, _QUIET = 0x7F800000, 0x00400000
_INVALID, _OVERFLOW, _NAN = 16, 4, 255

_ABOUT = {
    "block elements": "codes, flags and what the block is told, for any product with the factor",
    "block scales": "the power of two of a rule, for any largest magnitude",
    "block scales with digits": "UE4M3 and UE5M3 scales, for any number that is to be one",
    "block magnitude": "the largest magnitude, a NaN above all: a step of the induction",
}


# Elements -------------------------------------------------------------------------------------


class _Product:
    """The builder's contract for the product with the factor: any number, NaN where x is one."""

    def __init__(self, factor: Real, product: Real) -> None:
        self.factor, self.result = factor, product

    def get(self, name: str, usual: Any) -> Any:
        return self.times if name == "fmul" else usual

    def times(self, x: Real, y: Real) -> Real:
        return self.result if y is self.factor else x.times(y)


def _element_value(code: Word, fmt: Format, integers: bool) -> tuple[Truth, Magnitude, Truth]:
    """Sign and magnitude of a code of so many bits, and whether it is NaN."""
    theory, n = code.theory, fmt.bits
    negative = code.cut(n - 1, n - 1) == 1
    unit = fmt.emin - fmt.precision + 1
    if integers:  # two's complement: a format's quantum is one
        size = choose(negative, (code ^ code) - code, code)
        return negative, Magnitude(size.cut(n - 1, 0), unit), theory.truth(False)
    body = code.cut(n - 2, 0)
    field, fraction = body.cut(n - 2, fmt.precision - 1), body.cut(fmt.precision - 2, 0)
    width = (1 << fmt.exponent_bits) + fmt.precision
    hidden = choose(field == 0, theory.word(0, 1), theory.word(1, 1))
    places = choose(field == 0, theory.word(0, field.width), field - 1)
    units = hidden.joined(fraction).extended(width) << places.extended(width)
    top = (1 << fmt.exponent_bits) - 1
    # The canonical NaN: all ones, or the first of them where the top exponent is infinity's.
    canonical = {"fn": (1 << n - 1) - 1, "ieee": top << fmt.precision - 1 | 1 << fmt.precision - 2}
    nan = code == canonical[fmt.specials] if fmt.specials in canonical else theory.truth(False)
    return negative, Magnitude(units, unit), nan


def _agrees(code: Word, outcome: ExpectedResult, fmt: Format, integers: bool) -> Truth:
    """Whether a code is this outcome, which is no infinity; a zero of integers has no sign."""
    negative, ours, nan = _element_value(code, fmt, integers)
    wide = outcome.magnitude
    unit = min(ours.unit, wide.unit)
    width = max(m.units.width + m.unit - unit for m in (ours, wide))
    same = ours.in_units(unit, width).units == wide.in_units(unit, width).units
    signed = negative.same(outcome.negative)
    if integers:
        signed = signed | (ours.units == 0)
    return choose(outcome.nan, nan, same & signed & ~nan)


def _elements(block: Block, rounding: Rounding) -> SolverClaim:
    theory = Theory()
    x, product = theory.variable("x", 32), theory.variable("product", 32)
    word = theory.variable("word", 32) if rounding.stochastic else None
    settings = elements.element_settings(block, rounding)
    factor, result = theory.real(theory.unnamed(32)), theory.real(product)
    builder = TermBuilder(theory, _Product(factor, result))
    constants = elements._constants(settings).tolist()
    lanes: list[Any] = [builder.bits(theory.word(number, 32)) for number in constants]
    rule = encode.ElementRule(*lanes)
    builder.memory["x", 0] = LaneValue(x)
    builder.memory["words", 0] = LaneValue(word if word is not None else theory.word(0, 32))
    nothing = builder.bits(theory.word(0, 32))
    what = rounding.stochastic, encode.FLAGS_EACH, False, block.integers
    raised, told = encode._step(
        what, builder.pointer("x", types.uint32), 0, builder.floats(factor),
        builder.pointer("words", types.uint32), 0, builder.pointer("codes", types.uint8), 0,
        builder.pointer("flags", types.uint8), rule, nothing, nothing,
    )
    code = builder.word(builder.memory["codes", 0])
    flags = builder.word(builder.memory["flags", 0])
    outcome = _expected_element(x, product, settings, word)
    goal = _agrees(code.cut(block.element.bits - 1, 0), outcome, block.element, block.integers)
    goal = goal & (code >> block.element.bits == 0) if block.element.bits < 8 else goal
    goal = goal & (flags == outcome.flags) & (builder.word(raised).cut(7, 0) == flags)
    goal = goal & (builder.word(told) == _told(x, product, outcome))
    body, of_product = x & 0x7FFFFFFF, product & 0x7FFFFFFF
    premises = [
        (body > _INFINITY).implies(of_product > _INFINITY),
        (body == 0).implies((of_product == 0) | (of_product > _INFINITY)),
    ]
    return SolverClaim(theory, goal, premises)


def _expected_element(
    x: Word, product: Word, settings: Settings, word: Word | None
) -> ExpectedResult:
    """What the product becomes; a signalling x raises INVALID alone."""
    is_nan = (product & 0x7FFFFFFF) > _INFINITY
    outcome = expected(choose(is_nan, product | _QUIET, product), settings, word)
    loud = ((x & 0x7FFFFFFF) > _INFINITY) & (x & _QUIET == 0)
    theory = x.theory
    return outcome._replace(flags=choose(loud, theory.word(_INVALID, 8), outcome.flags))


def _told(x: Word, product: Word, outcome: ExpectedResult) -> Word:
    """CLIPPED where it overflows, FLUSHED where a number became zero; nothing of a NaN."""
    theory = x.theory
    clipped = choose(outcome.flags & _OVERFLOW != 0, theory.word(encode.CLIPPED, 32),
                     theory.word(0, 32))
    flushed = (outcome.magnitude.units == 0) & (x & 0x7FFFFFFF != 0)
    both = choose(flushed, clipped | encode.FLUSHED, clipped)
    return choose((product & 0x7FFFFFFF) > _INFINITY, theory.word(0, 32), both)


def _number(code: int) -> np.float32:
    value: np.float32 = np.uint32(code).view(np.float32)
    return value


def _check_element(block: Block, rounding: Rounding, point: Point) -> Finding:
    """The compiled loop and the oracle: x times 1, or a small x that a factor makes zero."""
    code, word = point["product"], point.get("word", 0)
    if point["x"] & 0x7FFFFFFF > _INFINITY:
        code = point["x"]
    factor = np.float32(1)
    if code & 0x7FFFFFFF == 0 and point["x"] & 0x7FFFFFFF:
        code, factor = code | 0x00800000, np.float32(2.0**-100)
    x = np.full((1, 32), code, np.uint32).view(np.float32)
    settings = elements.element_settings(block, rounding)
    r = settings.random_most
    words = np.full((1, 32), word >> (32 - r) << (32 - r) if r else 0, np.uint32)
    result = elements.encode_elements(
        x, np.full((1, 1), factor, np.float32), block, rounding, Draw(
            np.uint64(0), np.uint64(0), None), words if r else None, 32, 1,
        flags=encode.FLAGS_EACH,
    )
    got = int(result.codes.reshape(-1)[0]) & (0xF if block.packed else 0xFF)
    assert result.element_flags is not None
    expected_code = element_code(float(x[0, 0]), float(factor), block, rounding, word)
    outcome = _plain_flags(code, factor, settings, word)
    return Finding(f"code {got:#04x} flags {int(result.element_flags[0, 0]):#x}",
                   f"code {expected_code:#04x} flags {outcome:#x}")


def _plain_flags(code: int, factor: np.float32, settings: Settings, word: int) -> int:
    """The specification's flags at a point; the oracle of blocks has none."""
    theory = Theory()
    with np.errstate(all="ignore"):
        product = int((_number(code) * factor).view(np.uint32))
    drawn = theory.word(word, 32) if settings.rounding.stochastic else None
    outcome = _expected_element(theory.word(code, 32), theory.word(product, 32), settings, drawn)
    flags: int = outcome.flags.value
    return flags


# Scales ---------------------------------------------------------------------------------------


class _Codes:
    """The table of factors, which is compared as a whole: an element stands for its factor."""

    def __getitem__(self, codes: ArrayElement) -> ArrayElement:
        return codes


def _run_scales(block: Block, theory: Theory, amax: Word, of_tensor: Any) -> scales.Scales:
    names = functions_of(scales, theory, _POWERS=_Codes())
    result: scales.Scales = names["_scales_of"](
        block, ArrayElement(theory.real(amax)), of_tensor
    )
    return result


def _scaled_number(block: Block, amax: Word) -> Word:
    """The number whose power of two is the scale, times 2**emax where the rule says so: bits."""
    theory = amax.theory
    real = theory.real(amax)

    def number(value: float) -> Real:
        return theory.real(theory.word(int(np.float32(value).view(np.uint32)), 32))

    top = number(block.element.max)
    if block.scale_rule == "rceil":
        return real.times(number(float(np.float32(1) / np.float32(block.element.max)))).bits
    if block.scale_rule == "nearest":
        return real.divided(top).bits
    if block.scale_rule == "clamped_up":
        least = number(1e-4)
        clamped = least.or_else(real.compared("<", least), real)
        return clamped.divided(top).bits
    return amax


def _interval(block: Block, units: Word, low: Word) -> tuple[Truth, Truth]:
    """Whether a number is below, and above, those whose scale is 1 where `low` is that 1."""
    rule, p = block.scale_rule, block.element.precision
    if rule == "floor":
        return units < low, units >= low << 1
    if rule in ("ceil", "rceil", "clamped_up"):
        return units <= low >> 1, units > low
    if rule == "nearest":
        return units < low - (low >> 2), units >= low + (low >> 1)
    # even: from half an ulp of the element below a power of two on.
    return units < low - (low >> p + 1), units >= (low << 1) - (low >> p)


def _power_scale(block: Block) -> SolverClaim:
    theory = Theory()
    amax = theory.variable("amax", 32)
    result = _run_scales(block, theory, amax, np.float32(1))
    code = result.stored.content.cut(7, 0)  # type: ignore[attr-defined]
    same = result.factors.content is result.stored.content  # type: ignore[attr-defined]
    assert same, "factors are no longer looked up by the codes"
    table = [math.ldexp(1.0, 127 - c) for c in range(255)]
    assert np.array_equal(scales._POWERS[:255], np.array(table, np.float32))
    assert np.isnan(scales._POWERS[255])
    relative = block.scale_rule in ("floor", "ceil", "even")
    number = _scaled_number(block, amax)
    # In units small enough for 2**-127 and what is half an ulp below it.
    deep = 8
    held = magnitude_of(number)
    width = held.units.width + deep + 18
    units = held.in_units(held.unit - deep, width).units
    shift = (block.element.emax if relative else 0) - 127 - (held.unit - deep)
    low = theory.word(1 << shift, width) << code.extended(width)
    below, above = _interval(block, units, low)
    inside = (~below | (code == 0)) & (~above | (code == 254)) & (code != _NAN)
    is_nan = amax > _INFINITY
    infinite = amax == _INFINITY
    of_infinity = 255 - block.element.emax if relative else 254
    goal = choose(is_nan, code == _NAN, choose(
        infinite, code == (_NAN if block.infinite == "nan" else of_infinity), inside
    ))
    return SolverClaim(theory, goal, [amax <= 0x7FFFFFFF])


def _check_scale(block: Block, point: Point) -> Finding:
    value = _number(point["amax"])
    got = scales.scales_of(block, np.array([value]), np.float32(1))
    stored, factor = block_scale([float(value)], block, 1.0)
    return Finding(f"code {int(got.stored[0])} factor {float(got.factors[0])!r}",
                   f"code {stored} factor {factor!r}")


def _digits_scale(block: Block) -> SolverClaim:
    """Any number becomes a scale to nearest even, saturated, with the flags of the scale."""
    theory = Theory()
    amax, exact = theory.variable("amax", 32), theory.variable("exact", 32)
    builder = TermBuilder(theory)

    def converted(name: str, operands: tuple[ArrayElement], settings: Settings, **_: Any) -> Any:
        bits = operands[0].view(np.int32).content
        assert isinstance(bits, Word)
        step = replayed(builder, name, settings, [bits], level=FLAGS_NONE)
        return ArrayElement(theory.real(step.code)), 0

    names = functions_of(scales, theory, apply=converted, to_codes=lambda scale, fmt: scale)
    scale, _, flags = names["_digits"](
        block, ArrayElement(theory.real(amax)), ArrayElement(theory.real(exact))
    )
    number = scales._number(block)
    settings = Settings(number, overflow="saturate", infinite_input="saturate")
    outcome = expected(exact, settings, None)
    nan = exact > _INFINITY
    if block.infinite == "nan":
        nan = nan | (amax == _INFINITY)
    code = scale.content.bits
    zero = outcome._replace(flags=theory.word(0, 8))
    value = choose(nan, code & 0x7FFFFFFF > _INFINITY, agrees(code, theory.word(0, 8), zero))
    under = choose(nan, theory.truth(False), (outcome.magnitude.units == 0) & (amax != 0))
    over = choose(nan, theory.truth(False), outcome.flags & _OVERFLOW != 0)
    # Between the largest number and half way to the next there is no overflow, but a flag.
    most = int(np.float32(number.max).view(np.uint32))
    over = over | (~nan & (exact > most))
    raised = theory.word(0, 32)
    for where, flag in (
        (under, BlockFlags.SCALE_UNDERFLOW), (over, BlockFlags.SCALE_OVERFLOW),
        (nan, BlockFlags.NAN),
    ):
        raised = choose(where, raised | int(flag), raised)
    goal = value & (flags.content == raised)
    return SolverClaim(theory, goal, [amax <= 0x7FFFFFFF, exact <= 0x7FFFFFFF])


def _check_digits(block: Block, point: Point) -> Finding:
    numbers = (np.array([point[name]], np.uint32) for name in ("amax", "exact"))
    amax, exact = (number.view(np.float32) for number in numbers)
    _, stored, flags = scales._digits(block, amax, exact)
    number = scales._number(block)
    bad = np.isnan(exact[0]) or (block.infinite == "nan" and np.isinf(amax[0]))
    code = digits(math.nan if bad else float(exact[0]), number)
    raised = int(BlockFlags.NAN) if bad else int(
        (code == 0 and amax[0] != 0) * BlockFlags.SCALE_UNDERFLOW
        | bool(exact[0] > number.max) * BlockFlags.SCALE_OVERFLOW
    )
    return Finding(f"code {int(stored[0]):#x} flags {int(flags[0]):#x}",
                   f"code {code:#x} flags {raised:#x}")


def _largest_of_two() -> SolverClaim:
    """A block of two vectors; the lanes of a vector are one after the other's in the end."""
    theory = Theory()
    so_far, x = theory.variable("so_far", 32), theory.variable("x", 32)
    builder = TermBuilder(theory)
    places = {0: so_far, 16: x}
    names = dict(vars(largest)) | {
        "load": lambda _, at: builder.bits(places[at]), "pointer": lambda codes: codes,
        "max_lanes": lambda top: top,
    }
    tops: list[Any] = [None]
    FunctionType(largest.largest_of_blocks.py_func.__code__, names)(None, tops, 0, 1, 32)
    top = builder.word(tops[0])
    a, b = so_far & 0x7FFFFFFF, x & 0x7FFFFFFF
    either_nan = (a > _INFINITY) | (b > _INFINITY)
    first, second = (magnitude_of(v) for v in (a, b))
    number = magnitude_of(top).units == choose(
        first.units > second.units, first.units, second.units
    )
    exact = (top == a) | (top == b)
    goal = exact & choose(either_nan, top > _INFINITY, number | (top == _INFINITY))
    goal = goal & ((a == _INFINITY) | (b == _INFINITY)).implies(top >= _INFINITY)
    return SolverClaim(theory, goal)


def _check_largest(point: Point) -> Finding:
    codes = np.zeros(32, np.uint32)
    codes[3], codes[16 + 5] = point["so_far"], point["x"]
    tops = np.zeros(1, np.uint32)
    largest.largest_of_blocks(codes, tops, 0, 1, 32)
    magnitudes = np.abs(codes.view(np.float32))
    expected_bits = int(np.max(codes & 0x7FFFFFFF)) if np.isnan(magnitudes).any() else int(
        magnitudes.max().view(np.uint32)
    )
    return Finding(f"{int(tops[0]):#x}", f"{expected_bits:#x}")


# Theorems -------------------------------------------------------------------------------------


def _theorem(
    kind: str, name: str, statement: str, claim: Callable[[], SolverClaim],
    check: Callable[[Point], Finding], contracts: tuple[str, ...] = (), quick: bool = False,
) -> Theorem:
    return Theorem(name, kind, statement, claim, check, contracts, quick, _ABOUT[kind])


def _of_elements() -> Iterator[Theorem]:
    """Of formats that the loop takes; those with one zero go another way."""
    named: dict[Format, Block] = {}
    for block in BLOCKS.values():
        named.setdefault(block.element, block)
    for block in named.values():
        for rounding in (RNE, SR(8), SR(16)):
            if not elements._is_fast(elements.element_settings(block, rounding)):
                continue
            mode = repr(rounding).replace("bits=", "")
            yield _theorem(
                "block elements", f"elements {block.name} {mode}",
                f"elements of {block.element} are the product rounded once, saturated, with flags",
                partial(_elements, block, rounding), partial(_check_element, block, rounding),
                ("IEEE product",), quick=(block.name, rounding) == ("mxfp4", SR(8)),
            )


def _of_scales() -> Iterator[Theorem]:
    done = set()
    rules = [rule for rule in SCALE_RULES.values() if rule.scales == "power"]
    for block in BLOCKS.values():
        if block.headroom != 1 or block.scale is not BLOCKS["mxfp8"].scale:
            continue
        for rule in rules:
            key = block.element, rule.name
            if key in done:
                continue
            done.add(key)
            other = Block(f"{block.name}.{rule.name}", block.element, block.scale, block.shape,
                          rule.name, infinite=block.infinite)
            yield _theorem(
                "block scales", f"scale {block.name} {rule.name}",
                f"the scale of {block.element} by {rule.name}: {rule.meaning}",
                partial(_power_scale, other), partial(_check_scale, other),
                quick=key[1] == "floor" and block.name == "mxfp8",
            )


def theorems() -> Iterator[Theorem]:
    """Elements of every format of blocks, every rule of powers of two, the largest magnitude."""
    yield from _of_elements()
    yield from _of_scales()
    for name in ("nvfp4", "nvfp4-ue5m3"):
        block = BLOCKS[name]
        yield _theorem(
            "block scales with digits", f"scale {name} digits",
            f"any number becomes a {block.scale} scale to nearest even, saturated, with its flags",
            partial(_digits_scale, block), partial(_check_digits, block), quick=name == "nvfp4",
        )
    yield _theorem(
        "block magnitude", "largest magnitude of a block",
        "of the magnitude so far and the next one the larger, and NaN above all",
        _largest_of_two, _check_largest, quick=True,
    )
