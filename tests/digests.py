"""Digests of a fixed set of results, as a program: python -m tests.digests [--write] [NAME ...].

A case has a name, tags, and a function that yields what is hashed: Arrays (as codes), arrays of
integers, numbers, texts. The hash depends on values and shapes only, neither on the type in which
codes are held nor on the byte order. Without names all cases run; the names that differ from
tests/golden/digests.json are printed, and with `--write` the file takes the new digests.

Tags    stochastic   results depend on the number n of an operation.
        counts       the rule which operations take a number shows in it: empty operands, sums of
                     one element, K = 0, operations that round nothing, in a stochastic context.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

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
    Flags,
    Format,
)  # fmt: skip
from ipu.learn import nn, optim, policy
from ipu.learn.loss_scale import (
    EPSILON,
    LEARNING_RATE,
    DynamicLossScale,
    NoLossScale,
    StaticLossScale,
)  # fmt: skip
from ipu.learn.train import Trainer
from ipu.machine.control import FpCtl
from ipu.machine.device import Device

__all__ = ["CASES", "GOLDEN", "Case", "digest", "golden", "run"]

GOLDEN = Path(__file__).parent / "golden" / "digests.json"


def _rooms() -> SimpleNamespace:
    """Everything that is imported from modules whose place may change."""
    import ipu.machine  # registers the units of the IPU
    from fpsim.linalg import conv2d, conv2d_input_gradient, conv2d_weight_gradient, k_split
    from fpsim.records.units import UNITS
    from ipu.learn.accumulate import Accumulation
    from ipu.learn.loss_scale import AutomaticLossScale, KerasLossScale

    return SimpleNamespace(
        machine=ipu.machine,
        conv2d=conv2d,
        conv2d_input_gradient=conv2d_input_gradient,
        conv2d_weight_gradient=conv2d_weight_gradient,
        k_split=k_split,
        UNITS=UNITS,
        Accumulation=Accumulation,
        AutomaticLossScale=AutomaticLossScale,
        KerasLossScale=KerasLossScale,
    )


ROOMS = _rooms()

# Cases and their hashes -----------------------------------------------------------------------

Item = Any
Items = Iterable[Item]


class Case(NamedTuple):
    """A named computation and its tags."""

    compute: Callable[[], Items]
    tags: frozenset[str]


#: Every case, by name.
CASES: dict[str, Case] = {}


def add(name: str, compute: Callable[..., Items], *arguments: Any, tags: str = "") -> None:
    """Register a case; a name is taken once."""
    assert name not in CASES, name
    CASES[name] = Case(partial(compute, *arguments), frozenset(tags.split()))


def digest(items: Items) -> str:
    """SHA-256 of values and shapes.

    >>> digest([np.uint8([1, 2])]) == digest([np.int64([1, 2])]) != digest([1, 2])
    True
    """
    total = hashlib.sha256()
    for item in items:
        total.update(_canonical(item))
    return total.hexdigest()


def _canonical(item: Item) -> bytes:
    """Kind, shape and value as bytes."""
    if isinstance(item, str):
        text = item.encode()
        return b"s%d:" % len(text) + text
    if isinstance(item, (bool, int, np.integer, np.bool_)):
        return b"i%d;" % int(item)
    if isinstance(item, float):
        return b"f" + struct.pack("<d", item)
    if isinstance(item, (tuple, list)):
        return b"(" + b"".join(map(_canonical, item)) + b")"
    codes = item.codes() if isinstance(item, Array) else np.asarray(item)
    if codes.dtype.kind not in "iub":
        raise TypeError(f"{codes.dtype} is not hashed; give codes")
    shape = ",".join(map(str, codes.shape)).encode()
    return b"a" + shape + b":" + np.ascontiguousarray(codes).astype("<u8").tobytes()


def run(name: str) -> str:
    """The digest of a case; numpy's warnings about signalling NaNs are no matter."""
    with np.errstate(all="ignore"):
        return digest(CASES[name].compute())


def golden() -> dict[str, str]:
    """The recorded digests."""
    recorded: dict[str, str] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return recorded


def status(context: Context) -> tuple[int, int]:
    """Flags and number of the next stochastic operation."""
    return int(context.flags), context.operation


def sr(rounding: Any) -> str:
    """The tag of a mode that takes random bits."""
    return "stochastic" if "SR" in repr(rounding) else ""


# Operands -------------------------------------------------------------------------------------

SEED = 1234
CUSTOM = Format.custom(6, 10)
FORMATS = {
    "binary16": BINARY16, "bfloat16": BFLOAT16, "binary32": BINARY32, "e4m3fn": E4M3FN,
    "e5m2": E5M2, "f143": F143, "f152": F152, "tf32": TF32, "custom": CUSTOM,
}  # fmt: skip
SR13, SR_IPU = SR(bits=13), SR(bits=13, subnormal_bits=16)
MODES: dict[str, Any] = {
    **{name: name for name in ("RNE", "RNA", "RNZ", "RTZ", "RTP", "RTN", "RAZ", "RTO")},
    "SR13": SR13, "SR13+16": SR_IPU, "SR_EQUAL": SR_EQUAL,
}  # fmt: skip
KINDS = ("ordinary", "wide", "special", "subnormal")
#: The last one shows what a unit cuts: large terms that cancel, and small ones.
UNIT_KINDS = (*KINDS, "cancelling")

Carrier = NDArray[Any]


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
def singles(fmt: Format, count: int) -> tuple[Carrier, ...]:
    """Some operands whose flags are looked at one by one."""
    rng = np.random.default_rng([SEED, count, 1])
    hard = hard_codes(fmt)
    return tuple(fp.decode(hard[rng.integers(0, hard.size, 40)], fmt) for _ in range(count))


@lru_cache(maxsize=16)
def edges(fmt: Format) -> Carrier:
    """binary64 at the ends of the format: where results become tiny, zero, and too large."""
    steps = np.array([0, 0.25, 0.5, 0.75, 1.0])
    nudges = np.concatenate([steps, steps[1:] - 2.0**-24, steps + 2.0**-24, -steps[1:]])
    ends = (0.0, fmt.smallest_subnormal, fmt.smallest_normal, fmt.max)
    values = np.concatenate([end + nudges * fmt.ulp(end) for end in ends])
    return np.concatenate([values, -values])


def similar_codes(fmt: Format, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Numbers of both signs from 1/4 to 4, whose last digits are often zero."""
    hidden, half = 1 << fmt.nmant, 1 << (fmt.bits - 1)
    codes = fmt.bias * hidden + rng.integers(-2 * hidden, 2 * hidden, n)
    codes &= ~((1 << rng.integers(0, fmt.nmant + 1, n)) - 1)
    return codes % half + half * rng.integers(0, 2, n)


@lru_cache(maxsize=16)
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


def uniform(shape: tuple[int, ...], rng: np.random.Generator, scale: float = 1.0) -> Carrier:
    """Numbers from -4 to 4 times a power of two, from integers alone."""
    return rng.integers(-(2**24), 2**24, shape) * 2.0**-22 * scale


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


def cancelling(
    a: Format, b: Format, left: tuple[int, ...], right: tuple[int, ...], rng: np.random.Generator
) -> tuple[Array, Array]:
    """Products of matrices in which the largest terms leave nothing but what was cut."""
    x = np.ldexp(uniform(left, rng), -rng.integers(1, 9, left))
    y = np.ldexp(uniform(right, rng), -rng.integers(1, 9, right))
    for i, (p, q) in enumerate(CANCELLING):
        top = min(a.emax, b.emax) - 2 if i < 2 else min(a.emax - 2, b.emax - 2, 5)
        row, column = x[..., p], y[..., p, :]
        # From 1 to 2 times a power of two, large for some rows and moderate for others.
        sizes = np.ldexp(1 + np.abs(uniform(row.shape, rng)) / 4, rng.integers(1, top, row.shape))
        x[..., p], x[..., q] = sizes, -sizes
        y[..., p, :] = np.ldexp(1 + np.abs(uniform(column.shape, rng)) / 4, top - 1)
        y[..., q, :] = y[..., p, :]
    return Context(a).wrap(fp.round_to(x, a)), Context(b).wrap(fp.round_to(y, b))


# Operations of a context ----------------------------------------------------------------------

ROUNDED = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "fma": 3,
    "round_to_integral": 1,
}  # fmt: skip
SELECTED = ("maximum", "minimum", "fmax", "fmin")
RELATIONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
INTEGERS = ("int32", "int64", "uint32", "uint64")
ORDERS = ("sequential", "pairwise", "blocked", "kahan", "exact")


def seeded(fmt: Format, rounding: Any = "RNE", **choices: Any) -> Context:
    return Context(fmt, rounding=rounding, seed=SEED, **choices)


def arithmetic(context: Context) -> Iterator[Item]:
    """Every operation that rounds, with the flags of each group of operands."""
    for name, count in ROUNDED.items():
        for group in operands(context.format, count):
            context.clear_flags()
            yield getattr(context, name)(*map(context.wrap, group))
            yield int(context.flags)
        yield list(one_by_one(context, name, singles(context.format, count)))
    yield context.operation


def one_by_one(context: Context, name: str, group: tuple[Carrier, ...]) -> Iterator[int]:
    """The flags of each element; together, they hide one another."""
    for i in range(group[0].size):
        context.clear_flags()
        getattr(context, name)(*(context.wrap(x[i : i + 1]) for x in group))
        yield int(context.flags)


def conversions(context: Context) -> Iterator[Item]:
    """Floats of three types, integers, packed storage and texts into the format."""
    values, rng = reals(context.format), np.random.default_rng(SEED)
    with np.errstate(all="ignore"):
        narrow = [values.astype(np.float32), values.astype(np.float16)]
    whole = rng.integers(-(2**63), 2**63, 300) >> rng.integers(0, 63, 300)
    other = BFLOAT16 if context.format == TF32 else TF32
    sources: list[Any] = [
        *np.array_split(values, 6), *narrow, whole, whole.astype(np.uint64),
        whole.astype(np.int32), whole > 0, [2**70 + 1, -3, 0.1], 0.3,
        Context(E5M2).array(values[:300]).to_numpy(), Context(other).array(values[:300]),
    ]  # fmt: skip
    limits = edges(context.format)
    yield context.array(limits)
    for value in limits:
        context.clear_flags()
        context.array(value)
        yield int(context.flags)
    for source in sources:
        context.clear_flags()
        yield context.array(source)
        yield int(context.flags)
    texts = ["0.1", "-1/3", "1e-9", "65520", "-0", "3.0000000000000000000001", "1e60", "1e-60"]
    yield context.decimal(texts)
    yield context.decimal("0.7")
    yield status(context)


def integers(context: Context) -> Iterator[Item]:
    for kind, group in product(INTEGERS, operands(context.format, 1)):
        context.clear_flags()
        yield context.to_integers(context.wrap(group[0]), kind)
        yield int(context.flags)
    yield context.operation


def selections(context: Context) -> Iterator[Item]:
    """Operations that round nothing."""
    for (x,) in operands(context.format, 1):
        yield from (context.negative(context.wrap(x)), context.absolute(context.wrap(x)))
    for pair in operands(context.format, 2):
        x, y = map(context.wrap, pair)
        for name in (*SELECTED, "fmod", "ieee_remainder"):
            context.clear_flags()
            yield getattr(context, name)(x, y)
            yield int(context.flags)
        for name, signalling in product(RELATIONS, (None, False, True)):
            context.clear_flags()
            yield context.compare(name, x, y, signalling)
            yield int(context.flags)
    yield context.operation


def sums(context: Context) -> Iterator[Item]:
    """Each order over rows, columns and everything; means."""
    for kind, shape in product(KINDS, [(18, 21), (3, 37)]):
        rng = np.random.default_rng([SEED, *shape])
        x = context.wrap(matrix(context.format, shape, kind, rng))
        for order in ORDERS:
            context.clear_flags()
            for axis in (0, 1, None, (1, 0)):
                yield context.sum(x, axis, order, block=8)
            yield context.mean(x, 1, order)
            yield context.mean(x, None, order, block=5)
            yield int(context.flags)
    yield context.operation


def rounded_products(context: Context) -> Iterator[Item]:
    """Products without a unit: separate, fused and compensated."""
    chains: list[dict[str, bool]] = [{}, {"fused": True}, {"kahan": True}]
    for kind, chain in product(KINDS, chains):
        fmt = context.format
        a, b = factors(fmt, fmt, kind, (5, 37), (37, 19))
        context.clear_flags()
        yield context.matmul(a, b, **chain)
        yield int(context.flags)
        yield context.dot(a[0], b[:, 0], **chain)
    yield context.operation


def functions(context: Context) -> Iterator[Item]:
    """Elementary functions."""
    fmt = context.format
    rng = np.random.default_rng(SEED)
    codes = [hard_codes(fmt), similar_codes(fmt, 300, rng), rng.integers(0, fmt.n_codes, 300)]
    for name, some in product(("exp", "log", "tanh", "sigmoid", "rsqrt", "erf"), codes):
        context.clear_flags()
        yield getattr(context, name)(context.wrap(fp.decode(some, fmt)))
        yield int(context.flags)
    yield context.operation


def without_products(context: Context) -> Iterator[Item]:
    """All of the above that rounds but products, whose kernels take longest to compile."""
    for part in (arithmetic, conversions, sums, functions):
        yield from part(context)


def everything(context: Context) -> Iterator[Item]:
    """All of the above that rounds."""
    yield from without_products(context)
    yield from rounded_products(context)


def among_formats(rounding: Any) -> Iterator[Item]:
    """Conversions from every format to every other one."""
    for source, target in product(FORMATS.values(), FORMATS.values()):
        if source == target:
            continue
        context = seeded(source, rounding)
        x = context.wrap(operands(source, 1)[-2][0])
        yield x.to(target)
        yield status(context)
        other = seeded(target, rounding)
        yield other.convert(context.wrap(fp.decode(hard_codes(source), source)))
        yield status(other)


def layouts(fmt: Format, rounding: Any) -> Iterator[Item]:
    """Strides, broadcasting, numbers as operands, outputs, operators and numpy's functions."""
    context, rng = seeded(fmt, rounding), np.random.default_rng(SEED)
    x = context.wrap(matrix(fmt, (7, 30), "ordinary", rng))
    y = context.wrap(matrix(fmt, (7, 30), "wide", rng))
    yield context.add(x.T, y.reshape(30, 7))
    yield context.multiply(x[:, None, :5], y[None, :, 3:8])
    yield context.divide(x[::2, ::-3], y[1::2, 0:1][:1])
    yield context.fma(x, 0.1, y[0])
    yield from (x + y, 3.0 - x, x * 0.3, 1 / x, x @ y.T, -x, abs(x))
    yield from (np.add(x, y), np.sqrt(abs(x)), np.sum(x, axis=0), np.mean(x), np.rint(x))
    result = context.zeros((7, 30))
    yield context.subtract(x, y, out=result)
    yield context.sqrt(y, out=y)
    x += 0.125
    x *= result
    yield from (x, context.sum(x, 1, out=result[:, 0]), result, status(context))


def counters(fmt: Format, rounding: Any, **choices: Any) -> Iterator[Item]:
    """Flags, zeros and subnormals per operation and tensor, and the results."""
    context = seeded(fmt, rounding, count=True, **choices)
    assert context.counts is not None
    yield from arithmetic(context)
    context.counts.tensor = "other"
    for part in (conversions, sums, rounded_products):
        yield from part(context)
    if not context.rounding.stochastic:
        yield from selections(context)
        yield from integers(context)
    yield from table(context.counts)


def table(counts: Any) -> Iterator[Item]:
    """Counters, in the order of their names; what is 0 is left out."""
    for (tensor, operation), row in sorted(counts.items()):
        yield tensor
        yield operation
        yield [(name, int(n)) for name, n in sorted(row.items()) if n]


def trap(call: Callable[[], Any]) -> Iterator[Item]:
    """What a trap says, without its sentence."""
    try:
        call()
    except fp.FloatingPointTrap as error:
        yield error.operation
        yield int(error.flags)
        yield tuple(error.index)
        for operand in error.operands:
            values = np.asarray(operand, np.float64)
            yield tuple(values.shape)
            yield [float(v) for v in values.reshape(-1)]
    else:
        yield "nothing"


def traps(fmt: Format, rounding: Any) -> Iterator[Item]:
    """Each flag armed alone, in every operation."""
    rng = np.random.default_rng(SEED)
    for flag in Flags:
        context = seeded(fmt, rounding, traps=flag)
        calls: list[Callable[[], Any]] = []
        for name, count in ROUNDED.items():
            for group in operands(fmt, count)[::3]:
                operation = getattr(context, name)
                calls.append(partial(operation, *map(context.wrap, group)))
        x = context.wrap(matrix(fmt, (9, 20), "special", rng))
        y = context.wrap(matrix(fmt, (20, 4), "wide", rng))
        calls += [partial(context.sum, x, axis, order) for axis in (0, 1) for order in ORDERS]
        calls += [partial(context.matmul, x, y), partial(context.dot, x[0], y[:, 0])]
        calls += [partial(context.mean, x, 0), partial(context.array, reals(fmt))]
        if not context.rounding.stochastic:
            calls += [partial(context.compare, "less", x, x), partial(context.fmod, x, 0.0)]
            calls += [partial(context.to_integers, x, "int32"), partial(context.fmax, x, x)]
        if fmt == BINARY16:
            calls.append(partial(context.matmul, x, y, "AMP_F16_F16"))
        for call in calls:
            yield from trap(call)
            yield status(context)


def numbering(fmt: Format) -> Iterator[Item]:
    """Which operations take a number: empty ones, sums of one element, K = 0, exact ones."""
    context = seeded(fmt, SR13)
    x = context.wrap(matrix(fmt, (4, 3), "ordinary", np.random.default_rng(SEED)))
    none, one = context.zeros((0, 3)), x[:1, :1]
    calls: list[Callable[[], Any]] = [
        *(partial(getattr(context, name), *[none] * n) for name, n in ROUNDED.items()),
        *(partial(context.sum, one, 0, order) for order in ORDERS),
        *(partial(context.mean, one, 1, order) for order in ORDERS),
        *(partial(context.sum, none, axis) for axis in (0, 1, None)),
        *(partial(context.sum, x, (), order) for order in ORDERS),
        partial(context.mean, none, 1),
        *(partial(context.matmul, x, x.T, fused=fused) for fused in (False, True)),
        partial(context.matmul, x[:, :0], x.T[:0]), partial(context.matmul, none, x.T),
        partial(context.matmul, one, one), partial(context.dot, one[0], one[0]),
        partial(context.dot, one[0][:0], one[0][:0]),
        partial(context.negative, x), partial(context.absolute, x),
        *(partial(getattr(context, name), x, x) for name in SELECTED),
        *(partial(context.compare, name, x, x) for name in RELATIONS),
        partial(context.fmod, x, x), partial(context.ieee_remainder, x, x),
        partial(context.convert, x), partial(context.convert, none), partial(context.array, []),
        partial(context.round_to_integral, x), partial(context.to_integers, x, "int32"),
        partial(context.to_integers, none, "int32"), partial(context.constant, 0.1),
        partial(context.decimal, "0.1"), partial(context.exp, none),
        partial(x.to, BINARY32), partial(none.to, BINARY32),
    ]  # fmt: skip
    for call in calls:
        yield call()
        yield context.operation
        yield context.add(x, 0.1)
    yield status(context)


# Random bits ----------------------------------------------------------------------------------


def sources(kind: str) -> Iterator[Item]:
    """The same operations with the bits of a source, its children and its bits in other formats."""
    source: Any = fp.Xoroshiro128aox(77) if kind == "xoroshiro" else fp.Philox(2**63 + 5)
    modes: list[Any] = [SR13, SR(bits=16), SR_IPU, SR_EQUAL, SR(bits=8, residual="half")]
    if kind == "philox":
        modes += [SR(), SR(bits=20, residual="even"), SR(bits=24)]
    for rounding, fmt in product(modes, (BINARY16, F143)):
        parent = Context(fmt, rounding=rounding, bits=source)
        for context in (parent, parent.spawn(3), parent.spawn(3).spawn(2**40)):
            x, y = operands(fmt, 2)[-1]
            yield context.add(context.wrap(x), context.wrap(y))
            yield context.array(reals(fmt)[::3])
            a, b = factors(fmt, fmt, "ordinary", (5, 37), (37, 19))
            yield context.sum(a, 1)
            yield context.mean(a, 0, "kahan")
            yield context.matmul(a, b)
            yield context.matmul(a, b, fused=True)
            if fmt == BINARY16:
                yield context.matmul(a, b, "AMP_F16_F16")
                yield context.matmul(a, b, "AMP_F16_F32")
            yield status(context)
            yield context.in_format(BFLOAT16).array(reals(BFLOAT16)[::9])
            yield status(context)
            if isinstance(context.source, fp.Xoroshiro128aox):
                yield context.source.state
            else:
                yield context.seed or 0


def replayed() -> Iterator[Item]:
    """Integers that the caller gives, one array for each operation."""
    rng = np.random.default_rng(SEED)
    shapes = [(40,), (40,), (3, 5, 4), (1, 5, 4), (40,)]
    for rounding, most in ((SR13, 13), (SR_IPU, 16), (SR_EQUAL, 1), (SR(bits=20), 20)):
        bits = fp.Replay([rng.integers(0, 1 << most, shape) for shape in shapes])
        context = Context(BINARY16, rounding=rounding, bits=bits)
        x = context.wrap(matrix(BINARY16, (40,), "ordinary", rng))
        yield context.multiply(x, 0.1)
        yield context.array(reals(BINARY16)[:40])
        wide = context.wrap(matrix(BINARY16, (4, 5, 4), "wide", rng))
        yield context.sum(wide, 0)
        yield context.sum(wide, 0, "exact")
        yield context.sqrt(x)
        yield status(context)
        numbers = rng.integers(0, 1 << most, 60)
        values = fp.round_to(reals(BINARY16)[:60], BINARY16, rounding, random=numbers)
        yield Context(BINARY16).wrap(values)


def decided(fmt: Format, rounding: Any) -> Iterator[Item]:
    """Numbers whose last random digit decides, with given integers; and very many with Philox."""
    rng = np.random.default_rng(SEED)
    most = Context(fmt, rounding=rounding).settings.random_most
    n = 4000
    codes = rng.integers(0, 4 << fmt.nmant, n) + (rng.integers(0, 2, n) << fmt.bits - 1)
    held = fp.decode(np.where(codes == 1 << fmt.bits - 1, 0, codes), fmt).astype(np.float64)
    numbers = rng.integers(0, 1 << most, n)
    # So many digits of the residual, next to the number at which it and the random one make 1.
    digits = np.minimum(rng.integers(most - 3, most + 2, n), most)
    near = (1 << digits) - (numbers >> (most - digits)) + rng.integers(-1, 2, n)
    near = np.ldexp(near + rng.integers(-1, 2, n) / 4, -digits)
    unit = np.array([fmt.ulp(v) for v in held])
    values = held + np.copysign(unit * near, held)
    context = Context(fmt, rounding=rounding, bits=fp.Replay([numbers]))
    yield context.array(values)
    yield status(context)
    many = rng.integers(-(2**40), 2**40, 1 << 16) * 2.0**-40 * (2 * fmt.smallest_normal)
    context = seeded(fmt, rounding)
    yield context.array(many)
    yield status(context)


# Matrix units ---------------------------------------------------------------------------------

LEFT, RIGHT = (5, 37), (37, 19)


def pairs(unit: Any) -> list[tuple[Format, Format]]:
    """Formats of both operands."""
    return list(dict.fromkeys(product(unit.inputs, unit.inputs)))[:3]


def unit_products(name: str) -> Iterator[Item]:
    """Products of every kind of numbers, with partials to add to and scales, and narrower ones."""
    unit = ROOMS.UNITS[name]
    rng = np.random.default_rng(SEED)
    narrow = BINARY16 if unit.partials == BINARY32 else None
    for (fa, fb), kind in product(pairs(unit), UNIT_KINDS):
        a, b = factors(fa, fb, kind, LEFT, RIGHT)
        context = seeded(unit.partials)
        yield context.matmul(a, b, name)
        start = context.wrap(matrix(unit.partials, (5, 19), "ordinary", rng))
        yield context.matmul(a, b, name, accumulator=start)
        if fa.bits <= 8:
            yield from (context.matmul(a, b, name, scale=scale) for scale in (-9, 3))
        yield int(context.flags)
        for fmt in (narrow,) if narrow else ():
            for rounding, overflow in (("RNE", "infinity"), ("RTZ", "saturate")):
                other = seeded(fmt, rounding, overflow=overflow)
                yield other.matmul(a, b, name)
                yield int(other.flags)


def unit_choices(name: str) -> Iterator[Item]:
    """Batches, single rows and columns, a K below one pass, binary32 subnormals, NaN rules."""
    unit = ROOMS.UNITS[name]
    fmt = unit.inputs[0]
    shapes = [((2, 1, 5, 37), (3, 37, 19)), ((1, 37), (37, 19)), ((5, 37), (37, 1)),
              ((5, 3), (3, 19)), ((3, 70), (70, 33))]  # fmt: skip
    for left, right in shapes:
        context = seeded(unit.partials)
        yield context.matmul(*factors(fmt, fmt, "wide", left, right), name)
        yield int(context.flags)
    for choices in ({"quiet_nan_raises": True}, {"overflow": "saturate"}, {"overflow": "nan"}):
        for kind in ("special", "wide"):
            context = seeded(unit.partials, **choices)
            yield context.matmul(*factors(fmt, fmt, kind, LEFT, RIGHT), name)
            yield int(context.flags)
    for subnormals, kind in product(("keep", "flush_results", "flush_both"), ("wide", "subnormal")):
        context = seeded(unit.partials)
        a, b = factors(fmt, fmt, kind, LEFT, RIGHT)
        yield context.matmul(a, b, name, subnormals=subnormals)
        yield int(context.flags)


def unit_stochastic(name: str) -> Iterator[Item]:
    """Stochastic stores of half partials and stochastic last roundings."""
    unit = ROOMS.UNITS[name]
    fmt = unit.inputs[0]
    for kind in UNIT_KINDS:
        a, b = factors(fmt, fmt, kind, LEFT, RIGHT)
        context = seeded(BINARY16, SR_IPU)
        yield context.matmul(a, b, name)
        yield context.matmul(a, b, name)
        if unit.partials == BINARY32:
            yield context.matmul(a, b, name, stochastic_stores=False)
        yield status(context)
    left, right = factors(fmt, fmt, "ordinary", (2, 1, 5, 37), (3, 37, 19))
    context = seeded(BINARY16, SR(bits=20), overflow="saturate")
    yield context.matmul(left, right, name)
    yield status(context)


def split_products(rounding: Any) -> Iterator[Item]:
    """K in several parts, their partials added."""
    for name in ("AMP_F16_F16", "AMP_F16_F32", "AMP_F32_F32", "V100_F16_F32", "H100_F16_F16"):
        unit = ROOMS.UNITS[name]
        fmt = unit.inputs[0]
        for kind, parts in product(KINDS, (2, 3)):
            a, b = factors(fmt, fmt, kind, (5, 70), (70, 9))
            context = seeded(BINARY16, rounding)
            yield ROOMS.k_split(a, b, name, parts, context=context)
            yield status(context)
            if not context.rounding.stochastic:
                context = seeded(unit.partials, rounding)
                yield ROOMS.k_split(a, b, name, parts, context=context, subnormals="flush_both")
                yield status(context)


#: Stride, padding, groups, channels, outputs, kernel.
GEOMETRIES: list[tuple[Any, Any, int, int, int, tuple[int, int]]] = [
    (1, "SAME", 1, 5, 6, (3, 3)),
    (2, "SAME", 1, 4, 6, (3, 5)),
    ((2, 1), "VALID", 2, 8, 4, (2, 3)),
    (1, ((1, 0), (2, 1)), 4, 4, 8, (3, 1)),
    (2, "VALID", 1, 20, 3, (1, 1)),
]


def convolutions(name: str, rounding: Any) -> Iterator[Item]:
    """Forward and both gradients."""
    unit = ROOMS.UNITS[name]
    fmt = unit.inputs[0]
    result = BINARY16 if rounding != "RNE" else unit.partials
    context = seeded(result, rounding)
    for geometry, kind in product(GEOMETRIES, ("ordinary", "special")):
        stride, padding, groups, channels, outputs, size = geometry
        options = {"stride": stride, "padding": padding, "groups": groups, "context": context}
        x, w = factors(
            fmt, fmt, kind, (2, 6, 7, channels), (*size, channels // groups, outputs)
        )  # fmt: skip
        context.clear_flags()
        y = ROOMS.conv2d(x, w, name, **options)
        rng = np.random.default_rng([SEED, 9])
        gradient = Context(fmt).wrap(matrix(fmt, y.shape, kind, rng))
        yield y
        yield ROOMS.conv2d_input_gradient(gradient, w, name, x.shape, **options)
        yield ROOMS.conv2d_weight_gradient(x, gradient, name, w.shape, **options)
        yield status(context)


def unit_numbering() -> Iterator[Item]:
    """Products of nothing, and stochastic contexts whose products round nothing there."""
    for fmt, name in ((BINARY16, "AMP_F16_F16"), (BINARY16, "AMP_F16_F32")):
        for result in (BINARY16, BINARY32):
            if result == BINARY32 and name == "AMP_F16_F16":
                continue
            context = seeded(result, SR13)
            a, b = factors(fmt, fmt, "ordinary", (4, 20), (20, 3))
            for left, right in ((a, b), (a[:, :0], b[:0]), (a[:0], b), (a, b[:, :0])):
                yield context.matmul(left, right, name)
                yield context.operation
                yield ROOMS.k_split(left, right, name, 1, context=context)
                yield context.operation
            x, w = factors(fmt, fmt, "ordinary", (0, 4, 4, 2), (3, 3, 2, 2))
            yield ROOMS.conv2d(x, w, name, context=context)
            yield context.operation
            yield context.add(context.wrap(np.float32([1.0])), 0.1)


# The device -----------------------------------------------------------------------------------

CONTROLS = {
    "off": FpCtl(), "esr": FpCtl(esr=True), "nanoo": FpCtl(nanoo=True),
    "esr+nanoo": FpCtl(esr=True, nanoo=True), "rtz": FpCtl(rnd=3),
}  # fmt: skip
VERBS = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "exp": 1, "log": 1, "tanh": 1,
    "sigmoid": 1, "rsqrt": 1, "erf": 1,
}  # fmt: skip


def now(device: Device) -> tuple[int, int]:
    """Status register and number of the next stochastic operation."""
    return device.status.word, device.context(BINARY16).operation


def on(device: Device, fmt: Format, values: Carrier) -> Array:
    return device.context(fmt).wrap(values)


def elementwise(device: Device) -> Iterator[Item]:
    """Verbs that round, in every format of the target."""
    for fmt in device.target.formats:
        for name, count in VERBS.items():
            for group in operands(fmt, count)[-3:]:
                device.clear_status()
                yield getattr(device, name)(*(on(device, fmt, x) for x in group))
                yield now(device)
        x = on(device, fmt, operands(fmt, 1)[-2][0])
        for target in device.target.formats:
            if target != fmt:
                yield device.cast(x, target)
        yield device.to_integers(x, "int32")
        yield device.from_host(reals(fmt), fmt)
        rows = on(device, fmt, matrix(fmt, (6, 9, 5), "ordinary", np.random.default_rng(SEED)))
        yield device.reduce_sum(rows, (0, 2))
        yield device.reduce_sum(rows, 1, scale=0.3)
        yield device.reduce_sum(rows, -1, BINARY32)
        yield now(device)


def exact_verbs(device: Device) -> Iterator[Item]:
    """Verbs that round nothing, and masks."""
    rng = np.random.default_rng(SEED)
    for fmt in device.target.formats:
        for x, y in (operands(fmt, 2)[i] for i in (0, 5, 8, 9)):
            device.clear_status()
            a, b = on(device, fmt, x), on(device, fmt, y)
            yield device.maximum(a, b)
            yield device.negative(a)
            yield device.relu(a)
            yield device.select(np.arange(a.size) % 3 == 0, a)
            yield device.reduce_max(a.reshape(1, -1), 1)
            yield now(device)
        for kind in ("ordinary", "special"):
            rows = on(device, fmt, matrix(fmt, (7, 11), kind, rng))
            yield from (device.relu(rows), device.reduce_max(rows, 0), device.reduce_max(rows, -1))
    yield device.random_mask((9, 13), 0.3)
    yield device.random_mask((40,), 0.999)
    yield now(device)


def device_products(device: Device, formats: list[Format]) -> Iterator[Item]:
    """Products and convolutions by the device's choice of the unit."""
    for fmt, kind in product(formats, KINDS):
        rng = np.random.default_rng(SEED)
        device.clear_status()
        a, b = (on(device, fmt, v.values) for v in factors(fmt, fmt, kind, LEFT, RIGHT))
        yield device.matmul(a, b)
        yield device.matmul(a, b, k_split=2)
        outs = (BINARY16, BINARY32) if fmt.bits > 8 else (BINARY16,)
        yield from (device.matmul(a, b, out=out) for out in outs)
        if fmt.bits <= 8:
            yield device.matmul(a, b, scale=4)
        for stride, padding, groups, channels, outputs, size in GEOMETRIES[:3]:
            options = {"stride": stride, "padding": padding, "groups": groups}
            x = on(device, fmt, matrix(fmt, (2, 6, 7, channels), kind, rng))
            w = on(device, fmt, matrix(fmt, (*size, channels // groups, outputs), kind, rng))
            y = device.conv2d(x, w, **options)
            g = on(device, fmt, matrix(fmt, y.shape, kind, rng))
            yield y
            yield device.conv2d_input_gradient(g, w, x.shape, **options)
            yield device.conv2d_weight_gradient(x, g, w.shape, **options)
        yield now(device)


def device_case(part: str, target: str, control: FpCtl, options: dict[str, Any]) -> Iterator[Item]:
    device = Device(target, control, seed=SEED, **options)
    if part == "elementwise":
        yield from elementwise(device)
    elif part == "exact":
        yield from exact_verbs(device)
    else:
        yield from device_products(device, list(device.target.formats))
    if device.counts is not None:
        yield from table(device.counts)


def device_registers() -> Iterator[Item]:
    """The control register written between operations, scopes of rounding, and traps."""
    device = Device("mk2", seed=SEED)
    x = on(device, BINARY16, operands(BINARY16, 1)[-2][0])
    y = on(device, BINARY16, operands(BINARY16, 1)[-1][0])
    small = on(device, BINARY16, operands(BINARY16, 2)[-1][0])
    z = on(device, BINARY16, operands(BINARY16, 2)[-1][1])
    for control in (*CONTROLS.values(), FpCtl(inv=True), FpCtl(div0=True), FpCtl(oflo=True)):
        device.control = control
        device.clear_status()
        for verb, pair in product(("add", "multiply", "divide"), ((small, z), (x, x), (y, y))):
            with device.naming("layer"):
                yield from trap(lambda v=verb, p=pair: getattr(device, v)(*p))
            yield now(device)
        with device.rounding(True):
            yield device.add(small, z)
        yield now(device)
        yield device.add(small, z)
        yield control.word


def device_numbering() -> Iterator[Item]:
    """Which verbs take a number."""
    device = Device("mk2-fp8", FpCtl(esr=True), seed=SEED)
    for fmt in (BINARY16, F143):
        x = on(device, fmt, matrix(fmt, (4, 3), "ordinary", np.random.default_rng(SEED)))
        none = device.zeros((0, 3), fmt)
        calls: list[Callable[[], Any]] = [
            partial(device.relu, x), partial(device.maximum, x, x), partial(device.negative, x),
            partial(device.reduce_max, x, 0), partial(device.reduce_sum, x[:1], 0),
            partial(device.add, none, none), partial(device.cast, x, BINARY32),
            partial(device.cast, x, fmt), partial(device.cast, none, F152),
            partial(device.select, x.values > 0, x), partial(device.random_mask, (3,), 0.5),
            partial(device.random_mask, (0,), 0.5), partial(device.exp, none),
            partial(device.to_integers, x, "int32"), partial(device.matmul, x, x.T, out=BINARY16),
            partial(device.matmul, x[:, :0], x.T[:0]), partial(device.relu, none),
        ]  # fmt: skip
        for call in calls:
            yield call()
            yield now(device)
            yield device.add(x, x)


# Trainings ------------------------------------------------------------------------------------

STEPS = 4


def mlp(x: Any) -> Any:
    return nn.dense(nn.relu(nn.dense(x, 9, "hidden")), 3, "output")


def smooth(x: Any) -> Any:
    """Layers with the other activations and a norm."""
    x = nn.gelu(nn.layer_norm(nn.dense(x, 8, "first"), "norm"))
    x = nn.sigmoid(nn.dense(nn.tanh(nn.dense(x, 7, "second")), 6, "third"))
    return nn.dense(nn.softmax(x), 3, "output")


def noisy(x: Any) -> Any:
    """Batch norm and dropout between dense layers."""
    x = nn.relu(nn.batch_norm(nn.dense(x, 10, "hidden"), "norm"))
    return nn.dense(nn.dropout(x, 0.25), 3, "output")


def cnn(x: Any) -> Any:
    """Convolutions on every unit of the rule, norms, both poolings and dropout."""
    x = nn.relu(nn.batch_norm(nn.conv(x, 4, 3, "conv1"), "norm1"))
    x = nn.max_pool(x, 3, stride=1)
    x = nn.conv(x, 8, 3, "conv2", groups=2, stride=2, use_bias=False)
    x = nn.dropout(nn.relu(nn.group_norm(x, 2, "norm2")), 0.2)
    x = nn.average_pool(nn.conv(x, 6, (1, 3), "conv3", padding="VALID"), (2, 1))
    return nn.dense(nn.flatten(x), 3, "output")


def training(model: Any, optimizer: Any, esr: bool, choices: dict[str, Any]) -> Iterator[Item]:
    """Variables, losses, status and logits after some steps."""
    choices = dict(choices)
    control = FpCtl(esr=esr, nanoo=choices.pop("nanoo", False))
    steps = choices.pop("steps", STEPS)
    rng = np.random.default_rng([SEED, 3])
    shape = (12, 8, 8, 2) if model is cnn else (12, 11)
    x, labels = rng.integers(-32, 33, (3, *shape)) / 16, rng.integers(0, 3, (3, 12))
    trainer = Trainer(model, optimizer, control=control, seed=SEED, **choices)
    for step in range(steps):
        yield trainer.step(x[step % 3], labels[step % 3])
        yield from (trainer.applied, float(trainer.loss_scale.value), now(trainer.device))
    for name, variable in sorted(trainer.variables.items()):
        yield name
        yield variable.dtype.name
        yield variable.array
    yield trainer.forward(x[0]).array
    yield now(trainer.device)
    if trainer.device.counts is not None:
        yield from table(trainer.device.counts)


def _trainings() -> dict[str, tuple[Any, Any, dict[str, Any]]]:
    """Model, optimiser and choices of each training."""
    fp32, fp16, mixed, fp8 = policy.FP32, policy.FP16, policy.MIXED, policy.FP8
    half = policy.Policy.parse("p=f16,c=f16,part=f16")
    wide_sums = policy.Policy.parse("p=f16,c=f16,acc=f32")
    sgd, momentum = optim.SGD(0.125), optim.SGD(0.05, 0.9)
    nesterov = optim.SGD(0.05, 0.9, nesterov=True)
    rms = optim.RMSProp(0.01, momentum=0.5, epsilon=1e-3)
    rms32 = optim.RMSProp(0.01, epsilon=1e-4, format=BINARY32)
    adam, adam16 = optim.Adam(0.01), optim.Adam(0.01, epsilon=1e-4)
    adamw = optim.AdamW(0.01, epsilon=1e-4)
    quarters = {"policy": fp8, "target": "mk2-fp8"}
    summed = ROOMS.Accumulation
    dynamic = {"nanoo": True, "steps": 6}
    return {
        "mlp/fp32/sgd": (mlp, sgd, {"policy": fp32}),
        "mlp/fp32/momentum": (mlp, momentum, {"policy": fp32}),
        "mlp/fp32/rmsprop": (mlp, optim.RMSProp(0.01), {"policy": fp32}),
        "mlp/fp32/adam": (mlp, adam, {"policy": fp32}),
        "mlp/fp32/nesterov/ieee": (mlp, nesterov, {"policy": fp32, "f32_denormals": "ieee"}),
        "mlp/fp16/momentum/static": (
            mlp, momentum, {"policy": fp16, "loss_scale": StaticLossScale(8.0, LEARNING_RATE)},
        ),
        "mlp/fp16/nesterov": (mlp, nesterov, {"policy": fp16, "count": True}),
        "mlp/fp16/rmsprop": (mlp, rms, {"policy": fp16}),
        "mlp/fp16/rmsprop32/static": (
            mlp, rms32, {"policy": fp16, "loss_scale": StaticLossScale(16.0, EPSILON)},
        ),
        "mlp/fp16/adam/static": (
            mlp, adam16, {"policy": fp16, "loss_scale": StaticLossScale(32.0, EPSILON)},
        ),
        "mlp/fp16/half/exact": (mlp, momentum, {"policy": half, "preset": "exact"}),
        "mlp/fp16/sum": (
            mlp, optim.CastGradientsSGD(0.05, 0.9),
            {"policy": wide_sums, "accumulation": summed(3, "sum")},
        ),
        "mlp/fp16/mean": (mlp, momentum, {"policy": fp16, "accumulation": summed(3, "mean")}),
        "mlp/fp16/override": (mlp, momentum, {"policy": fp16.override({"output": fp32})}),
        "mlp/mixed/momentum/dynamic": (
            mlp, momentum,
            {"policy": mixed, "loss_scale": DynamicLossScale(2.0**24, interval=2), **dynamic},
        ),
        "mlp/mixed/adam/dynamic": (
            mlp, adam,
            {"policy": mixed, "loss_scale": DynamicLossScale(2.0**20, EPSILON, interval=2),
             **dynamic},
        ),
        "mlp/mixed/adamw/static": (
            mlp, adamw, {"policy": mixed, "loss_scale": StaticLossScale(1024.0)},
        ),
        "mlp/mixed/running_mean": (
            mlp, momentum, {"policy": mixed, "accumulation": summed(4, "running_mean")},
        ),
        "mlp/mixed/automatic": (
            mlp, momentum,
            {"policy": mixed, "loss_scale": ROOMS.AutomaticLossScale(2.0**14), "steps": 6},
        ),
        "mlp/mixed/keras": (
            mlp, momentum,
            {"policy": mixed, "loss_scale": ROOMS.KerasLossScale(1024.0, frequency=2), "steps": 6},
        ),
        "mlp/fp8/momentum": (mlp, momentum, quarters),
        "mlp/fp8/adam/static": (
            mlp, adam, quarters | {"loss_scale": StaticLossScale(256.0)},
        ),
        "mlp/bfloat16/momentum": (
            mlp, momentum,
            {"policy": policy.Policy.parse("p=bf16,c=bf16"), "target": "hypothetical"},
        ),
        "smooth/fp16/rmsprop": (smooth, rms, {"policy": fp16}),
        "smooth/mixed/adam": (smooth, adam, {"policy": mixed}),
        "noisy/fp16/momentum": (
            noisy, momentum,
            {"policy": fp16, "loss_scale": StaticLossScale(8.0, LEARNING_RATE), "count": True},
        ),
        "noisy/mixed/adam/mean": (
            noisy, adam, {"policy": mixed, "accumulation": summed(2, "mean")},
        ),
        "cnn/fp32/adam": (cnn, adam, {"policy": fp32}),
        "cnn/fp16/momentum/static": (
            cnn, momentum, {"policy": fp16, "loss_scale": StaticLossScale(8.0)},
        ),
        "cnn/fp16/half": (cnn, momentum, {"policy": half, "loss_scale": NoLossScale()}),
        "cnn/mixed/rmsprop/dynamic": (
            cnn, rms,
            {"policy": mixed, "loss_scale": DynamicLossScale(2.0**24, interval=2), **dynamic},
        ),
        "cnn/mixed/momentum/running_mean": (
            cnn, momentum, {"policy": mixed, "accumulation": summed(2, "running_mean")},
        ),
        "cnn/fp8/momentum": (cnn, momentum, quarters),
    }  # fmt: skip


# The registry ---------------------------------------------------------------------------------


def in_context(compute: Callable[[Context], Items], *arguments: Any, **choices: Any) -> Any:
    """The case of a function of a context."""
    return lambda: compute(seeded(*arguments, **choices))


FEW_MODES = ("RNE", "RTN", "SR13")
POLICIES: dict[str, dict[str, Any]] = {
    "saturate": {"overflow": "saturate"},
    "nan": {"overflow": "nan", "infinite_input": "nan"},
    "flush_results": {"subnormals": "flush_results"},
    "flush_both": {"subnormals": "flush_both"},
    "before": {"tininess": "before"},
    "propagate_first": {"nan": "propagate_first"},
    "x86": {"nan": "x86"},
    "machine": {"divide_by_zero": "nan", "quiet_nan_raises": True, "overflow": "saturate"},
}
RARE_MODES: dict[str, Any] = {
    "SR": SR(), "SR20": SR(bits=20), "SR8half": SR(bits=8, residual="half"),
    "SR13even": SR(bits=13, residual="even"),
}  # fmt: skip


def _register_arithmetic() -> None:
    for (shown, fmt), (mode, rounding) in product(FORMATS.items(), MODES.items()):
        tags = sr(rounding)
        add(f"arithmetic/{shown}/{mode}", in_context(arithmetic, fmt, rounding), tags=tags)
        add(f"convert/{shown}/{mode}", in_context(conversions, fmt, rounding), tags=tags)
        if mode in FEW_MODES or shown == "binary16":
            add(f"sums/{shown}/{mode}", in_context(sums, fmt, rounding), tags=tags)
        if mode in FEW_MODES or (shown == "binary16" and mode in ("RTZ", "SR13+16", "SR_EQUAL")):
            whole = in_context(rounded_products, fmt, rounding)
            add(f"products/{shown}/{mode}", whole, tags=tags)
        if mode in FEW_MODES:
            add(f"functions/{shown}/{mode}", in_context(functions, fmt, rounding), tags=tags)
            add(f"integers/{shown}/{mode}", in_context(integers, fmt, rounding), tags=tags)
    for (mode, rounding), (shown, fmt) in product(
        RARE_MODES.items(), {"binary16": BINARY16, "binary32": BINARY32}.items()
    ):
        add(f"rare/{shown}/{mode}", in_context(without_products, fmt, rounding), tags="stochastic")


def _register_context() -> None:
    for shown, fmt in FORMATS.items():
        add(f"exact/{shown}", in_context(selections, fmt))
    add("exact/binary16/RTN", in_context(selections, BINARY16, "RTN"))
    chosen = {"binary16": BINARY16, "f152": F152}
    for (shown, fmt), (name, choices), mode in product(
        chosen.items(), POLICIES.items(), ("RNE", "SR13")
    ):
        place, rounding = f"policy/{name}/{shown}", MODES[mode]
        whole = name in ("saturate", "flush_both", "machine")
        rounds = everything if whole else without_products
        rounded = in_context(rounds, fmt, rounding, **choices)
        add(f"{place}/{mode}", rounded, tags=sr(rounding))
        if mode == "RNE":
            add(f"{place}/exact", in_context(selections, fmt, **choices))
    single = in_context(everything, BINARY32, subnormals="flush_both", quiet_nan_raises=True)
    add("policy/machine/binary32/RNE", single)
    for mode in ("RNE", "RTP", "SR13", "SR_EQUAL"):
        add(f"among_formats/{mode}", among_formats, MODES[mode], tags=sr(MODES[mode]))
    for shown, mode in product(("binary16", "f143", "binary32"), ("RNE", "SR13")):
        tags, rounding = sr(MODES[mode]), MODES[mode]
        # Operators include - and abs(), which round nothing.
        more = f"{tags} counts" if tags else ""
        add(f"layouts/{shown}/{mode}", layouts, FORMATS[shown], rounding, tags=more)
        add(f"counters/{shown}/{mode}", counters, FORMATS[shown], rounding, tags=tags)
        add(f"traps/{shown}/{mode}", traps, FORMATS[shown], rounding, tags=tags)
    for shown in ("binary16", "binary32", "f143"):
        add(f"numbering/{shown}", numbering, FORMATS[shown], tags="stochastic counts")
    for kind in ("philox", "xoroshiro"):
        add(f"sources/{kind}", sources, kind, tags="stochastic")
    add("sources/replay", replayed, tags="stochastic")
    chosen = {"SR13": SR13, "SR13+16": SR_IPU} | RARE_MODES
    for (mode, rounding), shown in product(chosen.items(), ("binary16", "binary32", "f143")):
        add(f"decided/{shown}/{mode}", decided, FORMATS[shown], rounding, tags="stochastic")


#: One unit for each way of summing: these are run under every choice.
VARIED_UNITS = (
    "AMP_F16_F16", "AMP_F16_F32", "AMP_F16_F16.exact", "AMP_F16_F16.sticky",
    "AMP_F16_F16.sequential_f32", "AMP_F8_F16", "AMP_F32_F32", "AMP_BF16_F32", "SLIC_F16_F16",
    "VMAC_F16_F16", "VMAC_F32_F32", "V100_F16_F32", "H100_F16_F16", "A100_TF32_F32",
    "ADA_E4M3_F32", "H100_E5M2_F16",
)  # fmt: skip


def _register_units() -> None:
    for name in ROOMS.UNITS:
        add(f"units/{name}/products", unit_products, name)
    for name in VARIED_UNITS:
        add(f"units/{name}/choices", unit_choices, name)
        # Sums in the format of half partials leave nothing to round.
        exact = ROOMS.UNITS[name].accumulator == BINARY16 or ROOMS.UNITS[name].join == BINARY16
        tags = "stochastic counts" if exact else "stochastic"
        add(f"units/{name}/sr", unit_stochastic, name, tags=tags)
    for mode in ("RNE", "SR13"):
        add(f"k_split/{mode}", split_products, MODES[mode], tags=sr(MODES[mode]))
    for family, partials in product(("AMP", "SLIC", "VMAC"), ("F16_F32", "F16_F16", "F32_F32")):
        name = f"{family}_{partials}"
        add(f"conv/{name}/RNE", convolutions, name, "RNE")
        if partials != "F32_F32":
            add(f"conv/{name}/SR", convolutions, name, SR_IPU, tags="stochastic")
    for name in ("AMP_F8_F16", "SLIC_F8_F16", "SLIC_F16_F16.exact"):
        add(f"conv/{name}/RNE", convolutions, name, "RNE")
        add(f"conv/{name}/SR", convolutions, name, SR_IPU, tags="stochastic")
    add("numbering/units", unit_numbering, tags="stochastic counts")


def _register_devices() -> None:
    for target, (shown, control), part in product(
        ("mk2-fp8", "hypothetical"), CONTROLS.items(), ("elementwise", "exact", "products")
    ):
        tags = "stochastic" if control.esr or part == "exact" else ""
        if control.esr and part == "exact":
            tags += " counts"
        add(f"device/{target}/{part}/{shown}", device_case, part, target, control, {}, tags=tags)
    options: dict[str, dict[str, Any]] = {
        "ieee": {"f32_denormals": "ieee"}, "propagate": {"max_nan": "propagate"},
        "half": {"partials": "half"}, "conv_half": {"conv_partials": "half"},
        "exact": {"preset": "exact"}, "sticky": {"preset": "sticky"},
        "sequential": {"preset": "sequential_f32"}, "count": {"count": True},
        "no_sr": {"disable_sr_for_amp_vertices": True},
    }  # fmt: skip
    for name, some in options.items():
        for part in ("elementwise",) if name in ("ieee", "count") else ():
            add(f"device/mk2/{part}/{name}", device_case, part, "mk2", FpCtl(), some)
        if name in ("ieee", "count", "propagate"):
            add(f"device/mk2/exact/{name}", device_case, "exact", "mk2", FpCtl(), some,
                tags="stochastic")  # fmt: skip
        if name not in ("propagate", "half"):
            add(f"device/mk2/products/{name}", device_case, "products", "mk2", FpCtl(esr=True),
                some, tags="stochastic")  # fmt: skip
    add("device/registers", device_registers, tags="stochastic")
    add("numbering/device", device_numbering, tags="stochastic counts")


def _register_trainings() -> None:
    for name, (model, optimizer, choices) in _trainings().items():
        drops = "stochastic" if model in (noisy, cnn) else ""
        add(f"training/rne/{name}", training, model, optimizer, False, choices, tags=drops)
        if "fp32" not in name:
            add(f"training/sr/{name}", training, model, optimizer, True, choices,
                tags="stochastic")  # fmt: skip


_register_arithmetic()
_register_context()
_register_units()
_register_devices()
_register_trainings()

# The program ----------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Compare with the recorded digests; 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.digests", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases, or how their names begin")
    parser.add_argument("--write", action="store_true", help="record the new digests")
    chosen = parser.parse_args(arguments)
    before = golden() if GOLDEN.exists() else {}
    begins = tuple(chosen.names) or ("",)
    after = {name: run(name) for name in CASES if name.startswith(begins)}
    differing = sorted(name for name in after if before.get(name) != after[name])
    gone = sorted(before.keys() - CASES.keys())
    for name in differing:
        print("new " if name not in before else "differs ", name, *sorted(CASES[name].tags))
    for name in gone:
        print("gone ", name)
    print(f"{len(after)} cases, {len(differing)} differ or are new, {len(gone)} are gone")
    if chosen.write:
        kept = {name: value for name, value in (before | after).items() if name in CASES}
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return int(bool(differing or gone))


if __name__ == "__main__":
    sys.exit(main())
