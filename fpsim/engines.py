"""How a product runs: what its record asks of the kernels, pass by pass and block by block.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Carrier
from fpsim.formats import BINARY32, Format
from fpsim.kernels.store import store_kernel
from fpsim.kernels.unit_general import Call, run_pass, split_operand
from fpsim.parallel import run_blocks
from fpsim.places import Places, Words
from fpsim.plan import Plan, exact_width, plan
from fpsim.rounding import RTZ
from fpsim.settings import Settings
from fpsim.units import MatrixUnit

__all__ = ["Product", "run"]

Marks = NDArray[np.uint8]

#: Rows of a block: bounds the workspace of the split operands.
_ROWS = 256

#: Products below which a second thread costs more than it gives.
_SMALLEST_GENERAL = 1 << 12


@dataclass(frozen=True)
class Store:
    """One rounding of partials or of the result."""

    chosen: Plan

    def __call__(self, values: Carrier, marks: Marks, words: Words, low: bool) -> int:
        loop = store_kernel(self.chosen.mode, low, self.chosen.residual)
        return int(loop(values, marks, words, self.chosen.constants))


@dataclass(frozen=True)
class Product:
    """A unit with the formats and policies of one product."""

    unit: MatrixUnit
    a: Format
    b: Format
    settings: Settings
    scale: int = 0
    subnormals: str | None = None

    @cached_property
    def policy(self) -> str:
        """What happens to binary32 subnormals of the unit."""
        if self.subnormals is not None:
            return self.subnormals
        return self.settings.subnormals if self.settings.format == BINARY32 else "keep"

    @cached_property
    def call(self) -> Call:
        """The record as the general kernel reads it."""
        unit = self.unit
        short = unit.accumulator.emin == BINARY32.emin
        join = unit.join
        return Call(
            terms=unit.terms,
            calls=unit.calls,
            window=-1 if unit.window is None else unit.window,
            sticky=int(unit.cut == "sticky"),
            fraction=self.a.precision + self.b.precision - 2,
            scale=self.scale,
            precision=unit.accumulator.precision,
            emin=unit.accumulator.emin,
            emax=unit.accumulator.emax,
            to_zero=int(unit.rounding is RTZ),
            join=join.precision if join else 0,
            join_emin=join.emin if join else 0,
            join_emax=join.emax if join else 0,
            product_rounded=int(unit.product_rounded),
            flush_in=int(short and self.policy == "flush_both"),
            flush_out=int(short and self.policy != "keep"),
            tiny_before=int(self.settings.tininess == "before"),
            loud_nan=int(self.settings.quiet_nan_raises),
        )

    @cached_property
    def store(self) -> Store | None:
        """The rounding of partials narrower than the sums."""
        narrower = self.unit.partials.precision < self.unit.emitted.precision
        return _store(self.settings, self.unit.partials) if narrower else None

    @cached_property
    def final(self) -> Store | None:
        """The last rounding, into a result narrower than the partials."""
        fmt = self.settings.format
        return _store(self.settings, fmt) if fmt != self.unit.partials else None

    def passes(self, k: int) -> int:
        """Passes over k products."""
        return -(-k // self.unit.channels)

    def places(self, k: int) -> range:
        """Rounding places by the context: the stores of an output, then the last rounding."""
        n = self.passes(k)
        return range(0 if self.store else n, n + 1 if self.final else n)


@lru_cache(maxsize=256)
def _store(settings: Settings, fmt: Format) -> Store:
    """Partials read out follow the overflow policy also where the accumulator is infinite."""
    chosen = settings if settings.format == fmt else None
    overflow = chosen.overflow if chosen else None
    rule = Settings(
        fmt,
        settings.rounding,
        overflow=overflow,
        subnormals=chosen.subnormals if chosen else "keep",
        tininess=settings.tininess,
        quiet_nan_raises=settings.quiet_nan_raises,
    )
    infinite = "keep" if rule.overflow == "infinity" else rule.overflow
    rule = Settings(
        fmt, rule.rounding, overflow=rule.overflow, subnormals=rule.subnormals,
        tininess=rule.tininess, infinite_input=infinite, quiet_nan_raises=rule.quiet_nan_raises,
    )  # fmt: skip
    return Store(plan("convert", rule, exact_width("convert", rule, 4)))


def run(
    product: Product, a: Carrier, b: Carrier, start: Carrier | None, shape: tuple[int, ...],
    places: Places,
) -> tuple[Carrier, Marks]:  # fmt: skip
    """Result values in the partials' carrier and the flags of each element."""
    values = np.zeros(shape, np.float32)
    if start is not None:
        values[...] = start
    marks = np.zeros(shape, np.uint8)
    if b.ndim == 2:
        a = a.reshape(-1, a.shape[-1])
        rows, columns = a.shape[0], shape[-1]
        _run_matrix(
            product, a, b, values.reshape(rows, columns), marks.reshape(rows, columns), places, 0
        )
        return values, marks
    batch, size = shape[:-2], math.prod(shape[-2:])
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    for i, index in enumerate(np.ndindex(*batch)):
        _run_matrix(product, a[index], b[index], values[index], marks[index], places, i * size)
    return values, marks


def _run_matrix(
    product: Product, a: Carrier, b: Carrier, values: Carrier, marks: Marks, places: Places,
    first: int,
) -> None:  # fmt: skip
    """One matrix product in general terms: values hold the partials and receive the result."""
    columns = _split(product, b.T, product.b)
    n = values.shape[1]

    def work(begin: int, end: int) -> int:
        for r in range(begin, end, _ROWS):
            part = slice(r, min(r + _ROWS, end))
            rows = _split(product, a[part], product.a)
            _run_rows(product, rows, columns, values[part], marks[part], places, first + r * n)
        return 0

    if values.size:
        run_blocks(work, 0, values.shape[0], max(1, _SMALLEST_GENERAL // max(1, n * a.shape[1])))


Split = tuple[NDArray[np.int32], NDArray[np.int32]]


def _split(product: Product, operand: Carrier, fmt: Format) -> Split:
    """Significands and exponents, padded to whole passes, in the order the unit takes them."""
    k = product.passes(operand.shape[1]) * product.unit.channels
    shape = (operand.shape[0], k)
    significands, exponents = np.empty(shape, np.int32), np.empty(shape, np.int32)
    flush = product.policy == "flush_both" and fmt == BINARY32
    split_operand(
        operand.view(np.uint32), significands, exponents, fmt.precision, fmt.emin, int(flush)
    )
    if product.unit.order == "pairs":
        order = _pairs(product.unit.channels, k)
        return significands[:, order], exponents[:, order]
    return significands, exponents


@lru_cache(maxsize=64)
def _pairs(channels: int, k: int) -> NDArray[np.intp]:
    """Of each pass the terms with bit 1 of their number clear, then the others."""
    number = np.arange(k)
    return np.argsort(number // channels * 2 + (number >> 1 & 1), kind="stable")


def _run_rows(
    product: Product, rows: Split, columns: Split, values: Carrier, marks: Marks, places: Places,
    first: int,
) -> None:  # fmt: skip
    flat, flat_marks = values.reshape(-1), marks.reshape(-1)
    kept: dict[int, Words] = {}
    channels, k = product.unit.channels, rows[0].shape[1]
    for number in range(k // channels):
        run_pass(*rows, *columns, number * channels, values.view(np.uint32), marks, product.call)
        if product.store:
            words = places.words(number, first, flat.size, kept)
            product.store(flat, flat_marks, words, places.low)
    if product.final:
        words = places.words(k // channels, first, flat.size, kept)
        product.final(flat, flat_marks, words, places.low)
