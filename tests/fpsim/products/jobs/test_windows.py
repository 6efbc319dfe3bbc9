"""Windows of images: differential (element by element), law (blocks, room)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.products.jobs import windows as windows_of_images
from fpsim.products.jobs.windows import ZERO, Windows, blocks, field, kept_by
from fpsim.products.unfold import every_position, order
from fpsim.records.geometry import Geometry, geometry
from fpsim.records.units import MatrixUnit

FOUR = MatrixUnit("TEST_F16_F32", "none", (fp.BINARY16,), fp.BINARY32, terms=4, window=23)

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
    numbers = np.zeros((*shape.kernel, x.shape[3]), np.float32)
    for ky, kx in np.ndindex(*shape.kernel):
        y, not_y = divmod(oy * shape.stride[0] + ky - shape.before[0], shape.spacing[0])
        column, not_x = divmod(ox * shape.stride[1] + kx - shape.before[1], shape.spacing[1])
        if not_y == not_x == 0 and 0 <= y < x.shape[1] and 0 <= column < x.shape[2]:
            numbers[ky, kx] = x[image, y, column]
    return numbers.reshape(-1).tolist()


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
    monkeypatch.setattr(windows_of_images, "_PIECE", piece)
    shape = GEOMETRIES["same"]
    x, table = images(shape, 2), every_position(shape.kernel, 2)
    outputs, at, rows = 3 * 5 * 6, 0, []
    for begin, end, windows in blocks(x, shape, multiple):
        assert begin == at
        assert end == outputs or (end - begin) % multiple == 0
        rows += windows.rows(table).matrix().tolist()
        at = end
    assert rows == [window(x, shape, i) for i in range(outputs)]


@pytest.mark.parametrize("shape", GEOMETRIES.values(), ids=GEOMETRIES)
@pytest.mark.parametrize("turned", [False, True])
def test_pieces_together_are_the_matrix(shape, turned):
    x, table = images(shape, 6), order(shape.kernel, 3, FOUR)
    complete = Windows(x, shape, table, 3, turned)
    filled = field(x, shape, 0, 3 * shape.output[0] * shape.output[1], filled=True)
    expected = (filled.columns if turned else filled.rows)(table, 3).matrix()
    assert complete.shape == expected.shape
    pieces = [rows.matrix() for *_, rows in complete.pieces(1)]
    assert np.array_equal(np.concatenate(pieces, axis=int(turned)), expected)


@pytest.mark.parametrize("shape", GEOMETRIES.values(), ids=GEOMETRIES)
@pytest.mark.parametrize("numbers", [1, 100, 400, 10_000])
@pytest.mark.parametrize("multiple", [1, 4, 6])
def test_rows_of_outputs_are_as_many_as_fit(shape, numbers, multiple):
    windows = Windows(images(shape, 2), shape, every_position(shape.kernel, 2))
    rows, columns = shape.output
    lines = windows.lines_of(numbers, multiple)
    assert lines >= 1
    assert lines * columns % multiple == 0
    if multiple == 1 and lines > 1 and lines <= windows.lines:
        assert windows.numbers(0, lines) <= numbers
    if multiple == 1 and numbers >= windows.numbers(0, rows):
        assert lines % rows == 0


def test_outputs_of_a_target_stand_where_their_row_begins():
    """Odd rows and even columns of a result of 3 columns, as a phase of an input gradient."""
    shape = Geometry((2, 3), (1, 1), (1, 1), (0, 0), (2, 3))
    result = np.arange(2 * 5 * 6 * 3).reshape(2, 5, 6, 3)
    target = (6 * 3, 5 * 6 * 3, 2 * 6 * 3, 2 * 3)
    windows = Windows(images(shape, 2, 2), shape, every_position((1, 1), 2), target=target)
    assert np.array_equal(windows.outputs(0, 12, 3), result[:, 1::2, ::2][:, :2].reshape(-1, 3))
    plain = windows._replace(target=None)
    assert np.array_equal(plain.outputs(4, 9, 3), np.arange(36).reshape(12, 3)[4:9])


def test_what_a_table_gives_is_computed_once_unless_it_can_be_written():
    calls = []

    def compute(table, factor):
        calls.append(factor)
        return factor * table.sum()

    fixed, open_one = np.arange(6, dtype=np.int64), np.arange(6, dtype=np.int64)
    fixed.flags.writeable = False
    assert [kept_by(fixed, compute, n) for n in (1, 2, 1, 2)] == [15, 30, 15, 30]
    assert calls == [1, 2]
    assert kept_by(open_one, compute, 3) == 45
    open_one[:] = 1
    assert kept_by(open_one, compute, 3) == 18
