"""IEEE 754 remainder and C's fmod: exact operations, so only invalid operands raise anything.

Source    IEEE 754-2019 §5.3.1, §7.2; docs/semantics.md §3.
"""

from __future__ import annotations

import numpy as np

from fpsim.elementwise.apply import apply, as_read, broadcast
from fpsim.kernels.elementwise.remainder import remainders
from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.processor import usual_arithmetic

__all__ = ["remainder"]


@usual_arithmetic
@np.errstate(invalid="ignore")
def remainder(
    x: Carrier, y: Carrier, settings: Settings, *, nearest: bool
) -> tuple[Carrier, ElementFlags]:
    """x - n y, with n = x / y rounded to nearest even (IEEE) or toward zero (C); element flags.

    Shapes    x and y broadcast.
    Flags     INVALID for infinite x, zero y and signalling NaN.
    Source    IEEE 754-2019 §5.3.1.
    """
    x, y = broadcast(x, y)
    shape = x.shape
    x, y = x.ravel(), y.ravel()
    a, b = (as_read(v, settings).astype(np.float64) for v in (x, y))
    # Operands are read already; what is tiny from here on is a result.
    flushing = "flush_results" if settings.subnormals == "flush_both" else settings.subnormals
    settings = settings.replace(rounding=RNE, subnormals=flushing)
    exact = a.copy()  # where only y is infinite, x is the answer
    ordinary = np.isfinite(a) & np.isfinite(b) & (b != 0)
    remains = np.empty(int(ordinary.sum()), np.float64)
    remainders(
        a[ordinary].view(np.uint64), b[ordinary].view(np.uint64), remains.view(np.uint64), nearest
    )
    exact[ordinary] = remains
    element_flags = np.empty(x.shape, np.uint8)
    values, _ = apply(
        "convert", (exact.astype(x.dtype),), settings, element_flags=element_flags
    )  # exact but for flushing
    undefined = ~(np.isfinite(a) & (b != 0) & ~np.isnan(b))
    if undefined.any():
        left, right = x[undefined], y[undefined]
        # inf * 0 is what inf rem y and x rem 0 are: invalid. NaN operands stay as they are.
        left = np.where(np.isnan(left), left, left.dtype.type(np.inf))
        right = np.where(np.isnan(right), right, right.dtype.type(0))
        undefined_flags = np.empty(left.shape, np.uint8)
        values[undefined], _ = apply(
            "multiply", (left, right), settings, element_flags=undefined_flags
        )
        element_flags[undefined] = undefined_flags
    return values.reshape(shape), element_flags.reshape(shape)
