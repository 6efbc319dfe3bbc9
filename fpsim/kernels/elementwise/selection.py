"""Values chosen, not computed: of elements, by a mask or their sign.

One pass over memory each. Values move as bits, so NaNs keep their payloads; a NaN that is read is
told to the caller, who knows what reading it raises.
"""

from __future__ import annotations

import numpy as np

from fpsim.kernels.compiling import compiled

__all__ = ["keep_least", "keep_positive", "keep_where"]


@compiled
def keep_where(where, x, out):
    """out = x where true, zero elsewhere; x and out as integers."""
    for i in range(out.shape[0]):
        out[i] = x[i] if where[i] else 0


@compiled
def keep_positive(keys, most, x, out):
    """out = x where 0 < key <= most, zero elsewhere; x and out as integers, keys unsigned."""
    for i in range(out.shape[0]):
        out[i] = x[i] if (keys[i] > 0) & (keys[i] <= most) else 0


@compiled
def keep_least(x, least, out):
    """out = x where x >= least, +0 elsewhere; returns 1 if there is a NaN, else 0."""
    zero = x.dtype.type(0)
    nans = np.int64(0)
    for i in range(out.shape[0]):
        v = x[i]
        nans |= np.int64(v != v)
        out[i] = v if v >= least else zero
    return nans
