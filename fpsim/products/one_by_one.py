"""Sums and products as single elementwise operations, where no kernel has the policy.

Source    docs/semantics.md §3 (subnormals) and §4 (order).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fpsim.elementwise.apply import apply
from fpsim.products.jobs.shapes import result_shape
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags

__all__ = ["product_one_by_one", "sums_one_by_one"]

#: Values and their flags.
Outcome = tuple[Carrier, ElementFlags]


def _operation(settings: Settings, flags: ElementFlags) -> Callable[..., Carrier]:
    """Operations in these settings that add their flags to an array of them."""

    def operation(name: str, *operands: Carrier) -> Carrier:
        raised = np.zeros(flags.shape, np.uint8)
        values, _ = apply(name, operands, settings, element_flags=raised)
        np.bitwise_or(flags, raised, out=flags)
        return values

    return operation


def sums_one_by_one(rows: Carrier, settings: Settings, *, divide: bool) -> Outcome:
    """Sums of rows (outputs, elements) in ascending order, or means."""
    flags = np.zeros(len(rows), np.uint8)
    do = _operation(settings, flags)
    n = rows.shape[1]
    total = rows[:, 0].copy() if n else np.zeros(len(rows), rows.dtype)
    for j in range(1, n):
        total = do("add", total, rows[:, j])
    return do("divide", total, np.full(len(rows), float(n))) if divide else total, flags


def product_one_by_one(a: Carrier, b: Carrier, settings: Settings, *, fused: bool) -> Outcome:
    """a @ b with terms in ascending order, rounded after every operation or once per term."""
    shape = result_shape(a.shape, b.shape)
    flags = np.zeros(shape, np.uint8)
    do = _operation(settings, flags)
    total = np.zeros(shape, a.dtype)
    for k in range(a.shape[-1]):
        left, right = (np.broadcast_to(v, shape) for v in (a[..., k : k + 1], b[..., k : k + 1, :]))
        if k == 0:
            total = do("multiply", left, right)
        elif fused:
            total = do("fma", left, right, total)
        else:
            total = do("add", total, do("multiply", left, right))
    return total, flags
