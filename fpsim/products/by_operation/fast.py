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

from fpsim.elementwise.constants import mode_number
from fpsim.kernels.by_operation.lane_rounding import DIRECTIONS, FUSED_MODES, NATIVE_MODES
from fpsim.kernels.by_operation.results import (
    INFINITE,
    LOOK_FOR_ALL,
    LOOK_FOR_NONE,
    LOOK_FOR_OVERFLOW,
    NAN,
    ROWS,
)
from fpsim.kernels.lanes.arithmetic import HAS_FMA, HAS_HALF
from fpsim.kernels.rounding.direction import HAS_STATUS
from fpsim.products.by_operation.bounds import Product, find_lane, measure
from fpsim.products.by_operation.calls import (
    Bits,
    Call,
    deterministic_call,
    native_call,
    random_call,
)
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY16, BINARY32
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier
from fpsim.state.threads import run_blocks

__all__ = ["run_macs"]

#: Multiply-adds below which a second thread costs more than it gives.
_SMALLEST, _SMALLEST_NATIVE = 1 << 20, 1 << 23

#: Flags of the processor, from its lowest bit on (the second one is not a flag of ours).
_NATIVE_FLAGS = (
    Flags.INVALID, Flags.NONE, Flags.DIVBYZERO, Flags.OVERFLOW, Flags.UNDERFLOW, Flags.INEXACT
)  # fmt: skip

#: What a kernel reports in the places of our flags.
_SEEN = int(Flags.INEXACT | Flags.UNDERFLOW | Flags.OVERFLOW)


def run_macs(
    settings: Settings, fused: bool, a: Carrier, b: Carrier, bits: Bits | None, known: Flags
) -> tuple[Carrier, int] | None:
    """The product and its flags (those that are `known` may be missing); None if no kernel fits."""
    if not _is_ordinary(settings, fused, bits):
        return None
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    # Infinities times the zeros that fill the last panel would raise a flag of their own.
    if _is_native(settings, fused) and np.isfinite(a).all():
        return _run_native(settings, fused, a, b)
    product = measure(settings, fused, a, b)
    lane = find_lane(product) if product else None
    if product is None or lane is None:
        return None
    call = random_call(product, lane, bits) if bits else deterministic_call(product, lane)
    return _run_staged(product, call, known)


def _is_ordinary(settings: Settings, fused: bool, bits: Bits | None) -> bool:
    """Whether the fast kernels know the mode and the policies."""
    rounding = settings.rounding
    return (
        HAS_STATUS
        and mode_number(rounding) in (FUSED_MODES if fused else DIRECTIONS)
        and rounding.stochastic == (bits is not None)
        and rounding.residual == "truncate"
        and settings.subnormals == "keep"
        and settings.nan == "canonical"
        and not settings.quiet_nan_raises
    )


def _run_staged(product: Product, call: Call, known: Flags) -> tuple[Carrier, int]:
    """The rows of the result; flags are looked for until all possible ones have been seen."""
    rows, n = len(product.a), product.b.shape[1]
    out = np.empty((rows, n), product.a.dtype)
    smallest = max(ROWS, _SMALLEST // max(1, product.b.size))
    flags, first, size = int(product.certain), 0, ROWS
    possible = product.possible & ~known
    while first < rows:
        watched = _watched(possible & ~Flags(flags & _SEEN))
        last = rows if watched == LOOK_FOR_NONE else min(rows, first + size)
        flags |= run_blocks(partial(call, out, watched=watched), first, last, smallest, ROWS)
        first, size = last, 4 * size
    return out, _as_flags(product, flags)


def _watched(unknown: Flags) -> int:
    """What has to be looked for to know these flags."""
    if not unknown:
        return LOOK_FOR_NONE
    return LOOK_FOR_OVERFLOW if unknown == Flags.OVERFLOW else LOOK_FOR_ALL


def _as_flags(product: Product, seen: int) -> int:
    flags = Flags(seen & _SEEN)
    if seen & (NAN | INFINITE) and product.shows_overflow:
        flags |= Flags.OVERFLOW
    if flags & Flags.OVERFLOW:
        flags |= Flags.INEXACT
    if seen & NAN and product.settings.overflow == "infinity":
        flags |= Flags.INVALID  # infinities have met; else NaN is what overflow gives
    return int(flags)


def _is_native(settings: Settings, fused: bool) -> bool:
    """Whether the processor itself has the format, the mode and the policies."""
    return (
        settings.format in ((BINARY32, BINARY16) if HAS_HALF else (BINARY32,))
        and mode_number(settings.rounding) in NATIVE_MODES
        and settings.overflow == "infinity"
        and settings.tininess == "after"
        and (HAS_FMA or not fused)
    )


def _run_native(settings: Settings, fused: bool, a: Carrier, b: Carrier) -> tuple[Carrier, int]:
    """By the processor's own operations and flags."""
    out = np.empty((len(a), b.shape[1]), np.float32)
    call = partial(native_call(settings, fused, a, b), out, watched=LOOK_FOR_NONE)
    raised = run_blocks(call, 0, len(a), max(ROWS, _SMALLEST_NATIVE // b.size), ROWS) >> 8
    flags = Flags.NONE
    for i, flag in enumerate(_NATIVE_FLAGS):
        if raised >> i & 1:
            flags |= flag
    return out, int(flags)
