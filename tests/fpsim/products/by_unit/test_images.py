"""Products of windows as they lie in images against pieces written out (differential, corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.products.by_unit import dispatch as engines
from fpsim.products.by_unit import images, tiles
from fpsim.products.by_unit.dispatch import accumulate
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.windows import Windows
from fpsim.products.unfold import every_position, order
from fpsim.records.geometry import geometry
from fpsim.records.settings import Settings
from fpsim.records.units import find_unit
from fpsim.state.draws import NO_PLACES
from tests.fpsim.in_partials import conv2d_weight_gradient
from tests.threads import on_threads
from tests.tiers import pick

UNITS = ["AMP_F16_F32.exact", "AMP_F32_F32", "AMP_F16_F32", "AMP_F16_F16", "V100_F16_F32"]

#: Image, kernel, stride, padding, channels, outputs: one channel, fillers, no multiples of 16.
SHAPES = {
    "one channel": ((7, 9), (5, 5), 1, "VALID", 1, 10),
    "three": ((5, 7), (3, 3), 1, "SAME", 3, 17),
    "strided": ((9, 8), (3, 2), (2, 3), "SAME", 18, 5),
    "wide": ((4, 4), (1, 1), 2, ((2, 0), (0, 3)), 35, 33),
}


def numbers(shape, rng, kind, fmt):
    """Signed zeros and subnormals among others; an infinity and a NaN where special."""
    x = rng.standard_normal(shape)
    if kind == "subnormal":
        x *= 2.0 ** rng.integers(-26, 3, shape)
    x[rng.random(shape) < 0.2] = -0.0
    if kind == "special":
        x.flat[rng.integers(0, x.size, 2)] = [np.inf, np.nan]
    return fp.Context(fmt).array(x).carrier


def product(settings, left, right, shape, columns):
    values, flags = np.zeros((shape, columns), np.float32), np.zeros((shape, columns), np.uint8)
    accumulate(settings, left, right, values, flags, NO_PLACES, fresh=True)
    return np.where(np.isnan(values), np.float32("nan"), values).view(np.uint32), flags


@pytest.mark.parametrize("name", pick(UNITS[:2], UNITS, UNITS))
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", ["normal", "subnormal", "special"])
@pytest.mark.parametrize("turned", [False, True])
def test_images_give_what_written_out_windows_give(name, shape, kind, turned, monkeypatch):
    unit, rng = find_unit(name), np.random.default_rng(7)
    image, kernel, stride, padding, channels, n = shape
    extents, fmt = geometry(image, kernel, stride, padding), unit.inputs[0]
    x = numbers((3, *image, channels), rng, kind, fmt)
    settings = UnitSettings(unit, fmt, fmt, Settings(unit.partials))
    table = every_position(kernel, channels) if turned else order(kernel, channels, unit)
    left = Windows(x, extents, table, turned=turned)
    right = numbers((left.shape[1], n), rng, "normal" if kind == "special" else kind, fmt)
    right[table[:, 0] < 0 if not turned else []] = 0
    complete = np.concatenate([rows.matrix() for *_, rows in left.pieces(1)], axis=int(turned))
    expected = product(settings, np.ascontiguousarray(complete), right, len(complete), n)
    # Products with infinities may leave too little for a second thread.
    second = 1 if kind == "special" else 2
    for threads, piece in ((1, 1 << 16), (1, 200), (second, 500)):
        monkeypatch.setattr(images, "_PIECE", piece)
        monkeypatch.setattr(images, "_SMALLEST", 1)
        monkeypatch.setattr("fpsim.products.by_unit.panels._SMALLEST", 1)
        got = on_threads(threads, lambda: product(settings, left, right, len(complete), n))
        for value, want in zip(got, expected, strict=True):
            assert np.array_equal(value, want)


@pytest.mark.parametrize("columns", [5, 40])
@pytest.mark.parametrize("unit", ["AMP_F16_F32", "AMP_F16_F16"])
def test_threads_of_a_weight_gradient_draw_the_words_of_their_outputs(unit, columns, monkeypatch):
    monkeypatch.setattr(images, "_PIECE", 300)
    rng, half = np.random.default_rng(3), fp.Context(fp.BINARY16)
    x, g = (half.array(rng.standard_normal(s)) for s in ((3, 6, 7, 18), (3, 6, 7, columns)))

    def gradient():
        context, shape = fp.Context(fp.BINARY16, rounding=fp.SR(10), seed=5), (3, 3, 18, columns)
        return conv2d_weight_gradient(x, g, unit, shape, padding="SAME", context=context).codes()

    expected = on_threads(1, gradient)
    for threads in (2, 3, 5):
        assert np.array_equal(on_threads(threads, gradient), expected)


def test_ordinary_images_are_never_written_out(monkeypatch):
    """The fast engines take windows as a whole; none of the others is asked."""

    def refuse(_job):
        raise AssertionError("windows were written out")

    monkeypatch.setattr(engines, "ENGINES", [*engines.FAST, refuse])
    extents = geometry((6, 6), (3, 3), 1, "SAME")
    x = fp.Context(fp.BINARY16).array(np.ones((2, 6, 6, 16))).carrier
    for name in UNITS[2:]:
        unit = find_unit(name)
        settings = UnitSettings(unit, fp.BINARY16, fp.BINARY16, Settings(unit.partials))
        table = order((3, 3), 16, unit)
        right = np.ones((len(table), 4), np.float32)
        values, _ = product(settings, Windows(x, extents, table), right, 72, 4)
        assert values.view(np.float32)[7].tolist() == [144.0] * 4


@pytest.mark.parametrize("name", ["AMP_F16_F32.exact", "AMP_F32_F32"])
@pytest.mark.parametrize("kind", ["normal", "special"])
def test_a_target_is_where_results_go_and_nothing_else_changes(name, kind):
    unit, rng = find_unit(name), np.random.default_rng(2)
    extents, fmt = geometry((3, 4), (2, 2), 1, "SAME"), unit.inputs[0]
    x, table = numbers((2, 3, 4, 5), rng, kind, fmt), order((2, 2), 5, unit)
    right = numbers((len(table), 18), rng, "normal", fmt)
    right[table[:, 0] < 0] = 0
    settings = UnitSettings(unit, fmt, fmt, Settings(unit.partials))
    alone, raised = product(settings, Windows(x, extents, table), right, 24, 18)
    target = ((8 + 1) * 18, 6 * 8 * 18, 2 * 8 * 18, 2 * 18)
    left = Windows(x, extents, table, target=target)
    values, flags = product(settings, left, right, 2 * 6 * 8, 18)
    inner = np.s_[:, 1::2, 1::2]
    for got, want in ((values, alone), (flags, raised)):
        placed = got.reshape(2, 6, 8, 18)
        assert np.array_equal(placed[inner].reshape(24, 18), want)
        placed[inner] = 0
        assert not placed.any()


def test_deep_windows_go_in_pieces(monkeypatch):
    """Panels that would pass the bound: the same result from pieces written out."""
    unit = find_unit("AMP_F16_F32.exact")
    extents = geometry((5, 5), (3, 3), 1, "SAME")
    x = numbers((2, 5, 5, 16), np.random.default_rng(1), "normal", fp.BINARY16)
    table = order((3, 3), 16, unit)
    right = numbers((len(table), 7), np.random.default_rng(2), "normal", fp.BINARY16)
    settings = UnitSettings(unit, fp.BINARY16, fp.BINARY16, Settings(unit.partials))
    complete = product(settings, Windows(x, extents, table), right, 50, 7)
    monkeypatch.setattr(tiles, "fits", lambda *_: False)
    monkeypatch.setattr(tiles, "run_windows", None)
    pieces = product(settings, Windows(x, extents, table), right, 50, 7)
    assert all(np.array_equal(a, b) for a, b in zip(complete, pieces, strict=True))
