"""Sums and products rounded per operation: which context, which output, refusals (corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.linalg import dot, mean, rounded_matmul
from fpsim.linalg import sum as total
from fpsim.state.bits import Replay


def pair(context):
    return context.array([[2048.0, 1.0, 1.0]]), context.array([[1.0]] * 3)


CALLS = {
    "sum": lambda a, b, **k: total(a, -1, **k),
    "mean": lambda a, b, **k: mean(a, -1, **k),
    "matmul": lambda a, b, **k: rounded_matmul(a, b, **k),
    "dot": lambda a, b, **k: dot(a.reshape(-1), b.reshape(-1), **k),
}


@pytest.mark.parametrize("name", CALLS)
def test_flags_and_rounding_are_those_of_the_context(name):
    home, other = fp.Context(fp.BINARY16), fp.Context(fp.BINARY16, rounding="RTP")
    result = CALLS[name](*pair(home), context=other)
    divisor = 3 if name == "mean" else 1
    assert result.context is other
    assert (home.flags, other.flags) == (fp.Flags.NONE, fp.Flags.INEXACT)
    assert float(result.values.item()) == (other.array(2052 / divisor).values.item())
    assert CALLS[name](*pair(home)).context is home
    assert home.flags == fp.Flags.INEXACT


@pytest.mark.parametrize("name", CALLS)
def test_another_format_is_refused(name):
    with pytest.raises(TypeError, match="fpsim never promotes"):
        CALLS[name](*pair(fp.Context(fp.BINARY16)), context=fp.Context(fp.BFLOAT16))


@pytest.mark.parametrize("name", ["sum", "mean", "matmul"])
def test_an_output_is_filled_or_refused(name):
    half = fp.Context(fp.BINARY16)
    wanted = CALLS[name](*pair(half)).values
    out = half.zeros(wanted.shape)
    assert CALLS[name](*pair(half), out=out) is out
    assert out.values.tolist() == wanted.tolist()
    half.clear_flags()
    for wrong, kind in ((half.zeros(7), ValueError), (fp.Context(fp.F143).zeros(1), TypeError)):
        with pytest.raises(kind, match="out"):
            CALLS[name](*pair(half), out=wrong)
    assert half.flags == fp.Flags.NONE


@pytest.mark.parametrize(
    ("choice", "wanted"), [({}, 2048.0), ({"kahan": True}, 2050.0), ({"fused": True}, 2048.0)]
)
def test_a_product_is_rounded_as_its_choice_says(choice, wanted):
    a, b = pair(fp.Context(fp.BINARY16))
    assert rounded_matmul(a, b, **choice).values.tolist() == [[wanted]]
    assert float(dot(a.reshape(-1), b.reshape(-1), **choice)) == wanted


def test_a_fused_term_is_rounded_once():
    half = fp.Context(fp.BINARY16)
    x, y = half.array([1.0, 1 + 2.0**-6]), half.array([-(1 + 2.0**-5), 1 + 2.0**-6])
    assert [float(dot(x, y, fused=fused)) for fused in (False, True)] == [0.0, 2.0**-12]


def test_wrong_operands_and_choices_are_refused():
    half, native = fp.Context(fp.BINARY16), fp.Context(fp.BINARY64)
    a, b = pair(half)
    with pytest.raises(ValueError, match="exclude each other"):
        rounded_matmul(a, b, fused=True, kahan=True)
    with pytest.raises(TypeError, match="b is ndarray, not an Array"):
        rounded_matmul(a, b.values)
    with pytest.raises(TypeError, match="kahan=True is not offered in binary64"):
        rounded_matmul(native.array([[1.0]]), native.array([[1.0]]), kahan=True)
    with pytest.raises(TypeError, match="order='pairwise' is not offered in binary64"):
        native.sum(native.array([1.0]), order="pairwise")
    with pytest.raises(ValueError, match="last dimension of a"):
        rounded_matmul(a, a)
    for x, y in ((a, a), (a.reshape(-1), b.reshape(-1)[:2])):
        with pytest.raises(ValueError, match="two equal vectors"):
            dot(x, y)


def test_binary64_takes_terms_in_ascending_order():
    native, n = fp.Context(fp.BINARY64), 40
    a, b = np.random.default_rng(0).standard_normal((2, 3, n, n))
    wanted, sums = a[..., :, :1] * b[..., :1, :], a[..., 0]
    for k in range(1, n):
        wanted, sums = wanted + a[..., :, k : k + 1] * b[..., k : k + 1, :], sums + a[..., k]
    assert np.array_equal((native.array(a) @ native.array(b)).values, wanted)
    assert np.array_equal(native.array(a).sum(-1).values, sums)
    assert np.array_equal(native.array(a).mean(-1).values, sums / n)
    nothing = native.matmul(native.zeros((2, 0)), native.zeros((0, 3)))
    assert nothing.values.tolist() == [[0] * 3] * 2
    assert np.isnan(float(native.array([np.nan, 1.0]).sum()))


@pytest.mark.parametrize("name", CALLS)
def test_a_trapped_operation_leaves_its_random_bits(name):
    half = fp.Context(fp.BINARY16, rounding=fp.SR(3), traps=fp.Flags.INEXACT)
    operands = pair(fp.Context(fp.BINARY16))
    with pytest.raises(fp.FloatingPointTrap):
        CALLS[name](*operands, context=half)
    assert half.operation == 0
    half.traps = fp.Flags.NONE
    CALLS[name](*operands, context=half)
    assert half.operation == 1


def test_a_sum_draws_one_integer_for_each_addition():
    half = fp.Context(fp.BINARY16, rounding=fp.SR(1), bits=Replay([[1, 1], [1, 0], [0, 0]]))
    x = fp.Context(fp.BINARY16).array([2048.0, 1.0, 1.0])
    assert [float(half.sum(x)) for _ in range(3)] == [2052.0, 2050.0, 2048.0]
    assert half.operation == 3


def test_nothing_sums_to_zero_and_has_no_mean():
    half = fp.Context(fp.BINARY16)
    empty = half.zeros((2, 0))
    assert total(empty, 1).codes().tolist() == [0, 0]
    assert rounded_matmul(empty, half.zeros((0, 3))).codes().tolist() == [[0] * 3] * 2
    assert half.flags == fp.Flags.NONE
    assert np.isnan(mean(empty, 1).values).all()
    assert half.flags == fp.Flags.INVALID
