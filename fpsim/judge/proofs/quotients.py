"""Scales that are quotients: factors in binary32, and scales relative to one of the tensor.

The functions of numpy's arrays are run on terms, each way through their branches, for any largest
magnitude of a block and of the tensor. Taken for granted: the processor's products and quotients
are functions of their operands (IEEE 754's operations), so the theorem says of what they are taken
and what becomes of them. Where a factor is taken down to a power of two, magnitudes say which one.

Source    docs/semantics.md §3 (blocks); `fpsim.records.blocks` names that of each rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from fpsim.elementwise.blocks import quantise, scales
from fpsim.judge.oracle.blocks import block_scale, digit_scale
from fpsim.judge.oracle.blocks import of_tensor as factor_of_tensor
from fpsim.judge.proofs.numpy_terms import ArrayElement, functions_of, ways_of
from fpsim.judge.proofs.specification import magnitude_of
from fpsim.judge.proofs.terms import Real, Theory, Truth, Word, both, choose
from fpsim.judge.proofs.theorem import Finding, Point, SolverClaim, Theorem
from fpsim.records.blocks import BLOCKS, Block, BlockFlags
from fpsim.records.formats import BINARY32

__all__ = ["theorems"]

_INFINITY, _LARGEST = 0x7F800000, 0x7F7FFFFF

#: A magnitude as others are: 4.6.
_USUAL = 0x40933333

#: Scales that make 6, and 4, the code of the largest magnitude: what is more than 6's.
_CHOICES = (1.0, 1.5)

_ABOUT = {
    "block factors": "binary32 factors and scales of a rule, with flags, for any largest magnitude",
    "block scales by the tensor": "the scale of a tensor, and a block's by it, for any magnitudes",
    "block choice": "of two scales the one with the smaller error, the first where they are equal",
}


def _number(theory: Theory, value: float) -> Real:
    return theory.real(theory.word(int(np.float32(value).view(np.uint32)), 32))


def _magnitude(theory: Theory, name: str) -> tuple[Word, Truth]:
    """A largest magnitude: a number without sign, infinity, or the canonical NaN."""
    code = theory.variable(name, 32)
    return code, (code <= _INFINITY) | (code == 0x7FC00000)


def _is(element: Any, expected: Real) -> Truth:
    """Whether an element, or a number, is this one."""
    is_element = isinstance(element, ArrayElement)
    content: Any = element.content if is_element else _number(expected.theory, float(element))
    truth: Truth = content.same(expected)
    return truth


def _flags_of(*raised: tuple[Truth, BlockFlags]) -> Word:
    theory = raised[0][0].theory
    flags = theory.word(0, 32)
    for where, flag in raised:
        flags = choose(where, flags | int(flag), flags)
    return flags


# Factors --------------------------------------------------------------------------------------


def _quotient(block: Block, amax: Word) -> Real:
    """max over the largest magnitude, before it is taken down to a power of two."""
    theory, real, rule = amax.theory, amax.theory.real(amax), block.scale_rule
    if rule == "clamped":
        least = _number(theory, 1e-4)
        stored = least.or_else(real.compared("<", least), real).divided(
            _number(theory, block.element.max)
        )
        return _number(theory, 1).divided(stored)
    if rule.startswith("wide"):
        wide = real.converted(64)
        bits = (np.float64(x).view(np.uint64) for x in (1e-12, block.element.max))
        least, top = (theory.real(theory.word(int(b), 64)) for b in bits)
        return top.divided(least.or_else(wide.compared("<", least), wide)).converted(32)
    quotient = _number(theory, block.element.max).divided(real)
    largest = theory.real(theory.word(_LARGEST, 32))
    held = largest.or_else(largest.compared("<", quotient), quotient)
    return _number(theory, 1).or_else((amax == 0) | (amax >= _INFINITY), held)


def _is_power_below(code: Word, quotient: Word) -> Truth:
    """Whether a code is the largest power of two no larger; zero where there is no normal one."""
    power, number = magnitude_of(code).units, magnitude_of(quotient).units
    smallest = number.theory.word(1 << 23, number.width)  # 2**-126 in units of 2**-149
    within = (power <= number) & (number < power << 1) & (power & (power - 1) == 0)
    finite = choose(number < smallest, code == 0, within)
    return choose(quotient < _INFINITY, finite, choose(
        quotient == _INFINITY, code == _INFINITY, code > _INFINITY
    ))


def _factor(block: Block) -> SolverClaim:
    theory = Theory(granted=True)
    amax, premise = _magnitude(theory, "amax")
    names = functions_of(scales, theory)
    result = names["_scales_of"](block, ArrayElement(theory.real(amax)), np.float32(0))
    factor, quotient = result.factors, _quotient(block, amax)
    if block.scale_rule.endswith("_down"):
        goal = _is_power_below(factor.content.bits, quotient.bits)
    else:
        goal = _is(factor, quotient)
    stored = _number(theory, 1).divided(factor.content)
    if block.scale_rule == "clamped":  # the scale is the quotient, and the factor follows it
        least = _number(theory, 1e-4)
        real = theory.real(amax)
        stored = least.or_else(real.compared("<", least), real).divided(
            _number(theory, block.element.max)
        )
    largest = theory.real(theory.word(_LARGEST, 32))
    flags = _flags_of(
        (factor.content.same(largest) & (amax != 0), BlockFlags.SCALE_UNDERFLOW),
        (amax == _INFINITY, BlockFlags.SCALE_OVERFLOW), (amax > _INFINITY, BlockFlags.NAN),
    )
    goal = goal & _is(result.stored, stored) & (result.flags.content == flags)
    return SolverClaim(theory, goal, [premise])


def _float(code: int) -> float:
    return float(np.uint32(code).view(np.float32))


def _shown(stored: Any, factor: Any, flags: int | None = None) -> str:
    told = "" if flags is None else f" flags {flags:#x}"
    return f"stored {float(stored)!r} factor {float(factor)!r}{told}"


def _check_factor(block: Block, point: Point) -> Finding:
    value = _float(point["amax"])
    got = scales.scales_of(block, np.array([value], np.float32), np.float32(0))
    with np.errstate(all="ignore"):
        stored, factor = block_scale([value], block, 1.0)
    flags = (
        BlockFlags.NAN if math.isnan(value) else BlockFlags.SCALE_OVERFLOW if math.isinf(value)
        else BlockFlags.SCALE_UNDERFLOW if factor == _float(_LARGEST) and value else 0
    )
    return Finding(
        _shown(got.stored[0], got.factors[0], int(got.flags[0])),
        _shown(stored, factor, int(flags)),
    )


# Scales relative to one of the tensor ---------------------------------------------------------


class _Converted(NamedTuple):
    """What stands for a conversion of a scale: what it is given, and what it gives."""

    exact: list[Real]
    scale: Word


def _functions(theory: Theory) -> tuple[dict[str, Any], _Converted]:
    """The functions of scales; a conversion may give any scale, and NaN of NaN."""
    done = _Converted([], theory.unnamed(32))

    def converted(_: str, operands: tuple[ArrayElement], *__: Any, **___: Any) -> Any:
        content = operands[0].content
        assert isinstance(content, Real)
        done.exact.append(content)
        return ArrayElement(theory.real(done.scale)), 0

    return functions_of(scales, theory, apply=converted, to_codes=lambda x, _: x), done


def _tensor_factor(block: Block) -> SolverClaim:
    """S, by which a tensor is multiplied first."""
    theory = Theory(granted=True)
    tensor, premise = _magnitude(theory, "tensor")
    names = functions_of(scales, theory)
    goals = []
    expected = _of_tensor(block, tensor)
    for taken, result in ways_of(
        lambda: names["tensor_factor"](block, ArrayElement(theory.real(tensor))), theory
    ):
        goals.append(taken.implies(_is(result, expected)))
    return SolverClaim(theory, both(goals), [premise])


def _of_tensor(block: Block, tensor: Word) -> Real:
    theory = tensor.theory
    one, largest = _number(theory, 1), theory.real(theory.word(_LARGEST, 32))
    if block.tensor_scale is None:
        return one
    quotient = _number(theory, block.element.max * block.bound).divided(theory.real(tensor))
    held = largest.or_else(largest.compared("<", quotient), quotient)
    # No number is so large that its quotient would underflow to zero.
    theory.definitions.append((tensor >= _INFINITY) | (quotient.bits != 0))
    return one.or_else((tensor == 0) | (tensor == _INFINITY), held)


def _exact_scale(
    block: Block, amax: Real, tensor: Word, more: float
) -> tuple[Real, Real, Real | None]:
    """The number that becomes the scale, what a scale is multiplied by, and g of the eps rule."""
    theory = tensor.theory
    one, top = _number(theory, 1), _number(theory, block.element.max)
    if block.scale_rule == "two_level_eps":
        g = one
        if block.tensor_scale is not None:
            bound = _number(theory, block.element.max * block.bound)
            g = one.or_else(tensor == 0, theory.real(tensor).divided(bound))
        return amax.divided(top).divided(g), one, g
    s = _of_tensor(block, tensor)
    reciprocal = float(np.float32(1) / np.float32(block.element.max))
    exact = amax.times(s.times(_number(theory, reciprocal)))
    return (exact.times(_number(theory, more)) if more != 1 else exact), s, None


def _two_level(block: Block, more: float) -> SolverClaim:
    """What is converted to a scale, and the factor that follows from the scale."""
    theory = Theory(granted=True)
    amax, fits = _magnitude(theory, "amax")
    tensor, fits_tensor = _magnitude(theory, "tensor")
    names, done = _functions(theory)
    of_all = ArrayElement(theory.real(tensor))
    goals = []

    def run() -> scales.Scales:
        done.exact.clear()
        element = ArrayElement(theory.real(amax))
        if not block.scale_rule.endswith("46"):
            result: scales.Scales = names["_scales_of"](block, element, of_all)
            return result
        choices: list[scales.Scales] = names["alternatives"](block, element, of_all)
        return choices[_CHOICES.index(more)]

    for taken, result in ways_of(run, theory):
        goals.append(taken.implies(_follows(block, amax, tensor, more, done, result)))
    # A NaN becomes one, and so does an infinite block where the rule says so.
    premises = [fits, fits_tensor, done.scale <= _INFINITY]
    usual = (amax == _USUAL) & (tensor == _USUAL)
    return SolverClaim(theory, both(goals), premises, usual)


def _follows(
    block: Block, amax: Word, tensor: Word, more: float, done: _Converted, result: Any
) -> Truth:
    theory = amax.theory
    largest_block = theory.real(amax)
    if block.headroom != 1 or block.scale_rule.endswith("46"):
        largest_block = largest_block.times(_number(theory, block.headroom))
    exact, s, g = _exact_scale(block, largest_block, tensor, more)
    smallest = _number(theory, scales._number(block).smallest_normal)
    limit = _number(theory, scales._number(block).max + 1)
    asked = exact
    if g is not None:
        asked = smallest.or_else(exact.compared("<", smallest), exact)
    asked = limit.or_else(limit.compared("<", asked), asked)
    nan = largest_block.is_nan | exact.is_nan
    if block.infinite == "nan":
        nan = nan | ((largest_block.bits & 0x7FFFFFFF) == _INFINITY)
    scale = theory.real(choose(nan, theory.word(0x7FC00000, 32), done.scale))
    one = _number(theory, 1)
    if g is None:
        factor = one.divided(scale.times(one.divided(s)))
        largest = theory.real(theory.word(_LARGEST, 32))
        factor = largest.or_else(largest.compared("<", factor), factor)
    else:
        factor = one.divided(g).divided(scale)
    if block.shrink != 1:
        factor = factor.times(_number(theory, block.shrink))
    is_asked = nan | done.exact[_CHOICES.index(more)].same(asked)
    return is_asked & _is(result.factors, factor) & _is(result.stored, scale)


def _check_two_level(block: Block, more: float, point: Point) -> Finding:
    value, tensor = (_float(point[name]) for name in ("amax", "tensor"))
    of_all, largest = np.float32(tensor), np.array([value], np.float32)
    stored: int | float
    with np.errstate(all="ignore"):
        if block.scale_rule.endswith("46"):
            got = scales.alternatives(block, largest, of_all)[_CHOICES.index(more)]
            stored, factor = digit_scale(float(np.float32(value) * np.float32(block.headroom)),
                                         tensor, block, more)
        else:
            got = scales.scales_of(block, largest, of_all)
            stored, factor = block_scale([value], block, tensor)
    return Finding(_shown(got.stored[0], got.factors[0]), _shown(stored, factor))


def _check_tensor(block: Block, point: Point) -> Finding:
    value = _float(point["tensor"])
    return Finding(
        repr(float(scales.tensor_factor(block, np.float32(value)))),
        repr(factor_of_tensor(block, value)),
    )


# The choice between two scales ----------------------------------------------------------------


def _chosen(
    choices: list[scales.Scales], errors: list[Any], names: dict[str, Any]
) -> scales.Scales:
    """What the function chooses of two scales whose errors are these."""
    left, grid = list(errors), SimpleNamespace(tall=1, across=1, whole=16)
    names |= {
        "alternatives": lambda *_: choices, "tensor_factor": lambda *_: np.float32(1),
        "_error": lambda *_: left.pop(0),
    }
    text = quantise._smaller_error
    function = FunctionType(text.__code__, names, "_smaller_error")
    result: scales.Scales = function(
        None, BLOCKS["nvfp4-46"], None, np.float32(1), grid, lambda _: SimpleNamespace(codes=None)
    )
    return result


def _choice() -> SolverClaim:
    """The second one where its error is smaller, else (a NaN, too) the first."""
    theory = Theory()
    errors = [theory.variable(name, 32) for name in ("first", "second")]
    either: Any = [
        [ArrayElement(theory.real(theory.unnamed(32))) for _ in range(3)] for _ in range(2)
    ]
    choices = [scales.Scales(*parts) for parts in either]
    elements = [ArrayElement(theory.real(error)) for error in errors]
    result = _chosen(choices, elements, functions_of(quantise, theory))
    # An infinite one counts as 2**128, more than any number.
    first, second = (magnitude_of(error).units for error in errors)
    better = (second < first) & both([error <= _INFINITY for error in errors])
    picked: Any = result
    goal = both([
        choose(better, mine.content.same(b.content), mine.content.same(a.content))
        for mine, a, b in zip(picked, *either, strict=True)
    ])
    return SolverClaim(theory, goal, [error < 0x80000000 for error in errors])  # sums of magnitudes


def _check_choice(point: Point) -> Finding:
    """The function on numbers: scale, factor and flags say which of the two they are of."""
    errors = [np.array([_float(point[name])], np.float32) for name in ("first", "second")]
    choices = [scales.Scales(*(np.array([i]) for _ in range(3))) for i in range(2)]
    result = _chosen(choices, errors, dict(vars(quantise)))
    better = int(_float(point["second"]) < _float(point["first"]))
    return Finding(str([int(part[0]) for part in result]), str([better] * 3))


# Theorems -------------------------------------------------------------------------------------


def _named(kind: str, name: str, statement: str, claim: Any, check: Any) -> Theorem:
    quick = name in ("factor amax_down e4m3fn", "two levels nvfp4", "choice of 4 or 6")
    contracts = () if kind == "block choice" else ("IEEE product", "IEEE quotient")
    return Theorem(name, kind, statement, claim, check, contracts, quick, _ABOUT[kind])


def theorems() -> Iterator[Theorem]:
    """Rules of binary32 factors by element, two levels by block, the choice of 4 or 6."""
    elements = {block.element: block for block in BLOCKS.values()}
    for rule in ("amax", "amax_down", "clamped", "wide", "wide_down"):
        for element in elements:
            block = replace(BLOCKS["mxfp8"], name=f"{element}.{rule}", element=element,
                            scale=BINARY32, scale_rule=rule, infinite="saturate")
            yield _named(
                "block factors", f"factor {rule} {element}", f"{rule} of {element}, with flags",
                partial(_factor, block), partial(_check_factor, block),
            )
    kind = "block scales by the tensor"
    for name in ("nvfp4", "nvfp4-46", "nvfp4-eps", "nvfp4-ue5m3", "nvfp4-1617"):
        block = BLOCKS[name]
        if block.tensor_scale is not None and block.scale_rule != "two_level_eps":
            yield _named(kind, f"tensor factor {name}", "the factor of a tensor",
                         partial(_tensor_factor, block), partial(_check_tensor, block))
        for more in _CHOICES if block.scale_rule.endswith("46") else (1.0,):
            of = f"two levels {name}" + (" of 4" if more != 1 else "")
            yield _named(
                kind, of, "what becomes the scale, and the factor by it",
                partial(_two_level, block, more), partial(_check_two_level, block, more),
            )
    yield _named("block choice", "choice of 4 or 6", "the smaller error decides", _choice,
                 _check_choice)
