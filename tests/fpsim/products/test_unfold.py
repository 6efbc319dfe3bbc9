"""Convolutions as matrix products: differential (oracle's order, padded images), law (blocks)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.oracle.conv import Convolution
from fpsim.products import unfold
from fpsim.products.unfold import ZERO, blocks, every_position, field, order, weight_matrix
from fpsim.records.geometry import Geometry, geometry
from fpsim.records.units import MatrixUnit

FOUR = MatrixUnit("TEST_F16_F32", "none", (fp.BINARY16,), fp.BINARY32, terms=4, window=23)
UNITS = {
    "four channels": FOUR,
    "two calls": replace(FOUR, calls=2),
    "four taps of two": replace(FOUR, calls=2, taps=4),
    "one pass": replace(FOUR, calls=None),
}


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 5)])
@pytest.mark.parametrize("channels", [1, 3, 4, 9])
def test_terms_stand_in_the_order_of_the_definition(kernel, channels, unit):
    table = order(kernel, channels, unit)
    terms = Convolution(unit, (1, 1), (0, 0), (1, 1)).order(*kernel, channels)
    assert table.tolist() == [[ZERO] * 3 if term is None else list(term) for term in terms]
    assert not table.flags.writeable


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_the_right_operand_has_each_weight_at_its_term(unit):
    kernel = np.arange(1.0, 2 * 3 * 5 * 4 + 1).reshape(2, 3, 5, 4).astype(np.float32)
    table = order((2, 3), 5, unit)
    matrix = weight_matrix(table, kernel)
    assert matrix.shape == (len(table), 4)
    for row, (ky, kx, c) in zip(matrix.tolist(), table.tolist(), strict=True):
        assert row == ([0.0] * 4 if ky == ZERO else kernel[ky, kx, c].tolist())


def test_every_position_is_in_the_order_of_memory():
    kernel = np.arange(24.0).reshape(2, 3, 4, 1).astype(np.float32)
    table = every_position((2, 3), 4)
    assert weight_matrix(table, kernel).reshape(-1).tolist() == list(range(24))
    assert table.dtype == np.int64


GEOMETRIES = {
    "same": geometry((5, 6), (3, 3), (1, 1), "SAME"),
    "strided": geometry((7, 6), (3, 2), (2, 3), "SAME"),
    "valid": geometry((5, 6), (2, 3), (1, 2), "VALID"),
    "cropped": Geometry((6, 6), (3, 3), (1, 1), (-1, -1), (3, 3)),
    "spread": geometry((7, 6), (3, 2), (2, 3), "SAME").turned(),
}


def images(shape, channels, batch=3):
    n = batch * shape.image[0] * shape.image[1] * channels
    return np.arange(1.0, n + 1).reshape(batch, *shape.image, channels).astype(np.float32)


def window(x, shape, output):
    """What output number `output` sees, (KH, KW, C), element by element."""
    image, rest = divmod(output, shape.output[0] * shape.output[1])
    oy, ox = divmod(rest, shape.output[1])
    seen = np.zeros((*shape.kernel, x.shape[3]), np.float32)
    for ky, kx in np.ndindex(*shape.kernel):
        y, not_y = divmod(oy * shape.stride[0] + ky - shape.before[0], shape.spacing[0])
        column, not_x = divmod(ox * shape.stride[1] + kx - shape.before[1], shape.spacing[1])
        if not_y == not_x == 0 and 0 <= y < x.shape[1] and 0 <= column < x.shape[2]:
            seen[ky, kx] = x[image, y, column]
    return seen.reshape(-1).tolist()


@pytest.mark.parametrize("shape", GEOMETRIES.values(), ids=GEOMETRIES)
def test_windows_are_what_outputs_see(shape):
    x = images(shape, 2)
    table = every_position(shape.kernel, 2)
    outputs = len(x) * shape.output[0] * shape.output[1]
    wanted = [window(x, shape, i) for i in range(outputs)]
    for first, last in ((0, outputs), (1, outputs - 1), (outputs // 2, outputs // 2 + 1)):
        windows = field(x, shape, first, last)
        assert windows.rows(table).matrix().tolist() == wanted[first:last]
        assert windows.columns(table).matrix().T.tolist() == wanted[first:last]


def test_groups_begin_at_their_first_channel_and_zeros_stay_zeros():
    shape = GEOMETRIES["strided"]
    x = images(shape, 6)
    table = order(shape.kernel, 3, FOUR)
    for first in (0, 3):
        rows = field(x, shape, 0, 4, filled=True).rows(table, first).matrix()
        one = x[..., first : first + 3].copy()
        alone = field(one, shape, 0, 4, filled=True).rows(table).matrix()
        np.testing.assert_array_equal(rows, alone)
        assert not rows[:, table[:, 0] == ZERO].any()


@pytest.mark.parametrize("multiple", [1, 4])
@pytest.mark.parametrize("piece", [1, 60, 1 << 18])
def test_blocks_are_all_windows_once(piece, multiple, monkeypatch):
    monkeypatch.setattr(unfold, "_PIECE", piece)
    shape = GEOMETRIES["same"]
    x, table = images(shape, 2), every_position(shape.kernel, 2)
    outputs, at, rows = 3 * 5 * 6, 0, []
    for begin, end, windows in blocks(x, shape, multiple):
        assert begin == at
        assert end == outputs or (end - begin) % multiple == 0
        rows += windows.rows(table).matrix().tolist()
        at = end
    assert rows == [window(x, shape, i) for i in range(outputs)]
