"""Pieces of images in tables against padded images in numpy (differential, corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.by_unit.images import fill_windows, place_windows
from fpsim.kernels.by_unit.panels import PLAIN, Shift
from fpsim.products.jobs.windows import Windows
from fpsim.products.unfold import every_position
from fpsim.records.geometry import Geometry, geometry

SHIFTS = {64: Shift(1023 + 3, 623, -14, 8.0, False), 32: Shift(127 + 3, 7, -14, 8.0, False)}

GEOMETRIES = {
    "same": geometry((5, 6), (3, 3), (1, 1), "SAME"),
    "strided": geometry((7, 6), (3, 2), (2, 3), "SAME"),
    "valid": geometry((5, 36), (2, 3), (1, 2), "VALID"),
    "far outside": geometry((3, 2), (2, 2), 1, ((4, 0), (1, 5))),
    "cropped": Geometry((6, 6), (3, 3), (1, 1), (-1, -1), (3, 3)),
    "tiny": geometry((1, 2), (2, 2), 1, "SAME"),
    "spread": geometry((7, 6), (3, 2), (2, 3), "SAME").turned(),
}


def windows(shape, channels):
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((3, *shape.image, channels)).astype(np.float32)
    x.flat[::7] = -0.0
    x.flat[::11] = 2.0**-20
    return Windows(x, shape, every_position(shape.kernel, channels))


def filled(table, lines, width, shift, extra=0):
    """Values, fields, starts and places, with marks behind what is to be written."""
    g, n = table.geometry, table.numbers(*lines)
    outputs = (lines[1] - lines[0]) * g.output[1]
    values, fields = np.full(n + 16, -7.0, f"f{width // 8}"), np.full(n + 16, 5, f"u{width // 8}")
    starts, places = np.full(outputs + extra, -1), np.full(outputs, -1)
    extents = g.kernel, g.stride, g.before, g.output, g.spacing
    used = fill_windows(
        table.x.reshape(-1).view(np.uint32), table.x.shape[1:], extents, lines, values, fields,
        np.zeros(1, fields.dtype), shift,
    )
    place_windows(table.x.shape[3], extents, lines, starts, places, (3, 1000, 100, 10))
    assert used == n
    return values[:n], fields[:n], starts, places


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("channels", [1, 3, 16, 18])
@pytest.mark.parametrize("shape", GEOMETRIES.values(), ids=GEOMETRIES)
def test_windows_in_a_table_are_the_windows_of_the_images(shape, channels, width):
    table, (rows, columns) = windows(shape, channels), shape.output
    whole = np.concatenate([part.matrix() for *_, part in table.pieces(1)])
    for lines in ((0, 3 * rows), (1, 2 * rows + 1), (rows - 1, rows), (rows, 2 * rows)):
        values, fields, starts, places = filled(table, lines, width, SHIFTS[width], extra=3)
        n = len(places)
        assert starts[n:].tolist() == [starts[n - 1]] * 3
        at = np.add.outer(starts[:n], table.offsets())
        expected = whole[lines[0] * columns : lines[1] * columns]
        assert np.array_equal(values[at], expected * 8.0)
        assert np.array_equal(np.signbit(values[at]), np.signbit(expected))
        least, nothing = (SHIFTS[width].bias - 14, SHIFTS[width].nothing)
        exponents = fields[at] >> np.array(23 if width == 32 else 52, fields.dtype)
        low = np.abs(expected) < 2.0**-14
        assert set(exponents[(expected != 0) & low].tolist()) <= {least}
        assert set(exponents[expected == 0].tolist()) <= {nothing}
        assert np.array_equal(
            exponents[~low].astype(int), np.frexp(expected[~low])[1] - 1 + SHIFTS[width].bias
        )
        image, rest = np.divmod(np.arange(lines[0] * columns, lines[1] * columns), rows * columns)
        expected_places = 3 + 1000 * image + 100 * (rest // columns) + 10 * (rest % columns)
        assert np.array_equal(places, expected_places)


def test_an_empty_table_is_left_alone():
    table = windows(GEOMETRIES["same"], 3)
    g, n = table.geometry, table.numbers(0, 5)
    values, none = np.zeros(n + 16, np.float32), np.zeros(0, np.uint32)
    starts, places = np.zeros(30, np.int64), np.zeros(30, np.int64)
    extents = g.kernel, g.stride, g.before, g.output, g.spacing
    fill_windows(
        table.x.reshape(-1).view(np.uint32), table.x.shape[1:], extents, (0, 5), values, none,
        np.zeros(1, np.uint32), PLAIN,
    )
    place_windows(3, extents, (0, 5), starts, places, (0, 0, 0, 0))
    first = next(iter(table.pieces(1)))[2].matrix()[:30]
    assert np.array_equal(values[np.add.outer(starts, table.offsets())], first)
