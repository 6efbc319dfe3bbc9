"""One product through every engine that takes it, alone and beside hostile neighbours.

An output depends on its own row, its own column and its own partial alone. So a product at random
(`random_units`) is computed

- by each engine that takes it (window, also in its widest lanes; exact; fused; general), alone;
- the same without the processor's fused multiply-adds, for some of the products;
- as windows of images, as windows turned for a gradient, as rows that are not written out, with
  operands that lie transposed in memory, as one of a stack;
- by `fpsim.linalg.matmul` between rows and columns in the top binade, of NaN, of infinities, of
  subnormals, of zeros, of anything;

and every output, code and flags, is compared with exact fractions. Shapes have K from 1 to several
passes, some of hundreds of terms, rows and columns around the edges of tiles; one in thirty is so
large that two threads share it, and some of its outputs are judged.

Source    docs/semantics.md §2 and §5.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.context import Context
from fpsim.elementwise.codes import from_codes, is_held, to_codes
from fpsim.judge.oracle.outputs import Outputs, code_of
from fpsim.judge.oracle.random import product_word
from fpsim.judge.oracle.units import Ask, Draw, no_draw, one_output
from fpsim.judge.verify.random_units import (
    SHAPES,
    Codes,
    Shape,
    UnitTrial,
    codes_of,
    draw_case,
    named_case,
    ties,
)
from fpsim.judge.verify.report import VerificationReport
from fpsim.linalg import matmul
from fpsim.products.by_unit import exact, task
from fpsim.products.by_unit.dispatch import finish, multiply
from fpsim.products.by_unit.exact import run_exact
from fpsim.products.by_unit.fused import run_fused
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.by_unit.window import run_window
from fpsim.products.jobs.job import Engine, Job
from fpsim.products.jobs.rows import Rows
from fpsim.products.jobs.windows import Windows
from fpsim.products.unfold import every_position, order, weight_matrix
from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.records.geometry import Geometry
from fpsim.records.types import Carrier, ElementFlags
from fpsim.records.units import UNITS, MatrixUnit
from fpsim.state.bits import Replay
from fpsim.state.draws import NO_PLACES, Places
from fpsim.state.draws import Draw as Bits
from fpsim.state.threads import get_threads, set_threads

__all__ = ["ENGINES", "ComparedProduct", "verify", "verify_product", "verify_together"]

#: The engines by name; the widest lanes of the windowed one are those that all of its units fit.
ENGINES: dict[str, Engine] = {
    "window": run_window, "window in 64 bits": partial(run_window, lanes=64), "exact": run_exact,
    "fused": run_fused, "general": run_general,
}

_ROWS, _COLUMNS = (1, 2, 3, 4, 5, 8, 9, 17), (1, 1, 2, 3, 5, 15, 16, 17, 33)
_HOSTILE = ("large", "top", "nan", "infinite", "subnormal", "zero", "any")

#: Products of which one is long, one is large, one runs without fused multiply-adds, and one is
#: called as users do; outputs of which one is judged by both oracles, and those of a large product
#: that are judged.
_LONG, _LARGE, _PLAIN, _CALLED, _TWICE, _SOME = 23, 31, 5, 3, 61, 48

#: In the place of an output's flags, where only those of all outputs are known.
_NO_FLAGS = 255

#: Where a product stands in a bordered one: rows and columns before it, and in all.
Place = tuple[int, int, int, int]
Outcome = tuple[Carrier, ElementFlags]


@dataclass(frozen=True)
class Operands:
    """Codes of a product.

    Shapes    a (M, K), b (K, N), start (M, N).
    """

    a: Codes
    b: Codes
    start: Codes


class ComparedProduct:
    """The product of that number under a seed: operands, neighbours, and what the oracle says."""

    def __init__(self, seed: int, number: int, shape: Shape, unit: MatrixUnit | None) -> None:
        self.number, self.shape = number, shape
        rng = np.random.default_rng([seed, number])
        drawn = draw_case(rng, shape, number) if unit is None else named_case(rng, unit, shape)
        self.case = case = drawn
        self.large = number % _LARGE == _LARGE - 1
        m, n, k = _extents(rng, case.unit, number, large=self.large)
        near = _Nearby(rng, case)
        self.alone = near.operands(m, n, k)
        self.place, self.wide = _bordered(rng, case, near, self.alone)
        self.zero_start = bool(rng.random() < 0.4)
        if self.zero_start:
            _clear(self.alone, self.wide, self.place)
        self.seed = int(rng.integers(1 << 40))
        self.settings = self.new_settings()
        self.judged = list(np.ndindex(m, n))
        if self.large:
            self.judged = [self.judged[i] for i in rng.permutation(m * n)[:_SOME]]
        outputs = self.place[2] * self.place[3]
        self.places_of_k = self.settings.rounding_places(k)
        most = case.settings.random_most
        shape_of_words = (len(self.places_of_k), outputs)
        self.words = rng.integers(0, 1 << most, shape_of_words).astype(np.uint32)

    def new_settings(self) -> UnitSettings:
        """Settings whose kernels are chosen anew."""
        case = self.case
        return UnitSettings(
            case.unit, case.a, case.b, case.settings, case.scale, case.subnormals
        )

    @property
    def random(self) -> bool:
        """Whether anything is rounded stochastically."""
        return self.case.settings.rounding.stochastic

    @property
    def places(self) -> Places:
        """Random words of the outputs, counted in the bordered product."""
        return self.every_place.part(*self.place[:2])

    @property
    def every_place(self) -> Places:
        """Those of the bordered product."""
        if not self.random:
            return NO_PLACES
        words = self.words.reshape(-1) if self.case.replay else None
        seed = np.uint64(0 if self.case.replay else self.seed)
        return Places(
            Bits(seed, np.uint64(0), words), self.places_of_k, self.place[2:],
            wide=self.case.settings.random_most > 16,
        )

    def draw(self, row: int, column: int) -> Draw:
        """The words of an output as the oracle takes them."""
        if not self.random:
            return no_draw
        top, left, _, columns = self.place
        number, most = (top + row) * columns + left + column, self.case.settings.random_most

        def word(place: int) -> int:
            if place not in self.places_of_k:
                return 0
            if not self.case.replay:
                return product_word(self.seed, 0, number, place, most)
            return int(self.words[place - self.places_of_k.start, number]) << (32 - most)

        return word

    @cached_property
    def ask(self) -> Ask:
        case = self.case
        return Ask(case.unit, case.a, case.b, case.settings, case.scale, self.settings.policy)

    @cached_property
    def expected(self) -> tuple[Codes, NDArray[np.uint8]]:
        """Codes and flags of the outputs that are judged."""
        alone = self.alone
        a, b, start = alone.a.tolist(), alone.b.T.tolist(), alone.start.tolist()
        outputs = Outputs(self.ask, a, b, start)
        pairs = [outputs(i, j, self.draw(i, j)) for i, j in self.judged]
        codes = np.array([code for code, _ in pairs], np.uint32)
        return codes, np.array([int(flags) for _, flags in pairs], np.uint8)

    def second_opinions(self) -> Iterator[tuple[int, int, Flags]]:
        """Number, code and flags of some outputs by the oracle of the definition's words."""
        alone, ask = self.alone, self.ask
        for n in range(self.number % _TWICE, len(self.judged), _TWICE):
            i, j = self.judged[n]
            datum, flags = one_output(
                ask,
                alone.a[i].tolist(),
                alone.b[:, j].tolist(),
                int(alone.start[i, j]),
                self.draw(i, j),
            )
            yield n, code_of(datum, ask.settings.format), flags


def _extents(
    rng: np.random.Generator, unit: MatrixUnit, number: int, *, large: bool
) -> tuple[int, int, int]:
    """Rows, columns, terms."""
    if large:
        return int(rng.integers(40, 70)), int(rng.integers(33, 80)), int(rng.integers(280, 420))
    m, n = int(rng.choice(_ROWS)), int(rng.choice(_COLUMNS))
    if number % _LONG == _LONG - 1:
        return min(m, 5), min(n, 17), int(rng.integers(257, 600))
    channels = unit.channels
    lengths = [1, channels - 1, channels, channels + 1, 2 * channels, 3 * channels + 2]
    return m, n, max(1, min(int(rng.choice(lengths)), 80))


class _Nearby:
    """Codes around exponents that the formats of a product have in common."""

    def __init__(self, rng: np.random.Generator, case: UnitTrial) -> None:
        self.rng, self.case = rng, case
        self.span = case.unit.window or int(rng.integers(1, 60))
        middles = [int(rng.integers(f.emin, f.emax + 1)) for f in (case.a, case.b)]
        if rng.random() < 0.7:  # most products should not overflow
            middles = [min(max(m, -20), 12) for m in middles]
        self.near_a, self.near_b = middles
        self.near_start = sum(middles) + case.scale + int(rng.choice([-30, -9, 0, 0, 1, 4]))

    def operands(self, m: int, n: int, k: int) -> Operands:
        """Those of a product, of its kind; some cancel each other."""
        rng, case, half = self.rng, self.case, self.span // 2
        kind = "near" if case.kind in ("wide", "top", "tie") else case.kind
        start = codes_of(rng, case.unit.partials, (m, n), kind, self.near_start, self.span)
        if case.kind == "tie":
            start[rng.random(start.shape) < 0.6] = 0
            return Operands(*ties(rng, case, (m, n, k)), start)
        a = codes_of(rng, case.a, (m, k), case.kind, self.near_a, half)
        b = codes_of(rng, case.b, (k, n), case.kind, self.near_b, self.span - half)
        if rng.random() < 0.25 and k > 1:
            even = k - k % 2
            a[:, 1:even:2], b[1:even:2] = _negative(a[:, 0:even:2], case.a), b[0:even:2]
        return Operands(a, b, start)


def _negative(codes: Codes, fmt: Format) -> Codes:
    """The codes of the other sign; a zero of a format with one zero stays."""
    other = codes ^ np.uint32(1 << (fmt.bits - 1))
    return other if fmt.has_negative_zero else np.where(codes == 0, codes, other)


def _bordered(
    rng: np.random.Generator, case: UnitTrial, near: _Nearby, alone: Operands
) -> tuple[Place, Operands]:
    """The product between hostile rows and columns, and where it stands there."""
    (m, k), n = alone.a.shape, alone.b.shape[1]
    top, left, bottom, right = (int(x) for x in rng.integers(0, 4, 4))
    rows, columns = top + m + bottom, left + n + right
    # Sums that overflow where no operand is infinite or out of a fast engine's range.
    kinds = ("large",) if rng.random() < 0.5 else _HOSTILE
    large = case.unit.accumulator.emax // 2 + 2
    a = _hostile(rng, case.a, (rows, k), 0, large, kinds)
    b = _hostile(rng, case.b, (k, columns), 1, large, kinds)
    partials = "special" if kinds == _HOSTILE else "top"
    start = codes_of(rng, case.unit.partials, (rows, columns), partials, 0, 8)
    a[top : top + m], b[:, left : left + n] = alone.a, alone.b
    start[top : top + m, left : left + n] = alone.start
    return (top, left, rows, columns), Operands(a, b, start)


def _hostile(
    rng: np.random.Generator, fmt: Format, shape: tuple[int, int], axis: int, large: int = 8,
    kinds: tuple[str, ...] = _HOSTILE,
) -> Codes:
    """Codes whose rows, or columns, are each hostile in one way.

    large    an exponent whose squares are beyond the sums.
    """
    codes = np.empty(shape, np.uint32)
    nan = to_codes(np.full(1, np.nan, fmt.carrier), fmt)[0] if fmt.has_nan else 0
    infinity = to_codes(np.full(1, np.inf, fmt.carrier), fmt)[0] if fmt.has_infinity else nan
    for i in range(shape[axis]):
        line = codes[i] if axis == 0 else codes[:, i]
        kind = str(rng.choice(kinds))
        if kind == "large":
            line[...] = codes_of(rng, fmt, line.shape, "near", large, 1)
        elif kind in ("top", "subnormal"):
            line[...] = codes_of(rng, fmt, line.shape, kind, 0, 1)
        elif kind == "any":
            line[...] = rng.integers(0, fmt.n_codes, line.shape)
        else:
            line[...] = {"nan": nan, "infinite": infinity, "zero": 0}[kind]
    return codes


def _clear(alone: Operands, wide: Operands, place: Place) -> None:
    """Start from zeros."""
    top, left, *_ = place
    alone.start[...] = 0
    wide.start[top : top + alone.start.shape[0], left : left + alone.start.shape[1]] = 0


# Ways -----------------------------------------------------------------------------------------


def _values(codes: Codes, fmt: Format) -> Carrier:
    values: Carrier = from_codes(codes.astype(fmt.code_dtype), fmt)
    return values


@contextmanager
def _without_fma() -> Iterator[None]:
    """Kernels as on a processor that has no fused multiply-add."""
    before = task.HAS_FMA, exact.HAS_FMA
    task.HAS_FMA = exact.HAS_FMA = False
    try:
        yield
    finally:
        task.HAS_FMA, exact.HAS_FMA = before


@contextmanager
def _two_threads() -> Iterator[None]:
    before = get_threads()
    set_threads(2)
    try:
        yield
    finally:
        set_threads(before)


class _Ways:
    """Every way to compute a product; each gives values and flags of its own outputs, or None."""

    def __init__(self, product: ComparedProduct) -> None:
        self.product, case, alone = product, product.case, product.alone
        self.a, self.b = _values(alone.a, case.a), _values(alone.b, case.b)
        self.start = _values(alone.start, case.unit.partials)
        self.k = alone.a.shape[1]

    def __iter__(self) -> Iterator[tuple[str, Callable[[], Outcome | None]]]:
        settings = self.product.settings
        for name, engine in ENGINES.items():
            yield name, partial(self.engine, engine, settings)
        if self.product.number % _PLAIN == 0 and self.product.shape.fma:
            for name in ("window", "exact", "fused"):
                yield f"{name} without FMA", partial(self.plain, ENGINES[name])
        yield "neighbours", self.neighbours
        if self.product.number % _CALLED == 0:
            yield "matmul with neighbours", self.called
        if not self.product.large:
            yield "rows", lambda: self.form(Rows.of(self.a), self.b)
            yield "transposed", self.transposed
            if self.product.case.unit.taps == 1:  # else a pass takes four positions
                yield "windows", self.windows
            yield "turned windows", self.turned
            if not self.product.random:
                yield "stack", self.stack

    def engine(self, engine: Engine, settings: UnitSettings) -> Outcome | None:
        """One engine and no other."""
        places = self.product.places
        values, flags = self.start.copy(), np.zeros(self.start.shape, np.uint8)
        job = Job(settings, self.a, self.b, values, flags, places, fresh=self.product.zero_start)
        if not engine(job):
            return None
        finish(settings, self.k, values, flags, places)
        return values, flags

    def plain(self, engine: Engine) -> Outcome | None:
        with _without_fma():
            return self.engine(engine, self.product.new_settings())

    def form(self, a: Carrier | Rows | Windows, b: Carrier) -> Outcome:
        """Any engine, of a left operand in another form."""
        product = self.product
        start = None if product.zero_start else self.start
        return multiply(product.settings, a, b, start, self.start.shape, product.places)

    def transposed(self) -> Outcome:
        return self.form(np.asfortranarray(self.a), np.asfortranarray(self.b))

    def windows(self) -> Outcome:
        """A convolution with kernels of one element."""
        unit, (m, k) = self.product.case.unit, self.a.shape
        geometry = Geometry((m, 1), (1, 1), (1, 1), (0, 0), (m, 1))
        table = order((1, 1), k, unit)
        left = Windows(np.ascontiguousarray(self.a).reshape(1, m, 1, k), geometry, table)
        return self.form(left, weight_matrix(table, self.b.reshape(1, 1, k, -1)))

    def turned(self) -> Outcome:
        """The gradient to such a kernel: the terms are the outputs of the convolution."""
        m, k = self.a.shape
        geometry = Geometry((k, 1), (1, 1), (1, 1), (0, 0), (k, 1))
        image = np.ascontiguousarray(self.a.T).reshape(1, k, 1, m)
        return self.form(Windows(image, geometry, every_position((1, 1), m), turned=True), self.b)

    def stack(self) -> Outcome:
        """The last of three products with right operands of their own."""
        product, case = self.product, self.product.case
        rng = np.random.default_rng(product.seed)
        a, b, start = (np.stack([x] * 3) for x in (self.a, self.b, self.start))
        a[0] = _values(_hostile(rng, case.a, self.a.shape, 0), case.a)
        b[1] = _values(_hostile(rng, case.b, self.b.shape, 1), case.b)
        values, flags = multiply(product.settings, a, b, start, start.shape, NO_PLACES)
        return values[2], flags[2]

    def neighbours(self) -> Outcome:
        """Hostile rows and columns around the product."""
        product = self.product
        shape = product.place[2:]
        a, b, start = self.wide
        values, flags = multiply(product.settings, a, b, start, shape, product.every_place)
        return values[self.inside], flags[self.inside]

    def called(self) -> Outcome:
        """The same by the function that users call, whose flags are those of all outputs."""
        product, case = self.product, self.product.case
        s, (*_, rows, columns) = case.settings, product.place
        bits = None
        if product.random and case.replay:
            shape = (len(product.places_of_k), rows, columns)
            bits = Replay([product.words.reshape(shape)])
        context = Context(
            s.format, rounding=s.rounding, overflow=s.overflow, subnormals=s.subnormals,
            tininess=s.tininess, quiet_nan_raises=s.quiet_nan_raises, bits=bits,
            seed=product.seed if bits is None else 0,
        )
        formats = case.a, case.b, case.unit.partials
        a, b, start = (
            Array(values, Context(fmt)) for values, fmt in zip(self.wide, formats, strict=True)
        )
        result = matmul(
            a, b, case.unit, context=context, accumulator=start, scale=case.scale,
            subnormals=case.subnormals,
        )
        return result.values[self.inside], np.full(self.start.shape, _NO_FLAGS, np.uint8)

    @cached_property
    def wide(self) -> tuple[Carrier, Carrier, Carrier]:
        """Both operands and the partials with their neighbours."""
        wide, case = self.product.wide, self.product.case
        formats = case.a, case.b, case.unit.partials
        a, b, start = (
            _values(codes, fmt)
            for codes, fmt in zip((wide.a, wide.b, wide.start), formats, strict=True)
        )
        return a, b, start

    @property
    def inside(self) -> tuple[slice, slice]:
        """The product itself among its neighbours."""
        (top, left, *_), (m, n) = self.product.place, self.start.shape
        return np.s_[top : top + m, left : left + n]


# Verdicts -------------------------------------------------------------------------------------


def verify_product(product: ComparedProduct, report: VerificationReport, again: str) -> None:
    """Every way of one product against the oracle; `again` is the command that repeats it."""
    codes, flags = product.expected
    report.checked += len(codes)
    for n, code, raised in product.second_opinions():
        if (code, int(raised)) != (codes[n], flags[n]):
            report.fail(1, [f"{again}  # the two oracles differ at output {product.judged[n]}"])
    at = tuple(np.array(product.judged, np.intp).T)
    threads = _two_threads if product.large else _as_it_is
    for name, way in _Ways(product):
        with threads():
            outcome = way()
        if outcome is None:
            continue
        report.notes[name] = report.notes.get(name, 0) + len(codes)
        values, got_flags = outcome[0][at], outcome[1][at]
        wrong = _differ(product, values, got_flags)
        if wrong.any():
            lines = (
                _line(product, name, int(i), (values[i], int(got_flags[i])), again)
                for i in np.flatnonzero(wrong)
            )
            report.fail(int(wrong.sum()), lines)


def _differ(
    product: ComparedProduct, values: Carrier, got_flags: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Where values are no numbers of the result's format, have other codes, or other flags."""
    (codes, flags), fmt = product.expected, product.case.settings.format
    held = is_held(values, fmt)
    got = to_codes(np.where(held, values, fmt.carrier.type(0)), fmt)
    wrong: NDArray[np.bool_] = ~held | (got != codes)
    wrong |= (got_flags != flags) & (got_flags != _NO_FLAGS)
    return wrong


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


def _line(
    product: ComparedProduct, way: str, i: int, got: tuple[np.floating[Any], int], again: str
) -> str:
    """What was wrong, after the command that shows it again."""
    codes, flags = product.expected
    case, (row, column) = product.case, product.judged[i]
    alone, unit = product.alone, replace(case.unit, evidence={})
    digits, fmt = -(-case.settings.format.bits // 4), case.settings.format
    value = np.atleast_1d(got[0])
    text = f"{got[0]}, no number of {fmt}"
    if is_held(value, fmt).all():
        text = f"{to_codes(value, fmt)[0]:0{digits}X}"
    got_flags = "flags not compared" if got[1] == _NO_FLAGS else str(Flags(got[1]))
    return (
        f"{again}  # {way}: output ({row}, {column}) is {text} ({got_flags}), exact "
        f"{codes[i]:0{digits}X} ({Flags(int(flags[i]))}); {unit!r}, a {case.a!r} b {case.b!r} "
        f"into {case.settings!r}, scale={case.scale}, subnormals={case.subnormals!r}, row "
        f"{[hex(x) for x in alone.a[row]]}, column {[hex(x) for x in alone.b[:, column]]}, start "
        f"{int(alone.start[row, column]):#x}"
    )


def verify(
    *, outputs: int, seed: int = 0, first: int = 0, step: int = 1,
    units: tuple[MatrixUnit, ...] = (), shapes: tuple[Shape, ...] = SHAPES,
    watch: Callable[[int], None] = lambda done: None,
) -> VerificationReport:
    """Products number first, first + step … until so many outputs have been judged.

    units     those, in turn; default: units at random.
    shapes    what is compiled in, in turn; of named units only how partials are stored.

    >>> print(verify(outputs=100, shapes=SHAPES[3:4]))      # doctest: +ELLIPSIS
    engines, seed 0: 1... outputs, 0 mismatches, 1... general, ...
    """
    report = VerificationReport(f"engines, seed {seed}", "outputs")
    for number in count(first, step):
        if report.checked >= outputs:
            return report
        unit = units[number % len(units)] if units else None
        shape = shapes[number // max(1, len(units)) % len(shapes)]
        product = ComparedProduct(seed, number, shape, unit)
        again = f"fpsim verify engines --seed {seed} --product {number}"
        every = len(units) > 1 and units == tuple(UNITS.values())
        again += " --unit all" if every else "".join(f" --unit {u}" for u in units)
        verify_product(product, report, again)
        watch(len(product.judged))
    raise AssertionError("counting never ends")


def verify_together(
    jobs: int, *, outputs: int, seed: int = 0, units: tuple[MatrixUnit, ...] = (),
    watch: Callable[[int], None] = lambda done: None,
) -> VerificationReport:
    """The same by processes, each of which takes every so-many-th product."""
    if jobs == 1:
        return verify(outputs=outputs, seed=seed, units=units, watch=watch)
    total = VerificationReport(f"engines, seed {seed}", "outputs")
    share = partial(_share, -(-outputs // jobs), seed, jobs, units)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for report in pool.map(share, range(jobs)):
            total.include(report)
            watch(report.checked)
    return total


def _share(
    outputs: int, seed: int, jobs: int, units: tuple[MatrixUnit, ...], first: int
) -> VerificationReport:
    return verify(outputs=outputs, seed=seed, first=first, step=jobs, units=units)
