"""The sums of a device in binary32, spread or as one chain, without flags where none can rise.

Source    docs/semantics.md §6 (sums of the device).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fpsim.array import Array
from fpsim.context import Context
from fpsim.products.spread_sums import native_spread_sum, spread_sum, sums_of_binary64
from fpsim.records.formats import BINARY32, Format
from fpsim.records.types import Carrier
from fpsim.rounded_products import native_sum

__all__ = [
    "has_plain_squares", "is_far_from_tiny", "reference_sum", "single_pass_sum", "single_sum",
]


def single_sum(single: Context, x: Array, axes: tuple[int, ...], order: str) -> Array:
    """The sum of an array of binary32, every addition rounded; order is a key of `SUMS`.

    Shapes    the axes vanish.
    """
    if order == "chain":
        return single.sum(x, axes)
    return Array(spread_sum(single.core, x.carrier, axes), single)


def single_pass_sum(
    single: Context, x: Array, axes: tuple[int, ...], order: str, *, squared: bool = False
) -> Array | None:
    """The same, or the sum of squares, of an array of any format, without a cast and a product.

    None for formats whose numbers, or squares, are not all normal ones in binary32; where
    operations are counted; and for sums that could raise other flags than INEXACT.
    """
    is_suitable = has_plain_squares if squared else is_far_from_tiny
    if single.core.counts is not None or not is_suitable(x.context.core.settings.format):
        return None
    if order == "chain":
        return native_sum(single.core, x.carrier, axes, squared=squared)
    values = native_spread_sum(single.core, x.carrier, axes, squared=squared)
    return None if values is None else Array(values, single)


def reference_sum(values: Carrier, axes: tuple[int, ...], order: str) -> Carrier:
    """The sum of binary64 by the processor's own arithmetic: spread, or in numpy's order."""
    if order == "spread":
        return sums_of_binary64(values, axes)
    return np.asarray(values.sum(axis=axes))


@lru_cache(maxsize=64)
def is_far_from_tiny(fmt: Format) -> bool:
    """Whether its numbers, and sums of them, are normal ones or zero in binary32."""
    return fmt.precision < 24 and fmt.smallest_subnormal >= BINARY32.smallest_normal


@lru_cache(maxsize=64)
def has_plain_squares(fmt: Format) -> bool:
    """Whether the squares of its numbers are zero or normal numbers of binary32."""
    if 2 * fmt.precision > BINARY32.precision:
        return False
    least, most = fmt.smallest_subnormal, fmt.max
    return least * least >= BINARY32.smallest_normal and most * most <= BINARY32.max
