"""Results below the smallest normal number become zero or that number (exhaustive, law)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim import linalg
from tests.tiers import pick

#: Five bits: every pair of finite numbers, and triples.
SMALL = fp.Format.custom(3, 3, name="small")
MODES = pick(["RNE", "RTP"], *[["RNE", "RNA", "RNZ", "RTZ", "RTP", "RTN", "RAZ", "RTO"]] * 2)
OPERATIONS = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
}
FLAGS = fp.Flags.UNDERFLOW | fp.Flags.INEXACT


def wanted(exact, mode):
    """Zero or the smallest normal number with the sign of an exact result between them."""
    smallest, size = Fraction(SMALL.smallest_normal), abs(exact)
    up = {
        "RNE": 2 * size > smallest, "RNZ": 2 * size > smallest, "RNA": 2 * size >= smallest,
        "RTZ": False, "RAZ": True, "RTO": True, "RTP": exact > 0, "RTN": exact < 0,
    }[mode]
    return np.copysign(SMALL.smallest_normal if up else 0.0, float(exact))


def numbers(context):
    """Every number of the policy: zeros and normal ones."""
    values = fp.Context(SMALL).unpack(np.arange(SMALL.n_codes, dtype=np.uint8)).values
    size = np.abs(values)
    return context.array(values[np.isfinite(values) & ((size == 0) | (size >= 2.0**-2))])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_pair_has_its_result_and_flags(mode, name):
    context = fp.Context(SMALL, rounding=mode, subnormals="zero_or_normal")
    gradual = fp.Context(SMALL, rounding=mode)
    x = numbers(context)
    results = getattr(context, name)(x[:, None], x[None, :]).values
    usual = getattr(gradual, name)(x.to(gradual)[:, None], x.to(gradual)[None, :]).values
    tiny = 0
    for i, j in np.ndindex(results.shape):
        a, b = (Fraction(float(x[k])) for k in (i, j))
        if name == "divide" and b == 0:
            continue
        exact = OPERATIONS[name](a, b)
        if 0 < abs(exact) < Fraction(SMALL.smallest_normal):
            tiny += 1
            one = context.replace()
            single = float(getattr(one, name)(x[i], x[j]))
            value = wanted(exact, mode)
            assert (single, np.signbit(single)) == (value, np.signbit(value))
            assert one.flags == FLAGS
            assert results[i, j] == value
        else:
            assert results[i, j] == usual[i, j] or np.isnan(results[i, j])
    assert tiny > 10


def test_half_of_the_smallest_is_a_tie():
    context = fp.Context("binary16", subnormals="zero_or_normal")
    half = 2.0**-15
    around = [half * (1 - 2.0**-40), half, half * (1 + 2.0**-40), -half * 1.5, 2.0**-14]
    assert context.array(around).tolist() == [0, 0, 2.0**-14, -(2.0**-14), 2.0**-14]
    away = context.replace(rounding="RNA")
    assert away.array(around).tolist() == [0, 2.0**-14, 2.0**-14, -(2.0**-14), 2.0**-14]
    assert float(context.fma(context.array(2.0**-8), 2.0**-7, 2.0**-14)) == 2.0**-14 * (1 + 2.0**-1)
    assert context.constant(3e-5).values == 0
    assert float(context.exp(context.array(-10.0))) == 2.0**-14  # 4.54e-5
    assert float(context.exp(context.array(-10.5))) == 0  # 2.75e-5


def test_sums_and_products_are_their_operations():
    context = fp.Context("binary16", subnormals="zero_or_normal", count=True)
    random = np.random.default_rng(0)
    a, b = (context.array(random.standard_normal((5, 5)) * 2.0**-7) for _ in range(2))
    product, total = context.zeros((5, 5)), a[:, 0]
    for k in range(5):
        product = product + a[:, k : k + 1] * b[k : k + 1]
    for k in range(1, 5):
        total = total + a[:, k]
    assert np.array_equal((a @ b).values, product.values)
    assert np.array_equal(a.sum(1).values, total.values)
    assert np.array_equal(a.mean(1).values, (total / 5).values)
    gradual = fp.Context("binary16").array(a.values)
    assert not np.array_equal((a @ b).values, (gradual @ gradual.context.array(b.values)).values)
    assert linalg.lu(a).packed.shape == (5, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fp.Context("binary16", rounding="SR", subnormals="zero_or_normal"),
         "not modelled with rounding=SR"),
        (lambda: fp.Context("e2m1fn", subnormals="zero_or_normal"), "three digits or more"),
        (lambda: fp.Context("binary64", subnormals="zero_or_normal"), "binary64 computes natively"),
        (lambda: X.context.sum(X, order="pairwise"), "order='pairwise' is not offered"),
        (lambda: linalg.rounded_matmul(Y, Y, kahan=True), "kahan=True is not offered"),
        (lambda: X.context.matmul(Y, Y, "V100_F16_F32"), "no unit stores so"),
        (lambda: X.context.matmul(Y, Y, "V100_F16_F32", subnormals="zero_or_normal"),
         "subnormals='zero_or_normal' is not known"),
    ],
)
def test_what_is_not_modelled_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


X = fp.Context("binary16", subnormals="zero_or_normal").array([1.0, 2.0])
Y = X.reshape(1, 2).T @ X.reshape(1, 2)
