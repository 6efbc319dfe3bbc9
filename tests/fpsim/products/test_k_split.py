"""Products with K split over tiles against products of the ranges (law, differential, corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.judge.oracle.random import product_R
from fpsim.products.k_split import ranges
from fpsim.records.units import find_unit
from fpsim.state.bits import Replay
from tests.fpsim.in_partials import k_split, matmul
from tests.tiers import pick

HALF, SINGLE = fp.Context(fp.BINARY16), fp.Context(fp.BINARY32)
#: Each with kernels of its own; the quick tier takes one of each kind of partials.
EVERY = ["AMP_F16_F32", "AMP_F16_F16", "AMP_F32_F32", "VMAC_F16_F16", "V100_F16_F16"]
UNITS = pick(EVERY[:3], EVERY, EVERY)


def normal(shape, seed, unit):
    context = fp.Context(find_unit(unit).inputs[0])
    return context.array(np.random.default_rng(seed).standard_normal(shape))


def summed(parts, context):
    """Partials added in binary32 as numpy adds, then rounded once."""
    total = parts[0].astype(np.float32)
    for part in parts[1:]:
        total = total + part.astype(np.float32)
    return context.array(SINGLE.wrap(total)).values


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("k", [1, 15, 96, 200])
def test_one_part_is_the_whole_product(name, k):
    a, b = normal((2, 5, k), 0, name), normal((k, 7), 1, name)
    for fmt, rounding in ((find_unit(name).partials, "RNE"), (fp.BINARY16, fp.SR(9))):
        results = []
        for product in (matmul, lambda *ab, **choices: k_split(*ab, parts=1, **choices)):
            context = fp.Context(fmt, rounding=rounding, seed=6)
            values = product(a, b, unit=name, context=context).values
            results.append((values.tolist(), context.flags, context.operation))
        assert results[0] == results[1]


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_parts_are_products_of_their_own_added_in_order(name, parts):
    a, b = normal((3, 150), 2, name), normal((150, 4), 3, name)
    unit = find_unit(name)
    inside = fp.Context(unit.partials)
    results = [
        matmul(a[:, c.start : c.stop], b[c.start : c.stop], name, context=inside).values
        for c in ranges(150, parts, unit)
    ]
    assert len(results) == parts
    for fmt in {unit.partials, fp.BINARY16}:
        context = fp.Context(fmt)
        assert np.array_equal(k_split(a, b, name, parts, context=context).values,
                              summed(results, context))


def test_ranges_are_whole_passes_and_cover_k():
    unit = find_unit("AMP_F16_F32")
    for k in (1, 16, 17, 160, 1000):
        passes = -(-k // 16)
        for parts in range(1, passes + 1):
            cuts = ranges(k, parts, unit)
            assert [i for cut in cuts for i in cut] == list(range(k))
            assert all(cut.start % 16 == 0 and len(cut) for cut in cuts)
            sizes = [-(-len(cut) // 16) for cut in cuts]
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1
    assert ranges(0, 1, unit) == [range(0)]


@pytest.mark.parametrize("name", [n for n in UNITS if "VMAC" in n or "AMP_F16" in n])
def test_places_count_the_stores_of_all_parts_and_then_the_reduction(name):
    """Bits from elsewhere, put where Philox has them by the layout, give the same result."""
    a, b = normal((3, 100), 4, name), normal((100, 2), 5, name)
    unit = find_unit(name)
    in_one_call = unit.calls is None
    stores = 3 if in_one_call else 7
    places = [stores] if unit.partials == fp.BINARY32 else range(stores + 1)
    for r in pick((9,), (9, 20), (9, 20)):
        context = fp.Context(fp.BINARY16, rounding=fp.SR(r), seed=8)
        got = k_split(a, b, name, 3, context=context).values
        bits = [[product_R(8, 0, i, s, r) for i in range(6)] for s in places]
        replayed = fp.Context(
            fp.BINARY16, rounding=fp.SR(r), bits=Replay([np.reshape(bits, (-1, 3, 2))])
        )
        assert np.array_equal(k_split(a, b, name, 3, context=replayed).values, got)
        assert context.operation == 1


def test_parts_change_what_half_partials_lose():
    ones, small = HALF.array(np.ones((1, 4096))), HALF.array(np.full((4096, 1), 1 + 2.0**-8))
    results = [k_split(ones, small, "AMP_F16_F16", p).values.item() for p in (1, 16, 256)]
    # In 256 parts every pass is exact, and so is the sum in binary32.
    assert results == [4100.0, 4104.0, 4112.0]


def test_the_reduction_overflows_and_meets_infinities():
    a, b = HALF.array([[60000.0] * 32]), HALF.array([[1.0]] * 16 + [[-1.0]] * 16)
    context = fp.Context(fp.BINARY16)
    assert np.isnan(k_split(a, b, "AMP_F16_F16", 2, context=context).values.item())
    assert context.flags == fp.Flags.INVALID | fp.Flags.OVERFLOW
    assert k_split(a, b, "AMP_F16_F32", 2, context=fp.Context(fp.BINARY16)).values.item() == 0.0
    big = SINGLE.array([[2.0**100] * 16])
    context = fp.Context(fp.BINARY32)
    most = SINGLE.array([[2.0**25]] * 16)
    assert np.isinf(k_split(big, most, "AMP_F32_F32", 2, context=context).values.item())
    assert context.flags == fp.Flags.OVERFLOW


def test_subnormal_partials_follow_the_policy():
    a, b = SINGLE.array([[2.0**-100] * 16]), SINGLE.array([[2.0**-30]] * 16)
    for subnormals, wanted in (("keep", 2.0**-126), ("flush_both", 0.0)):
        got = k_split(a, b, "AMP_F32_F32", 2, subnormals=subnormals)
        assert got.values.item() == wanted


def test_a_trap_publishes_nothing():
    a, b = HALF.array([[1.0] * 32, [60000.0] * 32]), HALF.array(np.ones((32, 3)))
    context = fp.Context(fp.BINARY16, rounding=fp.SR(4), traps=fp.Flags.OVERFLOW)
    out = context.zeros((2, 3))
    with pytest.raises(fp.FloatingPointTrap) as caught:
        k_split(a, b, "AMP_F16_F32", 2, context=context, out=out)
    assert caught.value.index == (1, 0)
    assert caught.value.operation == "k_split"
    assert not out.values.any()
    assert context.operation == 0


def test_wrong_parts_are_refused():
    a, b = normal((3, 100), 6, "AMP_F16_F32"), normal((100, 2), 7, "AMP_F16_F32")
    for parts in (0, 8, 1.0, True):
        with pytest.raises(ValueError, match=f"parts={parts} of a K of 100; .* so use 1 to 7"):
            k_split(a, b, "AMP_F16_F32", parts)
    with pytest.raises(ValueError, match="the last dimension of a must equal"):
        k_split(a, a, "AMP_F16_F32", 2)
    with pytest.raises(TypeError, match="takes binary16 inputs"):
        k_split(a.to(fp.BINARY32), b, "AMP_F16_F32", 2)
