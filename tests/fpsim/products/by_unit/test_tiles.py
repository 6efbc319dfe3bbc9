"""The loop of tiles: guards, blocks, lanes and memory change the time and no bit (law, corners)."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.linalg import matmul
from fpsim.products.by_unit import dispatch as engines
from fpsim.products.by_unit import panels as engine_panels
from fpsim.products.by_unit import tiles as engine_tiles
from fpsim.products.by_unit import window as engine_window
from fpsim.records.units import find_unit
from tests.tiers import pick

HALF = fp.Context(fp.BINARY16)

#: Units of the tests, each with a kernel of its own; the quick tier takes one of each engine.
PARTIALS = ["AMP_F16_F16", "AMP_F16_F16.exact", "V100_F16_F16"]
WINDOWS = ["V100_F16_F32", "H100_F16_F32", "H100_F16_F16", "A100_TF32_F32", "ADA_E4M3_F32"]
ENGINES = ["AMP_F16_F32", "AMP_F16_F16", "AMP_F32_F32", "AMP_F16_F16.exact", "V100_F16_F32"]
STORES = ["AMP_F16_F16", "AMP_F16_F32", "VMAC_F16_F16"]


@pytest.fixture
def fast_only(monkeypatch):
    """A product that no fast engine takes is an error."""

    def refuse(*_arguments):
        raise AssertionError("the general kernel ran")

    monkeypatch.setattr(engines, "ENGINES", [*engines.ENGINES[:-1], refuse])


def half_matrix(shape, seed, scale=1.0):
    return HALF.array(scale * np.random.default_rng(seed).standard_normal(shape))


def result(a, b, unit, **choices):
    """Codes of the result and flags."""
    context = fp.Context(find_unit(unit).partials, seed=3, **choices)
    values = matmul(a, b, unit, context=context).values
    return to_codes(values, context.format).tolist(), context.flags


# Guards -----------------------------------------------------------------------------------------


@pytest.mark.source("S4-02")
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
    codes, flags = result(HALF.array(a), HALF.array(b), unit, **choices)
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
    narrow = result(a, b, unit)
    monkeypatch.setattr(engine_window, "_narrow", lambda *_: False)
    assert result(a, b, unit) == narrow


def test_sums_of_sixteen_largest_products_keep_their_sign(fast_only):
    """With the accumulator they reach 2**31 units of the last digit that counts."""
    a = np.full((1, 32), 2 - 2.0**-10)
    for sign in (1, -1):
        got = matmul(HALF.array(sign * a), HALF.array(a.T), "H100_F16_F32").values
        assert got.tolist() == [[sign * 32 * (2 - 2.0**-10) ** 2]]


# Blocks and memory ------------------------------------------------------------------------------


@pytest.mark.source("S4-02")
@pytest.mark.parametrize("unit", pick(ENGINES[:3], ENGINES, ENGINES))
def test_blocks_and_threads_do_not_show(unit, fast_only, monkeypatch):
    inputs = fp.Context(find_unit(unit).inputs[0])
    a, b = (inputs.array(half_matrix(s, i).values) for i, s in enumerate(((37, 700), (700, 50))))
    rounding = fp.SR(9) if find_unit(unit).partials == fp.BINARY16 else fp.RNE
    complete = result(a, b, unit, rounding=rounding)
    monkeypatch.setattr(engine_tiles, "_SMALL", 0)
    monkeypatch.setattr(engine_panels, "_SMALLEST", 1)
    for module in (engine_panels, engine_tiles):
        monkeypatch.setattr(module, "_FEW", 1)
    before = fp.get_threads()
    try:
        for threads, size in ((1, 1 << 16), (2, 16 << 20), (3, 1 << 15)):
            fp.set_threads(threads)
            monkeypatch.setattr(engine_tiles, "BYTES", size)
            monkeypatch.setattr(engine_panels, "COLUMN_BYTES", size // 16)
            assert result(a, b, unit, rounding=rounding) == complete
    finally:
        fp.set_threads(before)


@pytest.mark.source("S4-02")
def test_the_workspace_is_bounded():
    """Whole tables would take 32 MB and 100 MB, and grow with K."""
    a, b = half_matrix((16, 1 << 17), 0), half_matrix((1 << 17, 64), 1)
    context = fp.Context(fp.BINARY32)
    tracemalloc.start()
    try:
        matmul(a, b, "AMP_F16_F32", context=context)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


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
