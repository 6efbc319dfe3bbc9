"""Convolutions of matrix units and their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from fpsim import BINARY16, Context
from tests.digests.contexts import seeded, status
from tests.digests.operands import SEED, factors, matrix
from tests.digests.registry import Item
from tests.digests.rooms import ROOMS

#: Stride, padding, groups, channels, outputs, kernel.
GEOMETRIES: list[tuple[Any, Any, int, int, int, tuple[int, int]]] = [
    (1, "SAME", 1, 5, 6, (3, 3)),
    (2, "SAME", 1, 4, 6, (3, 5)),
    ((2, 1), "VALID", 2, 8, 4, (2, 3)),
    (1, ((1, 0), (2, 1)), 4, 4, 8, (3, 1)),
    (2, "VALID", 1, 20, 3, (1, 1)),
]


def convolutions(name: str, rounding: Any) -> Iterator[Item]:
    """Forward and both gradients."""
    unit = ROOMS.UNITS[name]
    fmt = unit.inputs[0]
    result = BINARY16 if rounding != "RNE" else unit.partials
    context = seeded(result, rounding)
    for geometry, kind in product(GEOMETRIES, ("ordinary", "special")):
        stride, padding, groups, channels, outputs, size = geometry
        options = {"stride": stride, "padding": padding, "groups": groups, "context": context}
        x, w = factors(
            fmt, fmt, kind, (2, 6, 7, channels), (*size, channels // groups, outputs)
        )
        context.clear_flags()
        y = ROOMS.conv2d(x, w, name, **options)
        rng = np.random.default_rng([SEED, 9])
        gradient = Context(fmt).wrap(matrix(fmt, y.shape, kind, rng))
        yield y
        yield ROOMS.conv2d_input_gradient(gradient, w, name, x.shape, **options)
        yield ROOMS.conv2d_weight_gradient(x, gradient, name, w.shape, **options)
        yield status(context)
