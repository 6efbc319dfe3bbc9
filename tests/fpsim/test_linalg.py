"""Products: shapes, contexts, flags and refusals around the units (law, corners)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
import ipu.machine.units.amp  # noqa: F401  (registers the units of the IPU)
from fpsim.records.units import UNITS
from tests.fpsim.in_partials import matmul
from tests.tiers import reaches

HALF, SINGLE = fp.Context(fp.BINARY16), fp.Context(fp.BINARY32)


def normal(shape, seed=0, context=HALF):
    return context.array(np.random.default_rng(seed).standard_normal(shape))


def test_batches_are_products_one_by_one():
    a, b = normal((3, 1, 5, 20)), normal((2, 20, 7), 1)
    got = matmul(a, b, "AMP_F16_F32")
    assert got.shape == (3, 2, 5, 7)
    for i in range(3):
        for j in range(2):
            one = matmul(a[i, 0], b[j], "AMP_F16_F32")
            assert np.array_equal(got.values[i, j], one.values)


def test_outputs_of_a_batch_are_numbered_through():
    """Random bits belong to the C-order index of the whole result."""
    context = fp.Context(fp.BINARY16, rounding=fp.SR(6), seed=3)
    a, b = normal((4, 6, 40)), normal((40, 9), 1)
    together = matmul(a, b, "AMP_F16_F16", context=context)
    flat = matmul(a.reshape(24, 40), b, "AMP_F16_F16", context=context.replace(seed=3))
    apart = matmul(a, fp.Array(np.broadcast_to(b.values, (4, 40, 9)), HALF), "AMP_F16_F16",
                   context=context.replace(seed=3))
    assert np.array_equal(together.values.reshape(24, 9), flat.values)
    assert np.array_equal(together.values, apart.values)


@pytest.mark.parametrize(
    "unit", ["AMP_F16_F32", "AMP_F16_F16", "AMP_F16_F32.exact", "V100_F16_F32"]
)
def test_zeros_may_pad_every_side(unit):
    a, b = normal((7, 33)), normal((33, 11), 1)
    wide_a, wide_b = np.zeros((10, 48), np.float32), np.zeros((48, 19), np.float32)
    wide_a[:7, :33], wide_b[:33, :11] = a.values, b.values
    padded = matmul(HALF.wrap(wide_a), HALF.wrap(wide_b), unit)
    assert np.array_equal(padded.values[:7, :11], matmul(a, b, unit).values)
    assert not padded.values[7:].any()


#: One unit of each engine; the quick tier has stochastic stores with one of them.
THREADED = ["AMP_F16_F32", "AMP_F16_F16", "AMP_F16_F32.exact", "AMP_F16_F16.exact", "AMP_F32_F32"]


@pytest.mark.parametrize(
    "unit", [u for u in THREADED if reaches("full") or u != "AMP_F16_F16.exact"]
)
def test_results_do_not_depend_on_threads_or_layout(unit):
    inputs = SINGLE if unit == "AMP_F32_F32" else HALF
    a, b = normal((150, 600), 0, inputs), normal((600, 130), 1, inputs)
    partials = fp.BINARY16 if unit.startswith("AMP_F16_F16") else fp.BINARY32
    before, results = fp.get_threads(), []
    for threads in (1, 2, 3):
        fp.set_threads(threads)
        context = fp.Context(partials, rounding=fp.SR(9), seed=8)
        results.append(matmul(a, b, unit, context=context).values)
    fp.set_threads(before)
    turned = fp.Array(np.asfortranarray(a.values), inputs), fp.Array(b.values.T.copy().T, inputs)
    context = fp.Context(partials, rounding=fp.SR(9), seed=8)
    results.append(matmul(*turned, unit, context=context).values)
    assert all(np.array_equal(r, results[0]) for r in results[1:])


def test_empty_products():
    start = SINGLE.array([[1.0, 2.0, -0.0]])
    a, b = HALF.zeros((1, 0)), HALF.zeros((0, 3))
    assert matmul(a, b, "AMP_F16_F32").values.tolist() == [[0, 0, 0]]
    unchanged = matmul(a, b, "AMP_F16_F32", accumulator=start)
    assert np.signbit(unchanged.values).tolist() == [[False, False, True]]
    assert unchanged.values.tolist() == [[1, 2, 0]]
    assert matmul(HALF.zeros((0, 4)), HALF.zeros((4, 3)), "AMP_F16_F32").shape == (0, 3)
    assert matmul(HALF.zeros((2, 0, 4)), HALF.zeros((2, 4, 3)), "AMP_F16_F16").shape == (2, 0, 3)
    assert matmul(HALF.zeros((2, 0, 4)), HALF.zeros((2, 4, 0)), "AMP_F16_F16").shape == (2, 0, 0)
    assert matmul(HALF.zeros((0, 2, 4)), HALF.zeros((0, 4, 3)), "AMP_F16_F16").shape == (0, 2, 3)
    batch = matmul(HALF.zeros((2, 2, 0)), HALF.zeros((2, 0, 3)), "AMP_F16_F16")
    assert batch.values.tolist() == np.zeros((2, 2, 3)).tolist()


@pytest.mark.parametrize("unit", ["AMP_F16_F32", "AMP_F16_F32.exact", "AMP_F32_F32"])
def test_an_accumulator_may_signal(unit):
    inputs = SINGLE if unit == "AMP_F32_F32" else HALF
    start = SINGLE.wrap(np.array([[0x7F800001]], np.uint32).view(np.float32))
    a, b = inputs.array([[1.0]]), inputs.array([[2.0]])
    context = fp.Context(fp.BINARY32)
    assert np.isnan(matmul(a, b, unit, context=context, accumulator=start).values).all()
    assert context.flags == fp.Flags.INVALID


def test_partials_pick_the_member_of_the_family():
    a, b = normal((4, 64)), normal((64, 4), 1)
    by_name = matmul(a, b, "AMP_F16_F16.exact").values
    assert np.array_equal(matmul(a, b, "AMP_F16_F32.exact", partials=fp.BINARY16).values, by_name)
    with pytest.raises(ValueError, match="partials=bfloat16 is not offered by AMP_F16"):
        matmul(a, b, "AMP_F16_F32", partials=fp.BFLOAT16)
    with pytest.raises(ValueError, match="narrower than the result in binary32"):
        matmul(a, b, "AMP_F16_F16", context=fp.Context(fp.BINARY32))


def test_float_partials_are_rounded_once_into_half():
    a, b = normal((9, 100)), normal((100, 9), 1)
    wide = matmul(a, b, "AMP_F16_F32", context=fp.Context(fp.BINARY32))
    context = fp.Context(fp.BINARY16)
    assert np.array_equal(
        matmul(a, b, "AMP_F16_F32", context=context).values, wide.to(fp.BINARY16).values
    )


def test_the_result_context_keeps_the_flags():
    big = HALF.array([[60000.0] * 20])
    context = fp.Context(fp.BINARY16, overflow="saturate")
    got = matmul(big, big.T, "AMP_F16_F16", context=context)
    assert got.values.tolist() == [[65504.0]]
    assert context.flags == fp.Flags.OVERFLOW
    assert got.context is context


def test_a_product_in_the_partials_format_belongs_to_the_context_of_its_left_operand():
    context = fp.Context(fp.BINARY16, rounding=fp.SR(4))
    big = context.wrap(np.array([[np.inf, -np.inf]], np.float32))
    wide = matmul(big, context.wrap(np.ones((2, 1), np.float32)), "AMP_F16_F32")
    assert wide.format == fp.BINARY32
    assert context.flags == wide.context.flags == fp.Flags.INVALID


def test_a_trap_publishes_nothing_and_names_the_first_output():
    context = fp.Context(fp.BINARY16, traps=fp.Flags.OVERFLOW, rounding=fp.SR(4), count=True)
    a, b = normal((5, 30)), normal((30, 9), 1)
    a.carrier[:, 2], b.carrier[2] = 0, 0
    a.carrier[3, 2] = 65504
    b.carrier[2, 4] = 65504
    out = context.zeros((5, 9))
    with pytest.raises(fp.FloatingPointTrap) as caught:
        matmul(a, b, "AMP_F16_F16", context=context, out=out)
    assert caught.value.index == (3, 4)
    assert caught.value.operation == "matmul"
    assert not out.values.any()
    assert context.operation == 0
    assert context.flags == fp.Flags.OVERFLOW
    context.traps = fp.Flags.NONE
    matmul(a, b, "AMP_F16_F16", context=context, out=out)
    assert np.isinf(out.values[3, 4])
    assert context.counts.total("OVERFLOW") >= 1


def test_out_receives_the_result_even_over_an_operand():
    a, b = normal((16, 16)), normal((16, 16), 1)
    wanted = matmul(a, b, "AMP_F16_F16").values
    target = a.copy()
    assert matmul(target, b, "AMP_F16_F16", out=target) is target
    assert np.array_equal(target.values, wanted)
    with pytest.raises(ValueError, match="out has shape"):
        matmul(a, b, "AMP_F16_F16", out=HALF.zeros((3, 3)))
    with pytest.raises(TypeError, match="out is binary32"):
        matmul(a, b, "AMP_F16_F16", out=SINGLE.zeros((16, 16)))


def test_quiet_nan_raises_where_the_context_says_so():
    a = HALF.array([[np.nan, 1.0]])
    b = HALF.array([[1.0], [1.0]])
    for loud in (False, True):
        context = fp.Context(fp.BINARY32, quiet_nan_raises=loud)
        assert np.isnan(matmul(a, b, "AMP_F16_F32", context=context).values).all()
        assert context.flags == (fp.Flags.INVALID if loud else fp.Flags.NONE)


def test_wrong_operands_are_refused_with_advice():
    a, b = normal((3, 4)), normal((4, 3))
    with pytest.raises(TypeError, match="AMP_F16_F32 takes binary16 inputs, got binary32 for b"):
        matmul(a, b.to(fp.BINARY32), "AMP_F16_F32")
    with pytest.raises(TypeError, match="a is ndarray, not an Array"):
        matmul(a.values, b, "AMP_F16_F32")
    with pytest.raises(ValueError, match="the last dimension of a must equal"):
        matmul(a, a, "AMP_F16_F32")
    with pytest.raises(ValueError, match="a vector as a matrix"):
        matmul(a[0], b, "AMP_F16_F32")
    with pytest.raises(ValueError, match="do not broadcast"):
        matmul(normal((2, 3, 4)), normal((3, 4, 3)), "AMP_F16_F32")
    with pytest.raises(TypeError, match="has binary32 partials, got binary16 for accumulator"):
        matmul(a, b, "AMP_F16_F32", accumulator=HALF.zeros((3, 3)))
    with pytest.raises(ValueError, match="accumulator has shape"):
        matmul(a, b, "AMP_F16_F32", accumulator=SINGLE.zeros((3, 4)))


@pytest.mark.source("S4-39")
def test_a_trap_shows_the_row_and_the_column_of_the_first_guilty_element() -> None:
    context = fp.Context(fp.BINARY16, traps=fp.Flags.OVERFLOW)
    half = fp.Context(fp.BINARY16)
    a = half.array([[[1.0, 2.0], [300.0, 400.0]]] * 2)
    b = half.array([[1.0, 3.0], [2.0, 200.0]])
    with pytest.raises(fp.FloatingPointTrap) as caught:
        matmul(a, b, unit="AMP_F16_F32", context=context)
    trap = caught.value
    assert trap.index == (0, 1, 1)
    assert [operand.tolist() for operand in trap.operands] == [[300.0, 400.0], [3.0, 200.0]]


@pytest.mark.parametrize("name", [n for n, u in UNITS.items() if u.order == "pairs"])
def test_outputs_of_units_that_pair_terms_stand_alone(name: str) -> None:
    context = fp.Context(UNITS[name].inputs[0])
    a, b = normal((2, 70), context=context), normal((70, 3), 1, context)
    together = matmul(a, b, name).values
    for i, j in np.ndindex(2, 3):
        assert together[i, j] == matmul(a[i : i + 1], b[:, j : j + 1], name).values[0, 0]


@pytest.mark.parametrize("subnormals", ["keep", "flush_results"])
def test_an_overflow_does_not_change_the_zeros_beside_it(subnormals: str) -> None:
    context = fp.Context(fp.BINARY16, subnormals=subnormals)
    a = context.array([[60000.0, 0.0], [2.0**-14, 0.0]])
    b = context.array([[-(2.0**-14), 2.0], [0.0, 0.0]])
    for rows in (slice(0, 2), slice(1, 2)):
        result = matmul(a[rows], b, "AMP_F16_F16", context=context).values
        assert (result[-1, 0], np.signbit(result[-1, 0])) == (0.0, True)


def test_a_join_in_half_keeps_its_subnormals() -> None:
    context = fp.Context(fp.E5M2)
    small = context.array([[2.0**-8]])
    result = matmul(small, small, "B200_MMA_E5M2_F16", subnormals="flush_both")
    assert float(result.values[0, 0]) == 2.0**-16


@pytest.mark.parametrize("scale", [-65, 63, 10**8, 1.5, True, "1"])
def test_scales_are_those_of_metadata(scale: object) -> None:
    x = HALF.array([[1.0]])
    with pytest.raises(ValueError, match=r"no sum of two metadata scales; use .* -64 to 62"):
        matmul(x, x, "AMP_F16_F32.exact", scale=scale)
    with pytest.raises(ValueError, match="subnormals='bogus' is not known; use one of keep"):
        matmul(x, x, "AMP_F16_F32", subnormals="bogus")


def test_records_beyond_the_engines_are_refused() -> None:
    unit = UNITS["AMP_F16_F32"]
    for change, message in (
        ({"inputs": (fp.BINARY64,)}, "formats that binary32 holds"),
        ({"accumulator": fp.BINARY64}, "formats that binary32 holds"),
        ({"terms": 257}, "use at most 256"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(unit, name="MY_F16_F32", **change)
    with pytest.raises(TypeError, match=r"window=30\.5 is "):
        replace(unit, name="MY_F16_F32", window=30.5)


def test_equal_records_run_alike() -> None:
    unit = replace(UNITS["V100_F16_F32"], name="MY_F16_F32", rounding=fp.Rounding("RTZ"))
    a, b = normal((5, 33)), normal((33, 6), 1)
    assert np.array_equal(matmul(a, b, unit).values, matmul(a, b, "V100_F16_F32").values)


def test_exact_units_of_many_terms_are_exact() -> None:
    unit = replace(UNITS["AMP_F16_F32.exact"], name="WIDE_F16_F32", terms=68, calls=1)
    a = np.ones((1, 68), np.float32)
    b = np.full((68, 1), 0.5, np.float32)
    a[0, 0], b[0, 0], a[0, 67], b[67, 0] = 2.0**-24, 2.0**-24, 4096.0, 4096.0
    result = matmul(HALF.array(a), HALF.array(b), unit).values
    assert float(result[0, 0]) == 2.0**24 + 34  # 33 and a little more, to even
