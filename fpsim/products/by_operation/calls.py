"""The fast kernels of products rounded after every operation, with constants and packed operands.

Source    docs/semantics.md §1 and §2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.constants import LANES, Lane, plan
from fpsim.kernels.by_operation.deterministic import MacVariant, mac_kernel
from fpsim.kernels.by_operation.halves import STEP, put_halves
from fpsim.kernels.by_operation.lane_rounding import BY_SIDE, GROWS, STOPS, MacRule
from fpsim.kernels.by_operation.results import (
    ANYWHERE,
    IN_SUMS,
    LOOK_FOR_ALL,
    NOWHERE,
    ROWS,
    STRETCH,
)
from fpsim.kernels.by_operation.stochastic import RandomRule, RandomVariant, random_kernel
from fpsim.kernels.random.words import NO_WORDS
from fpsim.kernels.rounding.rule import RoundingRule
from fpsim.kernels.target import HAS_FMA, PRODUCT_BITS
from fpsim.products.by_operation.bounds import ProductRange, block_lows
from fpsim.products.by_operation.panels import column_panels
from fpsim.products.by_operation.rules import MacRules
from fpsim.products.jobs.job import to_read
from fpsim.records.formats import BINARY16, BINARY32
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier

__all__ = ["NATIVE", "Bits", "Call", "deterministic_call", "native_call", "random_call"]

#: Formats that processors have, not all of them (see `fpsim.products.by_operation.fast`).
NATIVE = {BINARY32: LANES[32], BINARY16: Lane(width=16, digits=11, bias=15)}

#: Multiply-adds from which the smallest factors of stretches are looked for.
_LEAST_WORK = 1 << 20

_CALM = MacRule._fields.index("calm")

#: What kernels get in their place.
_NO_LOWS = np.ones((1, 1))

_Lows = tuple[NDArray[np.float64], NDArray[np.float64]]

#: seen = call(out, first, last, watched): these rows of the result; which flags are looked for.
Call = Callable[..., int]


class Bits(NamedTuple):
    """Which random bits an operation takes: those of Philox with this seed, by its number."""

    seed: int
    number: int


def _mac_constants(rules: MacRules, lane: Lane) -> tuple[NDArray[np.unsignedinteger], int]:
    """Constants of the kernels, without `calm`; what overflow becomes."""
    entry = rules.constants.get(lane.width)
    if entry is None:
        rule = _mac_rule(rules, lane)
        dtype = plan("multiply", rules.settings, lane.width).constants.dtype
        entry = rules.constants[lane.width] = np.array(rule, dtype), _beyond(rule, lane)
    return entry


def _mac_rule(rules: MacRules, lane: Lane) -> MacRule:
    settings = rules.settings
    fmt = settings.format
    rule = RoundingRule(*map(int, plan("multiply", settings, lane.width).constants))
    drop = lane.digits - fmt.precision
    return MacRule(
        floor=fmt.emin + lane.bias << lane.digits - 1,
        step=drop << lane.digits - 1 | 1 << lane.digits - 2,
        lift=drop + lane.bias << lane.digits - 1 | 1 << lane.digits - 2,
        below=(1 << drop) - 1,
        last=1 << drop,
        over_pos=rule.over_pos,
        over_neg=rule.over_neg | lane.sign,
        value_pos=rule.over_value_pos,
        value_neg=rule.over_value_neg,
        tiny_pos=rule.tiny_pos,
        tiny_neg=rule.tiny_neg | lane.sign,
        # An exact zero sum is -0 toward -infinity, so there +0 is what changes nothing.
        start=0 if settings.rounding.minus_zero else lane.sign,
        nan=rule.nan_set,
        zero=lane.sign if fmt.has_negative_zero else 0,
        split=lane.bits(2.0**drop + 1),
        calm=0,
    )


def deterministic_call(product: ProductRange, lane: Lane) -> Call:
    rules = product.rules
    (constants, beyond), checked = _mac_constants(rules, lane), _where(product)
    calm = product.calm if checked == IN_SUMS else 0.0
    if calm:
        constants = constants.copy()
        constants[_CALM] = lane.bits(calm)
    small, fused, mode, direction = product.small, rules.fused, rules.mode, rules.variant.direction
    a = to_read(product.a.astype(f"f{lane.width // 8}", copy=False))
    b = column_panels(product.b, 2 * PRODUCT_BITS // lane.width, None, f"f{lane.width // 8}")
    left, right = _lows(product, b.shape[2])
    large, splits = left is not _NO_LOWS, rules.variant.splits

    def call(out: Carrier, first: int, last: int, watched: int) -> int:
        few = watched != LOOK_FOR_ALL
        variant = MacVariant(
            mode, direction, fused, False, small, checked, beyond, watched, HAS_FMA,
            few and calm > 0, few and large, splits,
        )
        lows = left[first // ROWS if large else 0 :]
        return int(mac_kernel(variant)(a[first:last], b, out[first:last], constants, lows, right))

    return call


def _lows(product: ProductRange, columns: int) -> _Lows:
    """Smallest factors of blocks of rows and of panels in each stretch of terms.

    Nothing where that is not worth a look: small jobs, and where products are seldom all large.
    """
    (m, k), n = product.a.shape, product.b.shape[1]
    if m * k * n < _LEAST_WORK or not (product.small and product.rules.in_integers):
        return _NO_LOWS, _NO_LOWS
    left, right = _lows_of(product, product.a[: 8 * ROWS], product.b[:, : 4 * columns], columns)
    if (left[:, None] * right >= 1).mean() < 0.5:
        return _NO_LOWS, _NO_LOWS
    return _lows_of(product, product.a, product.b, columns)


def _lows_of(product: ProductRange, a: Carrier, b: Carrier, columns: int) -> _Lows:
    """Over the smallest normal number, so that products are at least 1 where none is small."""
    right = block_lows(b, STRETCH, columns).T / product.rules.smallest_normal
    return block_lows(a, ROWS, STRETCH), np.ascontiguousarray(right)


def _where(product: ProductRange) -> int:
    """Where something may overflow; products that do not, rounded neither do."""
    if not product.checked:
        return NOWHERE
    return ANYWHERE if product.largest > product.rules.largest else IN_SUMS


def _beyond(rule: MacRule | RandomRule, lane: Lane) -> int:
    """What overflow becomes: kernels have shorter ways where both signs are alike."""
    size = rule.value_pos & ~lane.sign
    if rule.over_pos != rule.over_neg & ~lane.sign or size != rule.value_neg & ~lane.sign:
        return BY_SIDE
    return STOPS if size < lane.infinity else GROWS


@lru_cache(maxsize=256)
def _random_constants(settings: Settings, lane: Lane) -> NDArray[np.unsignedinteger]:
    fmt = settings.format
    constants = plan("multiply", settings, lane.width).constants
    rule = RoundingRule(*map(int, constants))
    drop, everything = lane.digits - fmt.precision, lane.sign | (lane.sign - 1)
    quantum, lift = 2.0 ** (1 - fmt.precision), 1.5 * 2.0**drop
    return np.array(
        RandomRule(
            shift=lane.width - drop,
            mask=everything >> drop << drop,
            digits=everything ^ everything >> settings.random_bits,
            floor=fmt.emin + lane.bias << lane.digits - 1,
            quantum=lane.bits(quantum),
            lift=lane.bits(lift),
            sink=lane.bits(lift + quantum) | lane.sign,
            random_bits=settings.random_bits,
            random_most=settings.random_most,
            over_pos=rule.largest + 1,
            over_neg=rule.largest + 1 | lane.sign,
            value_pos=rule.over_value_pos,
            value_neg=rule.over_value_neg,
            tiny_pos=lane.bits(fmt.smallest_normal),
            tiny_neg=lane.bits(fmt.smallest_normal) | lane.sign,
            nan=rule.nan_set,
            zero=lane.sign if fmt.has_negative_zero else 0,
        ),
        constants.dtype,
    )


def random_call(product: ProductRange, lane: Lane, bits: Bits) -> Call:
    settings = product.rules.settings
    fused, fmt = product.rules.fused, settings.format
    wide = settings.random_most > 16
    terms = (4 if wide else 8) // (1 if fused else 2)
    k, n = product.b.shape
    depth = -(-k // terms) * terms
    # The lanes' own subnormal numbers are spaced as the format's.
    small = product.small and fmt.smallest_subnormal >= 2.0 ** (1 - lane.bias)
    constants = _random_constants(settings, lane)
    variant = RandomVariant(
        fused, wide, small, settings.random_most > settings.random_bits, _where(product),
        _beyond(RandomRule(*map(int, constants)), lane), 0, HAS_FMA,
    )
    a = np.zeros((len(product.a), depth), f"f{lane.width // 8}")
    a[:, :k] = product.a
    b = column_panels(product.b, 2 * 512 // lane.width, depth, f"f{lane.width // 8}")

    def call(out: Carrier, first: int, last: int, watched: int) -> int:
        loop = random_kernel(variant._replace(watched=watched))
        flags: int = loop(
            a[first:last], b, out[first:last], NO_WORDS, constants, first * n,
            np.uint64(bits.seed), np.uint64(bits.number),
        )
        return flags

    return call


#: Constants that tell kernels to use lanes of 32 bits.
_LIKE = np.zeros(1, np.uint32)


def _halves(x: Carrier) -> NDArray[np.uint16]:
    """The codes of binary16 numbers."""
    flat, more = x.reshape(-1), -x.size % STEP
    if more:
        flat = np.append(flat, np.zeros(more, np.float32))
    codes = np.empty(flat.size, np.uint16)
    put_halves(to_read(flat), _LIKE, codes)
    return codes[: x.size].reshape(x.shape)


def _pairs(x: Carrier) -> NDArray[np.uint32]:
    """The codes of binary16 numbers, each twice."""
    codes = _halves(x).astype(np.uint32)
    return codes | codes << np.uint32(16)


@cache
def _native_loop(lane: Lane, variant: MacVariant, minus_zero: bool) -> tuple[Any, Carrier]:
    """The kernel of numbers that the processor has, and its constants."""
    rule = MacRule(*[0] * len(MacRule._fields))._replace(
        over_pos=lane.sign, start=0 if minus_zero else lane.sign, nan=lane.infinity | lane.quiet,
        zero=lane.sign,
    )
    loop = mac_kernel(variant._replace(native=True, splits=False))
    return loop, np.array(rule, f"u{lane.width // 8}")


def native_call(rules: MacRules, a: Carrier, b: Carrier) -> Call:
    """By the processor's own operations in the format; what is seen are its flags, 8 bits up."""
    lane = NATIVE[rules.settings.format]
    loop, constants = _native_loop(lane, rules.variant, rules.settings.rounding.minus_zero)
    left, right = (_pairs(a), _halves(b)) if lane.width == 16 else (a, b)
    left, panels = to_read(left), column_panels(right, 2 * PRODUCT_BITS // lane.width)

    def call(out: Carrier, first: int, last: int, watched: int) -> int:
        return int(loop(left[first:last], panels, out[first:last], constants, _NO_LOWS, _NO_LOWS))

    return call
