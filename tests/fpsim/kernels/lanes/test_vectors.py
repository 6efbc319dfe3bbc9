"""Lane operations against numpy (differential)."""

from __future__ import annotations

import numpy as np

from fpsim.kernels.lanes import arithmetic
from fpsim.kernels.lanes import vectors as v
from tests.fpsim.kernels.on_lanes import on_bits, on_floats

X = np.array([1.5, -2.25, 0.0, -0.0, np.inf, -np.inf, np.nan, 7.75] * 2, np.float32)
Y = np.array([2.5, 2.25, -3.0, 1.0, 1.0, np.inf, 2.0, -0.5] * 2, np.float32)
A = np.array([0, 1, 2**31, 2**32 - 1, 12345, 77, 2**24, 3] * 2, np.uint32)
B = np.array([1, 31, 4, 7, 12345, 5, 2**30, 2] * 2, np.uint32)


def floats(function, *operands):
    return on_floats(function, *operands).view(np.float32)


def test_arithmetic_of_floats():
    with np.errstate(all="ignore"):
        expected = [X + Y, X - Y, X * Y, X / Y, np.sqrt(np.abs(X))]
    actual = [
        floats(lambda x, y: x + y, X, Y), floats(lambda x, y: x - y, X, Y),
        floats(lambda x, y: x * y, X, Y), floats(lambda x, y: x / y, X, Y),
        floats(v.sqrt, np.abs(X)),
    ]
    for one, other in zip(actual, expected, strict=True):
        assert np.array_equal(one, other, equal_nan=True)


def test_arithmetic_of_integers():
    shifts = B & 31
    assert np.array_equal(on_bits(lambda a, b: a + b, A, B), A + B)
    assert np.array_equal(on_bits(lambda a, b: a - b, A, B), A - B)
    assert np.array_equal(on_bits(lambda a, b: (a & b) ^ (a | b), A, B), A ^ B)
    assert np.array_equal(on_bits(lambda a, b: (a << b) | (a >> b), A, shifts),
                          (A << shifts) | (A >> shifts))
    assert np.array_equal(on_bits(lambda a: ~a, A), ~A)
    assert np.array_equal(on_bits(v.umin, A, B), np.minimum(A, B))
    assert np.array_equal(on_bits(v.umax, A, B), np.maximum(A, B))
    signed = A.view(np.int32), B.view(np.int32)
    assert np.array_equal(on_bits(arithmetic.smax, A, B), np.maximum(*signed).view(np.uint32))


def test_comparisons_are_ordered_and_integers_unsigned():
    one = np.float32(1).view(np.uint32)

    for name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__"):
        with np.errstate(invalid="ignore"):
            expected = getattr(X, name)(Y)

        def chosen(x, y, name=name):
            bits = v.as_bits(x)
            return v.select(getattr(x, name)(y), (bits ^ bits) + int(one), bits ^ bits)

        assert np.array_equal(on_floats(chosen, X, Y) == one, expected)
    assert np.array_equal(
        on_bits(lambda a, b: v.select(a < b, (a ^ a) + 1, a ^ a), A, B) == 1, A < B
    )
    nan = on_floats(lambda x: v.select(v.is_nan(x), x - x, x), np.array([np.nan, 1.0] * 8))
    assert np.isnan(nan.view(np.float64)).tolist() == [True, False] * 8


def test_landmarks_and_widths():
    assert set(on_bits(v.sign_like, A).tolist()) == {1 << 31}
    assert set(on_bits(v.infinity_like, A).tolist()) == {0x7F800000}
    assert set(on_bits(v.quiet_like, A).tolist()) == {0x00400000}
    wide = np.arange(8, dtype=np.uint64)
    assert set(on_bits(v.infinity_like, wide).tolist()) == {0x7FF0000000000000}
    assert v.VECTOR_WIDTH * 32 == 512


def test_pairs_and_halves_keep_every_lane():
    assert np.array_equal(on_bits(lambda a: v.pairs_apart(v.pairs_joined(a)), A), A)
    assert np.array_equal(on_bits(lambda a: v.concat(v.low_half(a), v.high_half(a)), A), A)
    narrowed = on_floats(lambda x: v.concat(*(v.narrow(v.widen(h)) for h in (
        v.low_half(x), v.high_half(x)))), np.abs(Y))
    assert np.array_equal(narrowed.view(np.float32), np.abs(Y))
