"""The loop of tiles: guards, lanes and stacks change the time and no bit (law, corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.elementwise.codes import from_codes
from fpsim.products.by_unit import dispatch, tiles
from fpsim.products.by_unit import window as engine_window
from fpsim.products.by_unit.dispatch import accumulate
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.settings import Settings
from fpsim.records.units import find_unit
from fpsim.state.draws import NO_PLACES
from tests.fpsim.in_partials import matmul
from tests.fpsim.products.by_unit.halves import HALF, half_matrix, result_of
from tests.threads import on_threads
from tests.tiers import pick

#: Units of the tests, each with a kernel of its own; the quick tier takes one of each engine.
PARTIALS = ["AMP_F16_F16", "AMP_F16_F16.exact", "V100_F16_F16"]
WINDOWS = ["V100_F16_F32", "H100_F16_F32", "H100_F16_F16", "A100_TF32_F32", "ADA_E4M3_F32"]
STORES = ["AMP_F16_F16", "AMP_F16_F32", "VMAC_F16_F16"]
STACKED = ["AMP_F16_F32.exact", "AMP_F16_F16", "AMP_F32_F32", "AMP_F16_F32", "V100_F16_F32"]


# Guards -----------------------------------------------------------------------------------------


def test_a_tile_whose_sum_binary64_cannot_hold_is_done_again(fast_only):
    """2**30 + 2**-48 - 2**30 has 79 digits; the guard sees that the short way lost some."""
    a, b = np.ones((6, 40)), np.ones((40, 20))
    a[3, 16:20], b[16:20, 11] = [2.0**15, 2.0**-24, -(2.0**15), 0], [2.0**15, 2.0**-24, 2.0**15, 0]
    a[3, :16] = a[3, 20:] = 0
    got = matmul(HALF.array(a), HALF.array(b), "AMP_F16_F32.exact").values
    assert got[3, 11] == 2.0**-48
    assert np.add.accumulate(a[3, 16:20] * b[16:20, 11])[-1] == 0
    assert got[0, 0] == 40


@pytest.mark.parametrize("unit", pick(PARTIALS[:1], PARTIALS, PARTIALS))
@pytest.mark.parametrize("overflow", ["infinity", "saturate"])
def test_a_partial_that_overflows_on_the_way_is_seen(unit, overflow, fast_only):
    """A later pass brings the sum back; the policy has acted by then."""
    a = np.zeros((5, 64))
    a[2, 0], a[2, 32] = 60000, -60000
    b = np.ones((64, 18))
    b[:, 7] = 2
    choices = {} if unit.startswith("V100") else {"overflow": overflow}
    codes, flags = result_of(HALF.array(a), HALF.array(b), unit, **choices)
    got = from_codes(np.array(codes, np.uint16), fp.BINARY16)
    saturates = overflow == "saturate" and unit.startswith("AMP")
    assert got[2, 7] == (65504 - 120000 if saturates else np.inf)
    assert got[2, 6] == 0
    assert flags == fp.Flags.OVERFLOW


# Lanes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 2.0**-13])
@pytest.mark.parametrize("unit", pick(WINDOWS[:1], WINDOWS, WINDOWS))
def test_lanes_of_32_and_of_64_bits_agree(unit, scale, fast_only, monkeypatch):
    inputs = fp.Context(find_unit(unit).inputs[0])
    rng = np.random.default_rng(2)
    m, k, n = pick((40, 96, 48), (200, 600, 200), (900, 900, 900))
    signs = rng.choice([-1, 1], (m, k))
    a = inputs.array(signs * scale * 2.0 ** rng.uniform(-6, 3, (m, k)))
    b = inputs.array(scale * rng.standard_normal((k, n)))
    narrow = result_of(a, b, unit)
    monkeypatch.setattr(engine_window, "_narrow", lambda *_: False)
    assert result_of(a, b, unit) == narrow


def test_sums_of_sixteen_largest_products_keep_their_sign(fast_only):
    """With the accumulator they reach 2**31 units of the last digit that counts."""
    a = np.full((1, 32), 2 - 2.0**-10)
    for sign in (1, -1):
        got = matmul(HALF.array(sign * a), HALF.array(a.T), "H100_F16_F32").values
        assert got.tolist() == [[sign * 32 * (2 - 2.0**-10) ** 2]]


# Stores -----------------------------------------------------------------------------------------


@pytest.mark.source("poplibs: disableSRForAMPVertices")
@pytest.mark.parametrize("unit", pick(STORES[:2], STORES, STORES))
def test_stores_may_round_to_nearest_in_a_stochastic_context(unit):
    a, b = half_matrix((9, 80), 0), half_matrix((80, 21), 1)
    nearest = matmul(a, b, unit, context=HALF)
    context = fp.Context(fp.BINARY16, rounding=fp.SR(8), seed=1)
    quiet = matmul(a, b, unit, context=context, stochastic_stores=False)
    loud = matmul(a, b, unit, context=context.replace(seed=1))
    if unit == "AMP_F16_F32":  # the last rounding is the context's
        assert np.array_equal(quiet.values, loud.values)
    else:
        assert np.array_equal(quiet.values, nearest.values)
        assert not np.array_equal(quiet.values, loud.values)
    assert context.operation == 1


# Stacks -------------------------------------------------------------------------------------------

#: Leading dimensions, rows, K and columns: whole tiles and parts of them, several panels, no batch
#: of one operand, one number.
SHAPES = [
    ((6,), (6,), 8, 16, 16),
    ((2, 3), (2, 3), 5, 7, 37),
    ((4, 1), (1, 3), 9, 33, 3),
    ((5,), (), 1, 1, 1),
    ((3,), (3,), 1, 40, 17),
]


def operands(unit, shape, scale=1.0):
    left, right, m, k, n = shape
    rng, context = np.random.default_rng(m * k), fp.Context(unit.inputs[0])
    a, b = (
        context.array(scale * rng.standard_normal(s)).carrier
        for s in ((*left, m, k), (*right, k, n))
    )
    if b.ndim == 2:
        b = np.array(np.broadcast_to(b, (*left, k, n)))
    return a, b, (*np.broadcast_shapes(left, b.shape[:-2]), m, n)


def stack_product(unit, a, b, shape, start=None):
    settings = UnitSettings(unit, *[unit.inputs[0]] * 2, Settings(unit.partials))
    values = np.zeros(shape, np.float32) if start is None else start.copy()
    flags = np.zeros(shape, np.uint8)
    accumulate(settings, a, b, values, flags, NO_PLACES, fresh=start is None)
    return np.where(np.isnan(values), np.float32("nan"), values).view(np.uint32), flags


def one_by_one(unit, a, b, shape, start=None):
    a, b = (np.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (a, b))
    values, flags = np.zeros(shape, np.uint32), np.zeros(shape, np.uint8)
    for i in np.ndindex(*shape[:-2]):
        values[i], flags[i] = stack_product(
            unit, np.array(a[i]), np.array(b[i]), shape[-2:], None if start is None else start[i]
        )
    return values, flags


@pytest.mark.parametrize("name", pick(STACKED[:2], STACKED, STACKED))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["ordinary", "started", "large", "special"])
def test_a_stack_gives_what_its_products_give(name, shape, kind, monkeypatch):
    unit = find_unit(name)
    a, b, result = operands(unit, shape, 3e3 if kind == "large" else 1.0)
    start = None
    if kind == "started":
        start = np.arange(np.prod(result), dtype=np.float32).reshape(result) - 3
    if kind == "special":
        a.flat[0], b.flat[-1] = np.inf, np.nan
    expected = one_by_one(unit, a, b, result, start)
    monkeypatch.setattr(tiles, "_NUMBERS", 400)  # several calls
    results = stack_product(unit, a, b, result, start)
    for value, wanted in zip(results, expected, strict=True):
        assert np.array_equal(value, wanted)


@pytest.mark.parametrize("shape", [(3, 5, 40), (9, 33, 3), (4, 1, 17), (2, 16, 1)])
def test_small_right_operands_are_read_as_they_lie(shape):
    """Transposed, as parts of wider matrices, or one upon the other."""
    unit, (m, k, n) = find_unit(STACKED[0]), shape
    a, b, _ = operands(unit, ((2,), (2,), m, k, n))
    wide = np.zeros((2, k, n + 3), np.float32)
    wide[..., :n] = b
    turned = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    for right in (turned, wide[..., :n]):
        for i in range(2):
            expected, flags = stack_product(unit, a[i], b[i], (m, n))
            values, raised = stack_product(unit, a[i], right[i], (m, n))
            assert np.array_equal(values, expected)
            assert np.array_equal(flags, raised)
        both = stack_product(unit, a, right, (2, m, n))
        assert np.array_equal(both[0], one_by_one(unit, a, b, (2, m, n))[0])


@pytest.mark.parametrize("name", STACKED[:2])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_and_random_words(name, threads, monkeypatch):
    """Every output draws the words of its place in the whole result."""
    unit = find_unit(name)
    a, b, _ = operands(unit, SHAPES[1])
    half = fp.Context(fp.BINARY16)

    def run(*operands):
        context = fp.Context(fp.BINARY16, rounding=fp.SR(10), seed=7)
        return fp.linalg.matmul(*(half.array(x) for x in operands), name, context=context).codes()

    together = on_threads(threads, lambda: run(a, b))
    monkeypatch.setattr(dispatch, "_stacked", lambda *_, **__: False)
    assert np.array_equal(together, run(a, b))


def test_small_products_are_run_as_a_stack_and_large_ones_are_not(monkeypatch):
    calls = []
    run = tiles._run_stack
    monkeypatch.setattr(
        tiles,
        "_run_stack",
        lambda job, stack, *rest: calls.append(stack.shape) or run(job, stack, *rest),
    )
    unit = find_unit("AMP_F16_F32.exact")
    for m, k in ((4, 8), (1024, 64)):
        a, b = np.ones((2, m, k), np.float32), np.ones((2, k, 3), np.float32)
        values, flags = stack_product(unit, a, b, (2, m, 3))
        assert (values.view(np.float32) == k).all()
        assert not flags.any()
    assert calls == [(8, 8)]


def test_what_follows_from_shapes_is_prepared_once_and_is_bounded():
    settings = UnitSettings(find_unit("AMP_F16_F32"), fp.BINARY16, fp.BINARY16, HALF.core.settings)
    task = engine_window._task(settings, engine_window._sums(settings).lanes, False)
    product = tiles._prepared(settings, task, 1, 4, 16, 3)
    assert tiles._prepared(settings, task, 1, 4, 16, 3) is product
    (left, _), (right, exponents) = product.tables
    assert (right.shape, exponents.dtype) == ((1, 16, 16), np.uint32)
    assert not np.shares_memory(left, right)
    assert tiles._prepared(settings, task, 1, 4, 1 << 12, 3).tables[1] is None  # too much to keep
    for n in range(1, 200):
        tiles._prepared(settings, task, n, 4, 16, 3)
    assert len(tiles._per_thread.__dict__) <= tiles._MOST_KEPT
