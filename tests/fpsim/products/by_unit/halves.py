"""Products of binary16 matrices and what the loop's tests compare of them."""

from __future__ import annotations

import numpy as np

import fpsim as fp
from fpsim.elementwise.codes import to_codes
from fpsim.records.units import find_unit
from tests.fpsim.in_partials import matmul

HALF = fp.Context(fp.BINARY16)


def half_matrix(shape, seed, scale=1.0):
    return HALF.array(scale * np.random.default_rng(seed).standard_normal(shape))


def result_of(a, b, unit, **choices):
    """Codes of the result and flags."""
    context = fp.Context(find_unit(unit).partials, seed=3, **choices)
    values = matmul(a, b, unit, context=context).values
    return to_codes(values, context.format).tolist(), context.flags
