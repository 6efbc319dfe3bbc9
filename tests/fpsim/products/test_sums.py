"""Sums: each order against its definition, bits by place (differential, golden, law)."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim import linalg
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.oracle import product_word
from fpsim.judge.oracle.rounding import OracleSettings, encode
from fpsim.judge.oracle.sums import ORDERS, mean_of, sum_of
from fpsim.state.bits import Replay
from tests.threads import on_threads
from tests.tiers import pick, reaches

FORMATS = (fp.BINARY16, fp.BFLOAT16, fp.E4M3FN, fp.BINARY32)
ROUNDINGS = (fp.RNE, fp.RTN, fp.RTO, fp.SR(8), fp.SR(13, subnormal_bits=16), fp.SR(22))
LENGTHS = pick((0, 1, 2, 7), (0, 1, 2, 3, 7, 8, 31, 64), (0, 1, 2, 3, 5, 7, 8, 31, 64, 200))


def places(context, output, number):
    """The choices at each rounding place of an output, with its random word."""
    s, bits = context.core.settings, context.core.settings.random_most

    def at(place):
        word = product_word(context.core.seed, number, output, place, bits) if bits else 0
        return OracleSettings(s.rounding, overflow=s.overflow, word=word)

    return at


def values(fmt, shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 4, shape)
    x = np.where(rng.random(shape) < 0.3, x * fmt.smallest_normal, x)
    return fp.Context(fmt, overflow="saturate").array(x)


#: To nearest in each format; one format has every mode, in the quick tier one of each kind. The
#: deep tier has every mode in each format.
CASES = [
    (fmt, rounding)
    for fmt in FORMATS
    for rounding in ROUNDINGS
    if reaches("deep")
    or rounding is fp.RNE
    or (fmt == fp.BINARY16 and (reaches("full") or rounding in (fp.RTN, *ROUNDINGS[-2:])))
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("fmt", "rounding"), CASES, ids=repr)
def test_sums_and_means_are_what_their_order_says(fmt, rounding, order):
    # Words of more than 16 bits: the quick tier has additions, quotients are one kernel more.
    is_sum_alone = rounding == ROUNDINGS[-1] and not reaches("full")
    for n in LENGTHS:
        x = values(fmt, (3, n), n)
        context = fp.Context(fmt, rounding=rounding, seed=n + 5)
        for name, oracle in (("sum", sum_of), ("mean", mean_of)):
            if name == "mean" and (n == 0 or is_sum_alone):
                continue
            number = context.operation
            context.clear_flags()
            got = getattr(linalg, name)(x, 1, order, context=context, block=3)
            flags = fp.Flags.NONE
            for i, row in enumerate(to_codes(x.values, fmt).tolist()):
                want, raised = oracle(order, row, fmt, places(context, i, number), block=3)
                flags |= raised
                assert int(to_codes(got.values, fmt)[i]) == want, (n, name, i)
            assert context.flags == flags


def test_an_exact_sum_of_zero_is_positive():
    half = fp.Context(fp.BINARY16)
    assert not np.signbit(linalg.sum(half.array([1.0, -1.0]), order="exact").values)


@pytest.mark.parametrize("order", ORDERS)
def test_infinities_and_nan_win(order):
    half = fp.Context(fp.BINARY16)
    rows = half.array([[1, np.inf, 2], [np.inf, 1, -np.inf], [1, np.nan, 3], [1, 2, 3]])
    got = linalg.sum(rows, 1, order).values
    wanted = np.float32([np.nan if order == "kahan" else np.inf, np.nan, np.nan, 6])
    assert np.array_equal(got, wanted, equal_nan=True)
    assert fp.Flags.INVALID in half.flags


def test_axes_are_those_of_numpy_in_c_order():
    single = fp.Context(fp.BINARY32)
    x = single.array(np.random.default_rng(0).integers(-9, 9, (2, 3, 4, 5)))
    for axis in (None, 0, -1, (1, 3), (3, 1), (0, 1, 2, 3), ()):
        assert np.array_equal(linalg.sum(x, axis).values, x.values.sum(axis))
    with pytest.raises(ValueError, match="axis=4 is not there"):
        linalg.sum(x, 4)


@pytest.mark.parametrize("order", ORDERS)
def test_the_mean_over_any_axis_is_divided(order):
    """Sums of whole numbers are exact in every order, so the division is the one rounding."""
    single = fp.Context(fp.BINARY32)
    x = single.array(np.random.default_rng(0).integers(-9, 9, (7, 3, 5)))
    for axis in (None, 0, 1, -1, (0, 1)):
        total = np.float32(x.values.sum(axis))
        expected = total / np.float32(x.size // total.size)
        assert np.array_equal(linalg.mean(x, axis, order).values, expected), axis


def test_the_sum_of_nothing_is_zero():
    half = fp.Context(fp.BINARY16)
    for order in ORDERS:
        assert linalg.sum(half.zeros((3, 0)), 1, order).values.tolist() == [0, 0, 0]
    assert linalg.sum(half.zeros((0, 4)), 1).shape == (0,)
    for context in (half, half.replace(rounding=fp.SR(8), seed=1)):
        for order in ORDERS:
            for n in (1, 4):
                none = context.zeros((0, n))
                assert linalg.sum(none, 1, order).shape == linalg.mean(none, 1, order).shape == (0,)
                assert context.flags == fp.Flags.NONE


@pytest.mark.source("published tables T4 and Kahan 1965")
def test_ten_thousand_small_numbers():
    half = fp.Context(fp.BINARY16)
    x = half.array([1e-4] * 10_000)
    sums = [float(linalg.sum(x, order=order)) for order in ORDERS]
    assert (sums[0], sums[3], sums[4]) == (0.25, 1.0, 1.0)


def test_results_do_not_depend_on_threads():
    context = fp.Context(fp.BINARY16, rounding=fp.SR(10), seed=1)
    x = values(fp.BINARY16, (700, 70), 1)
    one, *more = (
        on_threads(n, lambda: linalg.mean(x, 1, context=context.replace(seed=1)).values)
        for n in (1, 2, 3)
    )
    assert all(np.array_equal(r, one) for r in more)


def test_given_bits_go_place_by_place():
    # 1 + 2**-12: one sixteenth of a unit and R decide, SR(1) goes up when the tail's half and R do.
    x = fp.Context(fp.BINARY16).array([[1, 2.0**-11, 2.0**-11], [1, 2.0**-11, 2.0**-11]])
    context = fp.Context(fp.BINARY16, rounding=fp.SR(1), bits=Replay([[[0, 1], [0, 0]]]))
    assert linalg.sum(x, 1, context=context).values.tolist() == [1.0, 1 + 2.0**-10]


def test_a_trap_stops_a_sum_at_its_first_guilty_output():
    half = fp.Context(fp.BINARY16, traps=fp.Flags.OVERFLOW, count=True)
    x = half.array([[1.0, 2.0], [60000.0, 60000.0]])
    out = half.zeros(2)
    with pytest.raises(fp.FloatingPointTrap) as caught:
        linalg.sum(x, 1, out=out)
    assert caught.value.index == (1,)
    assert out.values.tolist() == [0, 0]


def test_counts_see_every_output():
    half = fp.Context(fp.BINARY16, count=True)
    linalg.sum(half.array([[2048.0, 1.0], [1.0, 1.0]]), 1)
    assert half.counts.total("INEXACT") == 1


def test_choices_that_do_not_exist_are_refused():
    half = fp.Context(fp.BINARY16)
    x = half.array([1.0, 2.0])
    with pytest.raises(ValueError, match="order='tree' is not known"):
        linalg.sum(x, order="tree")
    with pytest.raises(ValueError, match="block=0"):
        linalg.sum(x, order="blocked", block=0)
    with pytest.raises(TypeError, match="never promotes"):
        linalg.sum(x, context=fp.Context(fp.BINARY32))


def test_codes_survive():
    """The helper's formats hold what is summed."""
    for fmt in FORMATS:
        x = values(fmt, (50,), 3)
        assert np.array_equal(from_codes(to_codes(x.values, fmt), fmt), x.values)
        assert encode(0, Fraction(0), fmt) == 0


@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rounding", [fp.RNE, fp.SR(13, subnormal_bits=16)], ids=str)
def test_no_memory_grows_with_the_number_of_elements(rounding, order, divide):
    """Nor is any kept: a program of additions once took 40 to 160 bytes an element."""
    context = fp.Context(fp.BINARY16, rounding=rounding, seed=1)
    reduce = context.mean if divide else context.sum
    x = context.array(np.ones(1_000_000))
    for shape, axis in (((1_000_000,), 0), ((100_000, 10), 0), ((10, 100_000), 1)):
        rows = x.reshape(shape)
        reduce(rows, axis, order)  # kernels are loaded once
        tracemalloc.start()
        try:
            reduce(rows, axis, order)
            assert tracemalloc.get_traced_memory()[1] < 3_000_000, (shape, axis)
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("order", ["pairwise", "blocked"])
@pytest.mark.parametrize("rounding", [fp.RNE, fp.SR(13, subnormal_bits=16)], ids=str)
def test_few_outputs_in_parts_are_those_of_many(rounding, order):
    """Twenty outputs go side by side; alone, an output has its parts side by side."""
    x = values(fp.BINARY16, (20, 5000), 2)
    many = fp.Context(fp.BINARY16, rounding=rounding, seed=3)
    wanted = linalg.sum(x, 1, order, context=many).codes()
    few = fp.Context(fp.BINARY16, rounding=rounding, seed=3)
    for rows in (x[:1], x[:3], x[:15]):
        few.operation = 0
        got = linalg.sum(rows, 1, order, context=few).codes()
        assert got.tolist() == wanted[: len(rows)].tolist()
