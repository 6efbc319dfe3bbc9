"""Conversions from every midpoint, value and edge of the short formats, in every mode (exhaustive).

Inputs are binary32 and binary64: each value and each midpoint, one unit of the input above and
below them, midpoint * (1 +- 2**-40), the ends of the range, infinities and NaN payloads. The judge
is the definition on sorted arrays: the neighbour below, the exact part w above it, and the mode.
Quick tier: a stride of codes, fewer modes and policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge import oracle
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    E4M3,
    E4M3FN,
    E5M2,
    F143,
    F152,
    Format,
)
from fpsim.records.rounding import MODES, RNE, RTN, RTO, SR, SR_EQUAL, Rounding
from fpsim.records.settings import Settings
from fpsim.state.draws import Draw
from tests.fpsim.elementwise.test_apply import as_oracle, settings_of
from tests.tiers import pick

Doubles = NDArray[np.float64]
Truth = NDArray[np.bool_]

STOCHASTIC = [SR(1), SR(4), SR(7, "half"), SR(13, "even"), SR(13, subnormal_bits=16), SR()]
ROUNDINGS = pick([RNE, RTN, RTO, SR_EQUAL, SR(4), SR()], *[[*MODES.values(), *STOCHASTIC]] * 2)

#: Of binary64 in the quick tier, whose kernels are its own.
NEAREST: list[Rounding] = [RNE, SR(4)]

POLICIES: list[dict[str, Any]] = [
    {}, {"tininess": "before"}, {"overflow": "saturate"}, {"overflow": "nan"},
    {"subnormals": "flush_results"},
]
FORMATS = [BINARY16, BFLOAT16, E4M3FN, E4M3, E5M2, F143, F152]
INPUTS = {np.float32: BINARY32, np.float64: BINARY64}
INEXACT, UNDERFLOW, OVERFLOW = 1, 2, 4


@dataclass
class Grid:
    """Magnitudes of a format in order, and the one that would follow the largest."""

    fmt: Format
    values: Doubles

    @classmethod
    def of(cls, fmt: Format) -> Grid:
        codes = np.arange(oracle.encode(0, oracle.decode(largest(fmt), fmt).magnitude, fmt) + 1)
        values = from_codes(codes, fmt).astype(np.float64)
        return cls(fmt, np.append(values, 2 * values[-1] - values[-2]))


@lru_cache
def largest(fmt: Format) -> int:
    """Code of the largest finite number."""
    return max(c for c in range(fmt.n_codes // 2) if oracle.decode(c, fmt).kind == "finite")


def inputs(grid: Grid, dtype: Any, stride: int) -> Doubles:
    """The inputs of a type, as binary64."""
    subset = np.unique(np.append(np.arange(0, len(grid.values) - 1, stride), len(grid.values) - 2))
    centres = np.append(grid.values[subset], (grid.values[subset] + grid.values[subset + 1]) / 2)
    far = [grid.values[-1], 2 * grid.values[-1], float(np.finfo(dtype).max)]
    small = [float(np.finfo(dtype).smallest_subnormal), grid.values[1] / 4]
    with np.errstate(over="ignore"):  # what lies beyond the input type is dropped
        narrow = np.concatenate([centres, far, small]).astype(dtype)
        results = [narrow, *(np.nextafter(narrow, dtype(end)) for end in (0, np.inf))]
    if dtype is np.float64:
        results += [centres * (1 + 2.0**-40), centres * (1 - 2.0**-40)]
    x = np.concatenate(results)
    x = np.unique(x[np.isfinite(x)])
    return np.append(x, -x).astype(np.float64)


def steps_up(mode: Rounding, negative: Truth, odd: Any, w: Doubles, r: Any, R: Any) -> Truth:
    """Whether (m + w) q becomes (m + 1) q: the definition of docs/semantics.md §1."""
    if isinstance(mode, SR):
        scaled = np.ldexp(w, r)
        integral = np.floor(scaled)
        t = {
            "truncate": integral,
            "half": integral + (scaled - integral >= 0.5),
            "even": np.rint(scaled),
        }[mode.residual]
        return (w > 0) & (t + R >= np.ldexp(1.0, r))
    return (w > 0) & {
        "RNE": (w > 0.5) | ((w == 0.5) & odd),
        "RNA": w >= 0.5,
        "RNZ": w > 0.5,
        "RTZ": False,
        "RTP": ~negative,
        "RTN": negative,
        "RAZ": True,
        "RTO": ~odd,
        "SR_EQUAL": R == 1,
    }[mode.name]


class Located:
    """Inputs and where they lie on a grid: all that a mode asks of them."""

    def __init__(self, grid: Grid, x: Doubles) -> None:
        fmt, last = grid.fmt, len(grid.values) - 2
        self.x, self.negative = x, np.signbit(x)
        self.size = a = np.abs(x)
        self.last, self.beyond = last, a >= grid.values[-1]
        self.below = np.minimum(np.searchsorted(grid.values, a, "right") - 1, last)
        low, high = grid.values[self.below], grid.values[self.below + 1]
        # Differences of neighbours, and quotients by powers of two, are exact.
        self.w = np.minimum(a - low, high - low) / (high - low)
        #: Binades below the smallest normal.
        self.depth = np.maximum(fmt.emin - (np.frexp(np.where(a == 0, 1.0, a))[1] - 1), 0)
        # With unbounded exponent, the step below the smallest normal is half as large.
        normal = fmt.smallest_normal
        step = np.ldexp(normal, -fmt.precision)
        self.w_near = (np.clip(a, normal - step, normal) - (normal - step)) / step


def expected(at: Located, s: Settings, random: Any) -> tuple[Any, Any]:
    """Codes and flags of finite inputs."""
    fmt, mode, negative, w = s.format, s.rounding, at.negative, at.w
    r = np.minimum(s.random_bits + at.depth, s.random_most)
    R = random & ((1 << r) - 1)
    above = at.below + steps_up(mode, negative, at.below % 2 == 1, w, r, R)
    over = (above > at.last) | at.beyond
    tiny = at.size < fmt.smallest_normal
    if s.tininess == "after" and not mode.stochastic:
        tiny &= ~steps_up(mode, negative, np.True_, at.w_near, 0, 0)
    inexact = (w > 0) | over
    flags = inexact * INEXACT | over * (OVERFLOW | INEXACT) | (tiny & inexact) * UNDERFLOW
    body = np.where(over, 0, above)
    if s.subnormals != "keep":
        tiny &= at.size > 0
        body, flags = np.where(tiny, 0, body), np.where(tiny, UNDERFLOW | INEXACT, flags)
    code = body | negative.astype(np.int64) << (fmt.bits - 1)
    if not fmt.has_negative_zero:
        code = np.where(body == 0, 0, code)
    for sign in (0, 1):
        code = np.where(over & (negative == sign), beyond(s, sign), code)
    return code, flags


def beyond(s: Settings, sign: int) -> int:
    """Code of what an overflow gives."""
    inward = s.rounding.name in ("RTZ", "RTO", "RTN" if sign == 0 else "RTP")
    choice = "saturate" if inward else s.overflow
    fmt = s.format
    side = sign << (fmt.bits - 1)
    if choice == "nan":
        return oracle.canonical_nan(fmt)
    return side | (largest(fmt) if choice == "saturate" else largest(fmt) + 1)


@pytest.mark.parametrize("dtype", INPUTS, ids=lambda t: t.__name__)
@pytest.mark.parametrize("fmt", pick([BINARY16, E4M3FN], FORMATS, FORMATS), ids=str)
def test_every_midpoint_value_and_edge(fmt: Format, dtype: Any) -> None:
    grid = Grid.of(fmt)
    x = inputs(grid, dtype, pick(max(1, fmt.n_codes >> 10), 1, 1))
    at, rng = Located(grid, x), np.random.default_rng(1)
    for rounding in pick(ROUNDINGS if dtype is np.float32 else NEAREST, ROUNDINGS, ROUNDINGS):
        for policy in pick(POLICIES[:2], POLICIES, POLICIES):
            # Tininess is no matter of a stochastic mode.
            s = (
                None
                if rounding.stochastic and "tininess" in policy
                else settings_of(fmt, rounding, policy)
            )
            if s is not None:
                check(at, dtype, s, rng)


def check(at: Located, dtype: Any, s: Settings, rng: np.random.Generator) -> None:
    """Every input once; of a stochastic mode with R = 0, with R all ones, and with random R."""
    x, most = at.x, (1 << s.random_most) - 1
    for random in (
        [np.full(x.size, 0), np.full(x.size, most), rng.integers(0, most + 1, x.size)]
        if s.rounding.stochastic
        else [np.zeros(x.size, np.int64)]
    ):
        marks = np.zeros(x.size, np.uint8)
        words = random.astype(np.uint32) if s.rounding.stochastic else None
        got, _ = apply(
            "convert",
            (x.astype(dtype),),
            s,
            element_flags=marks,
            bits=Draw(np.uint64(0), np.uint64(0), words),
        )
        codes, flags = expected(at, s, random)
        wrong = (to_codes(got, s.format) != codes) | (marks != flags)
        assert not wrong.any(), (
            f"{wrong.sum()} of {x.size} in {s}: {x[wrong][0].hex()} gives {got[wrong][0]} "
            f"{marks[wrong][0]}, not {codes[wrong][0]:#x} {flags[wrong][0]}"
        )


@pytest.mark.parametrize("source", INPUTS.values(), ids=str)
@pytest.mark.parametrize("nan", ["canonical", "propagate_first", "x86"])
def test_infinities_and_nan_payloads(source: Format, nan: str) -> None:
    infinity = oracle.encode(0, oracle.decode(largest_code(source), source).magnitude, source) + 1
    quiet = 1 << (source.precision - 2)
    bodies = [0, 1, quiet >> 1, quiet - 1, quiet, quiet + 1, 2 * quiet - 1]
    bodies += [1 << k for k in range(source.precision - 1)]
    codes = [infinity + b | s << (source.bits - 1) for b in bodies for s in (0, 1)]
    x = from_codes(np.array(codes, source.code_dtype), source)
    for fmt in FORMATS:
        for infinite in ["saturate", *(["keep"] * fmt.has_infinity), *(["nan"] * fmt.has_nan)]:
            s = Settings(fmt, nan=nan, infinite_input=infinite)
            marks = np.zeros(len(codes), np.uint8)
            got, _ = apply("convert", (x,), s, element_flags=marks)
            wanted = [oracle.convert(c, source, fmt, as_oracle(s)) for c in codes]
            assert to_codes(got, fmt).tolist() == [code for code, _ in wanted]
            assert marks.tolist() == [int(flags) for _, flags in wanted]


def largest_code(fmt: Format) -> int:
    """Code of the largest finite number of an IEEE format."""
    return ((1 << fmt.exponent_bits) - 1 << (fmt.precision - 1)) - 1
