"""Elementary functions, correctly rounded into the format of their argument, in every mode.

A value is first rounded to odd at 53 digits; that decides every later rounding. It comes from an
enclosure in binary64 (`enclosures`) unless a place where some rounding changes its mind lies inside
that enclosure: then from as many digits as it takes (`hard_cases`).

Rounding  once, in the argument's context; a stochastic one with the digits it asks for.
Flags     INVALID where the function is not defined, DIVBYZERO at a pole, which has the value that
          x / 0 has in the context; the rest from the rounding.
Source    IEEE 754-2019 §9.2; Ziv, ACM TOMS 17 (1991); Boldo & Melquiond 2008 (round to odd).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise import hard_cases
from fpsim.elementwise.apply import apply, as_read
from fpsim.elementwise.code_tables import CodeTable, all_values, has_index, tabulate
from fpsim.elementwise.compare import is_signalling
from fpsim.elementwise.enclosures import FUNCTIONS, table_of
from fpsim.kernels.elementwise.enclosures import (
    COMPILED,
    IN_DOUBT,
    NOT_ORDINARY,
    rounding_kernel,
)
from fpsim.records.flags import Flags
from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.draws import NO_DRAW, Draw
from fpsim.state.memory import flat_in_memory
from fpsim.state.processor import usual_arithmetic
from fpsim.state.publish import check_out, fold
from fpsim.state.threads import run_blocks

__all__ = ["FunctionSteps", "evaluate", "function_steps"]

Wide = NDArray[np.float64]

#: Elements from which on a table is made, which takes as long as eight calls of so many.
_LEAST = 1 << 13
#: Tables kept, of 2.6 and 4.7 MB at most.
_MOST_TABLES = 24

#: Elements for which a second thread is worth its cost.
_SMALLEST = 1 << 14

#: Elements worked on at a time: their intermediate results stay in the cache.
_BLOCK = 1 << 13


@dataclass(frozen=True)
class _Edges:
    """Where a function has values that no enclosure gives.

    infinities  values at -infinity and +infinity.
    odd         its value at ±0 is that zero; enclosures lose its sign.
    end         where the function ends below, in a pole.
    pole        what over a zero the pole is: "-1/|0|" or "1/0"; "" where there is none.
    """

    infinities: tuple[float, float]
    odd: bool = False
    end: float = -np.inf
    pole: str = ""


_EDGES = {
    "exp": _Edges((0.0, np.inf)),
    "expm1": _Edges((-1.0, np.inf), odd=True),
    "log": _Edges((np.nan, np.inf), end=0.0, pole="-1/|0|"),
    "log1p": _Edges((np.nan, np.inf), odd=True, end=-1.0, pole="-1/|0|"),
    "sinh": _Edges((-np.inf, np.inf), odd=True),
    "cosh": _Edges((np.inf, np.inf)),
    "tanh": _Edges((-1.0, 1.0), odd=True),
    "sigmoid": _Edges((0.0, 1.0)),
    "rsqrt": _Edges((np.nan, 0.0), end=0.0, pole="1/0"),
    "erf": _Edges((-1.0, 1.0), odd=True),
    "sin": _Edges((np.nan, np.nan), odd=True),
    "cos": _Edges((np.nan, np.nan)),
}


# Values ---------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def _wide(name: str, x: Carrier, settings: Settings) -> tuple[Wide, bool]:
    """Values of which every rounding these settings know is that of f(x); if all are ordinary."""
    if name in COMPILED and settings.format.has_negative_zero:
        return _by_kernel(name, x, settings)
    flat, result, plain = as_read(x, settings).reshape(-1), np.empty(x.size), True
    for start in range(0, x.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        result[part], ordinary = _block(name, flat[part].astype(np.float64), settings)
        plain = plain and ordinary
    return result.reshape(x.shape), plain


def _by_kernel(name: str, x: Carrier, settings: Settings) -> tuple[Wide, bool]:
    """The same of a compiled function, which flushes what it reads."""
    edges, (loop, *numbers) = _EDGES[name], _kernel_of(name, settings)
    flat, result = flat_in_memory(x), np.empty(x.size)
    doubts = np.empty(x.size, np.uint8)

    def work(a: int, b: int) -> int:
        events: int = loop(flat[a:b], result[a:b], doubts[a:b], *numbers)
        return events

    events = run_blocks(work, 0, x.size, _SMALLEST, 8)
    if events & IN_DOUBT:
        read = as_read(flat, settings)
        for index in doubts.nonzero()[0]:
            result[index] = hard_cases.to_odd(name, float(read[index]))
    if events & NOT_ORDINARY:
        wide = as_read(flat, settings).astype(np.float64)
        others = ~_is_ordinary(edges, wide)
        result[others] = _special(edges, wide[others], _nan(settings))
    return result.reshape(x.shape), not events & NOT_ORDINARY


class FunctionKernel(NamedTuple):
    """The kernel of a function to odd, and what it is given after its arrays."""

    loop: Any
    half: np.uint64
    mask: np.uint64
    least: float
    end: float
    table: Wide


def _kernel_of(name: str, settings: Settings) -> FunctionKernel:
    step = 1 << _free_digits(settings)
    least = settings.format.smallest_normal if settings.subnormals == "flush_both" else 0.0
    return FunctionKernel(
        rounding_kernel(name), np.uint64(step // 2), ~np.uint64(step - 1), least, _EDGES[name].end,
        table_of(name),
    )


class FunctionSteps(NamedTuple):
    """A function as a kernel and the conversion of what it gives, for numbers without a NaN.

    infinities   values at -infinity and +infinity; NaN where they are not defined.
    is_odd       its value at ±0 is that zero.
    table        of results, or of what is converted: where there is one, it is read.
    """

    kernel: FunctionKernel
    conversion: Settings
    infinities: tuple[float, float]
    is_odd: bool
    table: CodeTable | None


def function_steps(name: str, settings: Settings) -> FunctionSteps | None:
    """How `evaluate` computes a function; None where it does so in another way.

    >>> from fpsim.records.formats import BINARY32
    >>> function_steps("exp", Settings(BINARY32)).infinities
    (0.0, inf)
    """
    if name not in COMPILED or not settings.format.has_negative_zero:
        return None
    edges, settings = _EDGES[name], _keeping_infinities(settings)
    table = settings.calls.get((name, -1, 0, not settings.rounding.stochastic))
    return FunctionSteps(_kernel_of(name, settings), settings, edges.infinities, edges.odd, table)


def _nan(settings: Settings) -> float:
    return -np.nan if settings.nan == "x86" else np.nan


def _block(name: str, x: Wide, settings: Settings) -> tuple[Wide, bool]:
    edges = _EDGES[name]
    ordinary = _is_ordinary(edges, x)
    if ordinary.all():
        return _ordinary(name, x, settings), True
    values = _special(edges, x, _nan(settings))
    values[ordinary] = _ordinary(name, x[ordinary], settings)
    return values, False


def _is_ordinary(edges: _Edges, x: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Where the enclosures give the value."""
    ordinary: NDArray[np.bool_] = np.isfinite(x) & (x > edges.end)
    if edges.odd:
        ordinary &= x != 0
    return ordinary


def _special(edges: _Edges, x: Wide, nan: float) -> Wide:
    """Values at infinities, at zeros and for NaN; `nan` stands outside the domain."""
    low, high = (nan if v != v else v for v in edges.infinities)
    values = np.where(x == np.inf, high, np.where(x == -np.inf, low, x))
    return np.where(x < edges.end, nan, values)


def _ordinary(name: str, x: Wide, settings: Settings) -> Wide:
    high, low, error = FUNCTIONS[name](x)
    nearest = high + low
    rest = (high - nearest) + low
    bits = nearest.view(np.int64)
    # Places where a rounding changes its mind are multiples of this many last digits.
    step = 1 << _free_digits(settings)
    place = ((bits + step // 2) & -step).view(np.float64)
    values = _to_odd(nearest, bits, rest)
    for index in (np.abs((nearest - place) + rest) < error).nonzero()[0]:
        values[index] = hard_cases.to_odd(name, float(x[index]))
    return values


def _free_digits(settings: Settings) -> int:
    """Of 53 digits, those behind the last that a rounding looks at: midpoints, or residuals."""
    return 53 - (settings.format.precision + 1 + settings.random_most)


def _to_odd(nearest: Wide, bits: NDArray[np.int64], rest: Wide) -> Wide:
    """nearest + rest rounded to odd: toward zero, then the last digit set where inexact."""
    inexact = rest != 0
    beyond = inexact & (np.signbit(rest) != np.signbit(nearest))
    odd: Wide = ((bits - beyond) | inexact).view(np.float64)
    return odd


# Flags ----------------------------------------------------------------------------------------


@usual_arithmetic
def evaluate(
    name: str,
    operands: Sequence[Carrier],
    settings: Settings,
    *,
    out: Carrier | None = None,
    element_flags: ElementFlags | None = None,
    bits: Draw = NO_DRAW,
) -> tuple[Carrier, int]:
    """One of `FUNCTIONS` of the only operand: values and flags, with the arguments of `apply`.

    Shapes    the result, `element_flags` and the words of `bits` (flat) as the operand.

    >>> from fpsim.records.formats import BINARY16
    >>> evaluate("exp", [np.float32([0.0, 1.0])], Settings(BINARY16))
    (array([1.      , 2.71875], dtype=float32), 1)
    """
    settings = _keeping_infinities(settings)
    x = operands[0]
    table = None if settings.rounding.stochastic else _table_of(_results, name, x, settings)
    if table is None:
        return _computed(name, x, settings, out, element_flags, bits)
    if out is None:
        out = np.empty(x.shape, x.dtype)
    else:
        check_out(out, x.shape, settings.format.carrier, operands)
    return out, table.read(np.ascontiguousarray(x), out, element_flags)


def _computed(
    name: str, x: Carrier, settings: Settings, out: Carrier | None = None,
    element_flags: ElementFlags | None = None, bits: Draw = NO_DRAW,
) -> tuple[Carrier, int]:
    """Values and flags without a table of results."""
    wide, plain = _wide_or_read(name, x, settings)
    values, flags = apply(
        "convert", [wide], settings, out=out, element_flags=element_flags, bits=bits
    )
    if plain:
        return values, flags
    edges, x = _EDGES[name], as_read(x, settings)
    poles = x == edges.end
    if edges.pole and poles.any():
        values[poles] = _poles(edges, x[poles], settings)
    own_flags = _own_flags(edges, x)
    if own_flags.any():
        flags |= fold(own_flags)
        if element_flags is not None:
            element_flags |= own_flags
    return values, flags


# Tables -----------------------------------------------------------------------------------------


def _table_of(
    make: Callable[[str, Settings], CodeTable], name: str, x: Carrier, settings: Settings
) -> CodeTable | None:
    """The table of a function, made when it pays; None where there is none."""
    if not has_index(settings.format) or x.dtype != np.float32:
        return None
    key = (name, -1, 0, make is _results)
    table: CodeTable | None = settings.calls.get(key)
    if table is None and x.size >= _LEAST:
        table = settings.calls[key] = make(name, settings)
    return table


@lru_cache(maxsize=_MOST_TABLES)
def _results(name: str, settings: Settings) -> CodeTable:
    """Results and flags of all codes."""
    x = all_values(settings.format)
    flags = np.zeros(x.shape, np.uint8)
    values, _ = _computed(name, x, settings, element_flags=flags)
    return tabulate(settings.format, values, flags)


@lru_cache(maxsize=_MOST_TABLES)
def _wide_values(name: str, settings: Settings) -> CodeTable:
    """Values of all codes as `_wide` gives them, marked where they are not ordinary."""
    x = all_values(settings.format)
    wide, _ = _wide(name, x, settings)
    return tabulate(settings.format, wide, ~_is_ordinary(_EDGES[name], x) * np.uint8(1))


def _wide_or_read(name: str, x: Carrier, settings: Settings) -> tuple[Wide, bool]:
    """`_wide`, read from a table where there is one for stochastic rounding."""
    table = _table_of(_wide_values, name, x, settings) if settings.rounding.stochastic else None
    if table is None:
        return _wide(name, x, settings)
    wide = np.empty(x.shape)
    return wide, not table.read(np.ascontiguousarray(x), wide)


def _keeping_infinities(settings: Settings) -> Settings:
    """What becomes of an infinite operand of a conversion is no matter of a function's value."""
    if not settings.format.has_infinity:
        return settings
    key = ("keeping infinities", 0, 0, False)
    others: Settings | None = settings.calls.get(key)
    if others is None:
        others = settings.calls[key] = settings.replace(infinite_input="keep")
    return others


def _own_flags(edges: _Edges, x: Carrier) -> ElementFlags:
    """Flags that no rounding raises."""
    invalid = is_signalling(x) | (x < edges.end)
    if np.isnan(edges.infinities[1]):
        invalid |= np.isinf(x)
    flags = invalid * np.uint8(Flags.INVALID)
    if edges.pole:
        flags |= (x == edges.end) * np.uint8(Flags.DIVBYZERO)
    return flags


def _poles(edges: _Edges, zeros: Carrier, settings: Settings) -> Carrier:
    above, below = (-1, np.zeros_like(zeros)) if edges.pole == "-1/|0|" else (1, zeros)
    plain = settings.replace(rounding=RNE, subnormals="keep")
    values, _ = apply("divide", [np.full_like(zeros, above), below], plain)
    return values
