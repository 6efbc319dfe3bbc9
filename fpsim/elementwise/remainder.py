"""IEEE 754 remainder and C's fmod: exact operations, so only invalid operands raise anything.

Source    IEEE 754-2019 §5.3.1, §7.2; docs/semantics.md §3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import Carrier, apply, as_read, broadcast, fold
from fpsim.kernels.elementwise.remainder import remainders
from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings
from fpsim.state.processor import usual_arithmetic

__all__ = ["remainder"]


@usual_arithmetic
@np.errstate(invalid="ignore")
def remainder(
    x: Carrier,
    y: Carrier,
    settings: Settings,
    *,
    nearest: bool,
    element_flags: NDArray[np.uint8] | None = None,
) -> tuple[Carrier, int]:
    """x - n y, with n = x / y rounded to nearest even (IEEE) or toward zero (C).

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
    some = np.empty(int(ordinary.sum()), np.float64)
    remainders(
        a[ordinary].view(np.uint64), b[ordinary].view(np.uint64), some.view(np.uint64), nearest
    )
    exact[ordinary] = some
    marks = np.empty(x.shape, np.uint8)
    values, _ = apply(
        "convert", (exact.astype(x.dtype),), settings, element_flags=marks
    )  # exact but for flushing
    undefined = ~(np.isfinite(a) & (b != 0) & ~np.isnan(b))
    if undefined.any():
        left, right = x[undefined], y[undefined]
        # inf * 0 is what inf rem y and x rem 0 are: invalid. NaN operands stay as they are.
        left = np.where(np.isnan(left), left, left.dtype.type(np.inf))
        right = np.where(np.isnan(right), right, right.dtype.type(0))
        some_marks = np.empty(left.shape, np.uint8)
        values[undefined], _ = apply("multiply", (left, right), settings, element_flags=some_marks)
        marks[undefined] = some_marks
    if element_flags is not None:
        element_flags.reshape(-1)[:] = marks
    return values.reshape(shape), fold(marks)
