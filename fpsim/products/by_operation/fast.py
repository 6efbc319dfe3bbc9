"""Which fast kernel runs a product that is rounded after every operation.

They want exact products and sums in range, so the magnitudes of the operands decide: lanes of 32
bits where products of theirs are exact and normal there, else lanes of 64. Whether anything can
overflow is bounded beforehand; if it can, the kernels look at every step. The flags INEXACT,
UNDERFLOW and OVERFLOW are looked for until all that are possible have been seen.

Source    docs/semantics.md §1, §2 and §4.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fpsim.kernels.by_operation.results import (
    INFINITE,
    LOOK_FOR_ALL,
    LOOK_FOR_NONE,
    LOOK_FOR_OVERFLOW,
    NAN,
    ROWS,
)
from fpsim.kernels.target import HAS_HALF
from fpsim.products.by_operation.bounds import ProductRange, find_lane, measure
from fpsim.products.by_operation.calls import (
    Bits,
    Call,
    deterministic_call,
    native_call,
    random_call,
)
from fpsim.products.by_operation.rules import MacRules, mac_rules
from fpsim.records.flags import Flags
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier
from fpsim.state.threads import run_blocks

__all__ = ["run_macs"]

#: Multiply-adds below which a second thread costs more than it gives.
_SMALLEST, _SMALLEST_NATIVE = 1 << 20, 1 << 23

_INEXACT, _UNDERFLOW, _OVERFLOW, _INVALID = map(
    int, (Flags.INEXACT, Flags.UNDERFLOW, Flags.OVERFLOW, Flags.INVALID)
)
#: What a kernel reports in the places of our flags.
_SEEN = _INEXACT | _OVERFLOW | _UNDERFLOW


def run_macs(
    settings: Settings, fused: bool, a: Carrier, b: Carrier, bits: Bits | None, raised: int
) -> tuple[Carrier, int] | None:
    """The product and its flags (those that are `known` may be missing); None if no kernel fits."""
    rules = mac_rules(settings, fused)
    if not rules.is_ordinary or settings.rounding.stochastic != (bits is not None):
        return None
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    # Infinities times the zeros that fill the last panel would raise a flag of their own.
    native = rules.native_bits == 32 or (rules.native_bits == 16 and HAS_HALF)
    if native and np.isfinite(a).all():
        out, flags = _run_native(rules, a, b)
        if rules.certain_tiny or not flags & _UNDERFLOW:
            return out, flags
    product = measure(rules, a, b)
    lane = find_lane(product) if product else None
    if product is None or lane is None:
        return None
    call = random_call(product, lane, bits) if bits else deterministic_call(product, lane)
    return _run_staged(product, call, raised)


def _run_staged(product: ProductRange, call: Call, raised: int) -> tuple[Carrier, int]:
    """The rows of the result; flags are looked for until all possible ones have been seen."""
    rows, n = len(product.a), product.b.shape[1]
    out = np.empty((rows, n), product.a.dtype)
    smallest = max(ROWS, _SMALLEST // max(1, product.b.size))
    flags, first, size = product.certain, 0, ROWS
    possible = product.possible & ~raised
    while first < rows:
        unknown = possible & ~(flags & _SEEN)
        watched = LOOK_FOR_ALL if unknown else LOOK_FOR_NONE
        if unknown == _OVERFLOW:
            watched = LOOK_FOR_OVERFLOW
        last = rows if watched == LOOK_FOR_NONE else min(rows, first + size)
        flags |= run_blocks(partial(call, out, watched=watched), first, last, smallest, ROWS)
        first, size = last, 4 * size
    return out, _as_flags(product.rules, flags)


def _as_flags(rules: MacRules, events: int) -> int:
    flags = events & _SEEN
    if events & (NAN | INFINITE) and rules.shows_overflow:
        flags |= _OVERFLOW
    if flags & _OVERFLOW:
        flags |= _INEXACT
    if events & NAN and rules.settings.overflow == "infinity":
        flags |= _INVALID  # infinities have met; else NaN is what overflow gives
    return flags


def _run_native(rules: MacRules, a: Carrier, b: Carrier) -> tuple[Carrier, int]:
    """By the processor's own operations and flags."""
    out = np.empty((len(a), b.shape[1]), np.float32)
    call = partial(native_call(rules, a, b), out, watched=LOOK_FOR_NONE)
    flags = run_blocks(call, 0, len(a), max(ROWS, _SMALLEST_NATIVE // b.size), ROWS) >> 8
    return out, flags
