"""Operands of cases: formats and modes, hard codes, numbers near ends and ties, matrices.

They are the same whatever the thread has set in the processor, so that digests tell of results.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fpsim as fp
from fpsim import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    E4M3FN,
    E5M2,
    F143,
    F152,
    SR,
    SR_EQUAL,
    TF32,
    Array,
    Context,
    Format,
)
from fpsim.state.processor import usual_arithmetic

SEED = 1234
CUSTOM = Format.custom(6, 10)
FORMATS = {
    "binary16": BINARY16, "bfloat16": BFLOAT16, "binary32": BINARY32, "e4m3fn": E4M3FN,
    "e5m2": E5M2, "f143": F143, "f152": F152, "tf32": TF32, "custom": CUSTOM,
}
SR13, SR_IPU = SR(bits=13), SR(bits=13, subnormal_bits=16)
MODES: dict[str, Any] = {
    **{name: name for name in ("RNE", "RNA", "RNZ", "RTZ", "RTP", "RTN", "RAZ", "RTO")},
    "SR13": SR13, "SR13+16": SR_IPU, "SR_EQUAL": SR_EQUAL,
}
KINDS = ("ordinary", "wide", "special", "subnormal")

#: The last one shows what a unit cuts: large terms that cancel, and small ones.
UNIT_KINDS = (*KINDS, "cancelling")
Carrier = NDArray[Any]


@usual_arithmetic
def hard_codes(fmt: Format) -> NDArray[np.int64]:
    """Both zeros, subnormals, numbers around 1 and the largest one, infinities, NaN payloads."""
    hidden, half = 1 << fmt.nmant, 1 << (fmt.bits - 1)
    top = half - hidden
    centres = (0, hidden // 2, hidden, fmt.bias * hidden, (fmt.bias - 1) * hidden, top, half - 1)
    near = {(c + d) % half for c in centres for d in (-2, -1, 0, 1, 2)}
    near |= {(c * hidden + hidden // 2) % half for c in (fmt.bias, fmt.bias - 2, fmt.bias + 1)}
    near |= {(top + d) % half for d in (5 % hidden, hidden // 2 + 3 % hidden)}
    codes = np.array(sorted(near), np.int64)
    return np.concatenate([codes, codes + half])


@lru_cache(maxsize=64)
@usual_arithmetic
def operands(fmt: Format, count: int) -> list[tuple[Carrier, ...]]:
    """Groups of operands of an operation: hard codes, random codes, numbers of similar size."""
    rng = np.random.default_rng([SEED, count])
    hard = hard_codes(fmt)
    if count == 1:
        columns = [hard]
    elif count == 2:
        columns = [np.repeat(hard, hard.size), np.tile(hard, hard.size)]
    else:
        columns = [hard[rng.integers(0, hard.size, 3000)] for _ in range(count)]
    groups = list(zip(*(np.array_split(c, 8) for c in columns), strict=True))
    groups.append(tuple(rng.integers(0, fmt.n_codes, 1500) for _ in range(count)))
    groups.append(tuple(similar_codes(fmt, 1000, rng) for _ in range(count)))
    return [tuple(fp.decode(c, fmt) for c in group) for group in groups]


@lru_cache(maxsize=64)
@usual_arithmetic
def singles(fmt: Format, count: int) -> tuple[Carrier, ...]:
    """Some operands whose flags are looked at one by one."""
    rng = np.random.default_rng([SEED, count, 1])
    hard = hard_codes(fmt)
    return tuple(fp.decode(hard[rng.integers(0, hard.size, 40)], fmt) for _ in range(count))


@lru_cache(maxsize=16)
@usual_arithmetic
def edges(fmt: Format) -> Carrier:
    """binary64 at the ends of the format: where results become tiny, zero, and too large."""
    steps = np.array([0, 0.25, 0.5, 0.75, 1.0])
    nudges = np.concatenate([steps, steps[1:] - 2.0**-24, steps + 2.0**-24, -steps[1:]])
    ends = (0.0, fmt.smallest_subnormal, fmt.smallest_normal, fmt.max)
    values = np.concatenate([end + nudges * fmt.ulp(end) for end in ends])
    return np.concatenate([values, -values])


@usual_arithmetic
def similar_codes(fmt: Format, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Numbers of both signs from 1/4 to 4, whose last digits are often zero."""
    hidden, half = 1 << fmt.nmant, 1 << (fmt.bits - 1)
    codes = fmt.bias * hidden + rng.integers(-2 * hidden, 2 * hidden, n)
    codes &= ~((1 << rng.integers(0, fmt.nmant + 1, n)) - 1)
    return codes % half + half * rng.integers(0, 2, n)


@lru_cache(maxsize=16)
@usual_arithmetic
def reals(fmt: Format) -> Carrier:
    """binary64: ties and their neighbours, beyond the range, far below it, NaN payloads."""
    rng = np.random.default_rng([SEED, 64])
    held = fp.decode(hard_codes(fmt), fmt)
    held = held[np.isfinite(held)].astype(np.float64)
    unit = np.array([fmt.ulp(v) for v in held])
    steps = np.array([0, 0.25, 0.5, 0.5 - 2.0**-20, 0.5 + 2.0**-20, 0.75, 1, 1.5])
    ties = (held[:, None] + unit[:, None] * np.concatenate([steps, -steps])).reshape(-1)
    exponents = rng.integers(fmt.emin - fmt.precision - 3, fmt.emax + 3, 1500)
    spread = np.ldexp(rng.integers(-(2**40), 2**40, 1500) * 2.0**-39, exponents)
    nans = np.array([0x7FF8 << 48, 0x7FF0 << 48 | 1, 0xFFFC << 48 | 77 << 30], np.uint64)
    far = np.array([0.0, -0.0, np.inf, -np.inf, 1e-300, -1e300, 5e-324])
    return np.concatenate([ties, spread, far, nans.view(np.float64)])


@usual_arithmetic
def narrow(fmt: Format) -> list[Carrier]:
    """The same in binary32 and binary16."""
    with np.errstate(all="ignore"):
        return [reals(fmt).astype(np.float32), reals(fmt).astype(np.float16)]


@usual_arithmetic
def uniform(shape: tuple[int, ...], rng: np.random.Generator, scale: float = 1.0) -> Carrier:
    """Numbers from -4 to 4 times a power of two, from integers alone."""
    return rng.integers(-(2**24), 2**24, shape) * 2.0**-22 * scale


@usual_arithmetic
def matrix(fmt: Format, shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> Carrier:
    """Values of the format: of similar size, of many sizes, with specials, or subnormal."""
    if kind == "subnormal":
        codes = rng.integers(0, 2 << fmt.nmant, shape) + (rng.integers(0, 2, shape) << fmt.bits - 1)
        return fp.decode(codes, fmt)
    values = uniform(shape, rng)
    if kind == "wide":
        values = np.ldexp(values, rng.integers(fmt.emin // 2, fmt.emax // 2 + 1, shape))
    codes = np.asarray(fp.encode(values, fmt)).astype(np.int64)
    if kind == "special":
        hard = hard_codes(fmt)
        where = rng.integers(0, 12, shape) == 0
        codes = np.where(where, hard[rng.integers(0, hard.size, shape)], codes)
    return fp.decode(codes, fmt)


@usual_arithmetic
def factors(
    a: Format, b: Format, kind: str, left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[Array, Array]:
    """Two operands of a product; a subnormal one meets numbers large enough to be seen."""
    rng = np.random.default_rng([SEED, UNIT_KINDS.index(kind)])
    if kind == "cancelling":
        return cancelling(a, b, left, right, rng)
    x = matrix(a, left, kind, rng)
    if kind == "subnormal":
        y = fp.round_to(uniform(right, rng, 2.0 ** (b.emax // 2)), b)
    else:
        y = matrix(b, right, kind, rng)
    return Context(a).wrap(x), Context(b).wrap(y)


#: Positions along K whose terms cancel: in one call, in one pass, in different passes.
CANCELLING = ((0, 1), (4, 6), (9, 12), (15, 20), (22, 30), (33, 36))


@usual_arithmetic
def cancelling(
    a: Format, b: Format, left: tuple[int, ...], right: tuple[int, ...], rng: np.random.Generator
) -> tuple[Array, Array]:
    """Products of matrices in which the largest terms leave nothing but what was cut."""
    x = np.ldexp(uniform(left, rng), -rng.integers(1, 9, left))
    y = np.ldexp(uniform(right, rng), -rng.integers(1, 9, right))
    for i, (p, q) in enumerate(CANCELLING):
        top = min(a.emax, b.emax) - 2 if i < 2 else min(a.emax - 2, b.emax - 2, 5)
        top = max(top, 2)  # formats of six bits and less
        row, column = x[..., p], y[..., p, :]
        # From 1 to 2 times a power of two, large for some rows and moderate for others.
        sizes = np.ldexp(1 + np.abs(uniform(row.shape, rng)) / 4, rng.integers(1, top, row.shape))
        x[..., p], x[..., q] = sizes, -sizes
        y[..., p, :] = np.ldexp(1 + np.abs(uniform(column.shape, rng)) / 4, top - 1)
        y[..., q, :] = y[..., p, :]
    return Context(a).wrap(fp.round_to(x, a)), Context(b).wrap(fp.round_to(y, b))
