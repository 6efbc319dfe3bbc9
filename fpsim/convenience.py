"""round_to: one rounding of numbers, without keeping a Context.

>>> import math, fpsim as fp
>>> round_to(math.pi, fp.F143)
3.25
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.arithmetic import apply
from fpsim.bits import Philox, Replay
from fpsim.context import Context
from fpsim.formats import Format
from fpsim.inputs import floats
from fpsim.rounding import RNE, Rounding

__all__ = ["round_to"]


def round_to(
    x: ArrayLike,
    fmt: Format,
    rounding: Rounding | str = RNE,
    *,
    seed: int = 0,
    random: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    **policies: Any,
) -> Any:
    """x rounded once into a format: a float for a number, carrier values for an array.

    Shapes    as x.
    Rounding  once; stochastic modes take the bits of operation 0 of `seed`, or the integers
              `random` (0 <= R < 2**bits, one for each element).
    Flags     none are kept; use a Context to see them.

    >>> import fpsim as fp
    >>> round_to([0.1, 70000.0], fp.BINARY16, overflow="saturate")
    array([9.9975586e-02, 6.5504000e+04], dtype=float32)
    """
    source = Philox(seed) if random is None else Replay([np.asarray(random)])
    context = Context(fmt, rounding=rounding, bits=source, **policies)
    values = floats(x)
    bits = context.draw(values.shape, context.settings)
    result, _ = apply("convert", (values,), context.settings, out=out, track=False, **bits)
    return float(result) if result.ndim == 0 and out is None else result
