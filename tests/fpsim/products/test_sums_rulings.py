"""Rulings on sums, whole numbers and stores beside the oracle (differential).

Every order reads operands alike; one element is itself; zero sums have the sign of IEEE 754 §6.3;
a subnormal integer is flushed; a format with one zero is given no other.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes
from fpsim.judge.oracle.operations import operate
from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.judge.oracle.sums import ORDERS, mean_of, sum_of
from fpsim.records.units import find_unit
from tests.tiers import pick, reaches

FORMATS = (fp.BINARY16, fp.BINARY32, fp.E5M2, fp.F143, fp.E4M3FN)
CHOICES = ("keep", "flush_results", "flush_both")
OTHER_UNITS = pick([], *[["A100_F16_F32", "H100_F16_F16"]] * 2)


def hard_codes(fmt, n, rng):
    """Zeros of both signs, subnormals, ordinary numbers and pairs that cancel."""
    hidden = 1 << (fmt.precision - 1)
    size = rng.choice([0, 1, hidden - 1, hidden // 2, hidden, 3 * hidden, 5 * hidden + 1], n)
    sign = rng.integers(0, 2, n)
    if not fmt.has_negative_zero:
        sign = np.where(size == 0, 0, sign)
    return (size + (sign << (fmt.bits - 1))).astype(fmt.code_dtype)


#: Formats with policies: the quick tier has each policy in one format, and each format once.
EVERY = [(fmt, subnormals) for fmt in FORMATS for subnormals in CHOICES]
SUMMED = [case for case in EVERY if case[0] == fp.BINARY16 or case[1] == "keep"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("fmt", "subnormals"), pick(SUMMED, EVERY, EVERY), ids=str)
def test_sums_and_means_agree_with_the_oracle(fmt, subnormals, order):
    rng = np.random.default_rng(5)
    directed = reaches("full") or (fmt in (fp.BINARY16, fp.F143) and subnormals == "keep")
    for rounding in (fp.RNE, fp.RTN) if directed else (fp.RNE,):
        for n in (0, 1, 2, 3, 5):
            rows = hard_codes(fmt, (pick(16, 64, 256), n), rng)
            for name, oracle in (("sum", sum_of), ("mean", mean_of)):
                if name == "mean" and not n:
                    continue
                context = fp.Context(fmt, rounding=rounding, subnormals=subnormals)
                x = context.wrap(from_codes(rows, fmt))
                got = getattr(context, name)(x, 1, order=order)
                flags = fp.Flags.NONE
                settings = OracleSettings(rounding, subnormals=subnormals)
                for i, row in enumerate(rows.tolist()):
                    code, raised = oracle(order, row, fmt, lambda place, s=settings: s)
                    flags |= raised
                    assert int(got.codes()[i]) == code, (name, rounding, [hex(c) for c in row])
                assert context.flags == flags, (name, rounding, n)


@pytest.mark.parametrize("order", ORDERS)
def test_a_single_nan_raises_where_quiet_ones_do(order):
    context = fp.Context(fp.BINARY16, quiet_nan_raises=True)
    context.sum(context.array([np.nan]), order=order)
    assert context.flags == fp.Flags.INVALID


INTEGERS = [(mode, s) for mode in ("RNE", "RTN", "RTZ", "RAZ") for s in CHOICES]


@pytest.mark.parametrize(("mode", "subnormals"), pick(INTEGERS[:4], INTEGERS, INTEGERS))
def test_integers_are_flushed_where_one_is_subnormal(mode, subnormals):
    for fmt in (fp.Format.custom(3, 5, bias=-1), fp.Format.custom(4, 6, bias=1), fp.BINARY16):
        rounding = fp.find_rounding(mode)
        codes = range(min(fmt.n_codes, 1 << 10))
        context = fp.Context(fmt, rounding=rounding, subnormals=subnormals)
        for code in codes:
            context.clear_flags()
            x = context.wrap(from_codes([code], fmt))
            got = context.round_to_integral(x)
            s = OracleSettings(rounding, subnormals=subnormals)
            wanted = operate("round_to_integral", (code,), fmt, s)
            assert (int(got.codes()[0]), context.flags) == wanted, (fmt, hex(code))


@pytest.mark.parametrize("unit", ["V100_F16_F32", "V100_F16_F16", *OTHER_UNITS])
@pytest.mark.parametrize("fmt", pick([fp.F143], *[[fp.F143, fp.F152]] * 2), ids=str)
def test_a_product_stored_where_there_is_one_zero_holds_it(unit, fmt):
    half, target = fp.Context(fp.BINARY16), fp.Context(fmt)
    for tiny in (-(2.0**-24), -0.0):
        a = half.wrap(np.full((1, 8), tiny, np.float32))
        b = half.wrap(np.full((8, 1), 2.0**-10, np.float32))
        c = fp.Context(find_unit(unit).partials).array([[-0.0]])
        for start in (None, c):
            got = target.matmul(a, b, unit, accumulator=start)
            assert not np.signbit(got.values).any(), (tiny, start)
            assert int(got.codes()[0, 0]) == 0


@pytest.mark.parametrize("order", ORDERS)
def test_a_trap_shows_the_elements_of_the_sum_that_raised(order):
    strict = fp.Context(fp.BINARY16, traps=fp.Flags.OVERFLOW)
    x = strict.array([[[1.0, 2.0], [65504.0, 4.0], [65504.0, 8.0]]] * 2)
    x[0] = 0.0
    with pytest.raises(fp.FloatingPointTrap) as trap:
        strict.sum(x, 1, order=order)
    assert (trap.value.operation, trap.value.index) == ("sum", (1, 0))
    assert [o.tolist() for o in trap.value.operands] == [[1.0, 65504.0, 65504.0]]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rounding", [fp.RNE, fp.RTN], ids=repr)
def test_a_mean_divides_by_the_number_of_elements_where_the_format_has_it_subnormal(
    order, rounding
):
    """Every code of a format from 2**16 on, where operands are flushed."""
    fmt = fp.Format.custom(5, 3, bias=-15)
    assert fmt.smallest_normal == 2.0**16
    rng, settings = np.random.default_rng(8), OracleSettings(rounding, subnormals="flush_both")
    for n in (1, 2, 3, 7):
        rows = rng.permutation(np.arange(fmt.n_codes * n) % fmt.n_codes).reshape(-1, n)
        context = fp.Context(fmt, rounding=rounding, subnormals="flush_both")
        got = context.mean(context.wrap(from_codes(rows, fmt)), 1, order).codes()
        flags = fp.Flags.NONE
        for i, row in enumerate(rows.tolist()):
            code, raised = mean_of(order, row, fmt, lambda place: settings)
            flags |= raised
            assert int(got[i]) == code, [hex(c) for c in row]
        assert context.flags == flags


def test_the_mean_of_two_equal_numbers_is_that_number():
    context = fp.Context(fp.Format.custom(5, 3, bias=-15), subnormals="flush_both")
    assert float(context.mean(context.array([2.0**17, 2.0**17]))) == 131072
    assert context.flags == fp.Flags.NONE
