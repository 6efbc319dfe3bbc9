"""Factorisations are the textbook loops, bit for bit (differential, law, corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim import linalg
from fpsim.state.bits import Replay
from tests.fpsim.linalg import loops
from tests.fpsim.linalg.loops import CONTEXTS, HALF, NATIVE, SINGLE, fresh, matrix


def same(x, y):
    return x.format == y.format and np.array_equal(x.codes(), y.codes())


def outcome(context, function):
    """A result, with the flags and the number of the next operation that it leaves."""
    result = function(fresh(context))
    return result, context.flags, context.operation


def is_as_the_loop(context, function, loop):
    (result, *left), (wanted, *wanted_left) = (outcome(context, f) for f in (function, loop))
    assert left == wanted_left
    return all(
        same(x, y) if isinstance(x, fp.Array) else np.array_equal(x, y)
        for x, y in zip(result, wanted, strict=True)
    )


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("shape", [(37, 37), (20, 5), (5, 20), (1, 1), (0, 0), (3, 0)])
def test_lu_is_the_textbook_loop(name, shape):
    context = CONTEXTS[name]()
    a = matrix(context, shape)

    def packed(context):
        factors = linalg.lu(a)
        return factors.packed, factors.p

    assert is_as_the_loop(context, packed, lambda context: loops.lu(a))


@pytest.mark.parametrize("name", sorted(CONTEXTS.keys() & {"half", "native", "flushed"}))
def test_lu_takes_every_number(name):
    """NaN, infinities, overflow, subnormals, columns of zeros, equal magnitudes."""
    context = CONTEXTS[name]()
    random = np.random.default_rng(3)
    for i in range(40):
        values = random.standard_normal((9, 9)) * 10.0 ** random.integers(-6, 5, (9, 9))
        values[:, i % 9] = 0.0 if i % 3 else values[:, 0]
        values[random.integers(0, 9), random.integers(0, 9)] = (np.nan, np.inf, -0.0)[i % 3]
        a = context.array(values)
        factors, (wanted, p) = linalg.lu(a), loops.lu(a)
        assert np.array_equal(factors.p, p)
        assert np.array_equal(factors.packed.values, wanted.values, equal_nan=True)


def test_lu_is_that_of_numpys_float16():
    a = np.random.default_rng(1).random((50, 50)).astype(np.float16)
    packed = a.copy()
    for k in range(49):
        packed[k + 1 :, k] /= packed[k, k]
        packed[k + 1 :, k + 1 :] -= np.outer(packed[k + 1 :, k], packed[k, k + 1 :])
    assert np.array_equal(linalg.lu(HALF.array(a), pivot=False).packed.to_numpy(), packed)


def test_given_random_bits_are_taken_operation_by_operation():
    shapes = [(2,), (2, 2), (2, 2), (1,), (1, 1), (1, 1)]
    random = np.random.default_rng(0)
    words = [random.integers(0, 1 << 13, shape) for shape in shapes]
    a = matrix(HALF, (3, 3))
    results = []
    for function in (lambda x: linalg.lu(x).packed, lambda x: loops.lu(x)[0]):
        context = fp.Context("binary16", rounding="SR", bits=Replay(words))
        results.append(function(fp.Array(a.carrier, context)))
    assert same(*results)


def test_a_trap_stops_inside_a_factorisation():
    context = fp.Context("binary16", traps=fp.Flags.OVERFLOW)
    a = context.array([[1e-3, 1.0], [1e-3, 6e4]])
    with pytest.raises(fp.FloatingPointTrap, match=r"divide|multiply|subtract"):
        linalg.lu(context.array([[6e-8, 6e4], [6e-8, -6e4]]), pivot=False)
    assert linalg.lu(a).p.tolist() == [0, 1]


def test_factors_make_the_matrix():
    a = matrix(SINGLE, (30, 30))
    L, U, p = linalg.lu(a)
    assert np.abs((L.values.astype(float) @ U.values)[np.argsort(p)] - a.values).max() < 1e-5
    assert (np.triu(L.values, 1) == 0).all()
    assert (np.tril(U.values, -1) == 0).all()
    tall, wide = linalg.lu(matrix(HALF, (5, 3))), linalg.lu(matrix(HALF, (3, 5)))
    assert [x.shape for x in (tall.L, tall.U, wide.L, wide.U)] == [(5, 3), (3, 3), (3, 3), (3, 5)]


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("columns", [None, 1, 18])
def test_substitution_is_the_textbook_loop(name, columns):
    context = CONTEXTS[name]()
    a = matrix(context, (19, 19)) + context.array(4 * np.eye(19))
    b = matrix(context, (19,) if columns is None else (19, columns), seed=1)
    for function, loop in (
        (lambda c: [linalg.solve_triangular(a, b)], lambda c: [loops.backward(a, b)]),
        (lambda c: [linalg.solve_triangular(a, b, lower=True)], lambda c: [loops.forward(a, b)]),
        (lambda c: [linalg.solve_triangular(a, b, lower=True, unit_diagonal=True)],
         lambda c: [loops.forward(a, b, unit=True)]),
    ):
        assert is_as_the_loop(context, function, loop)


@pytest.mark.parametrize("name", CONTEXTS)
def test_cholesky_is_the_textbook_loop(name):
    context = CONTEXTS[name]()
    x = np.random.default_rng(2).standard_normal((21, 9))
    a = context.array(x.T @ x / 8)
    a = np.tril(a) + np.tril(a, -1).T + context.array(2 * np.eye(9))
    function, loop = lambda c: [linalg.cholesky(a)], lambda c: [loops.cholesky(a)]
    assert is_as_the_loop(context, function, loop)


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("shape", [(12, 12), (9, 4), (4, 9)])
def test_qr_is_the_textbook_loop(name, shape):
    context = CONTEXTS[name]()
    a = matrix(context, shape)
    assert is_as_the_loop(context, lambda c: linalg.qr(a), lambda c: loops.qr(a))


def test_q_is_orthogonal_and_r_triangular():
    a = matrix(NATIVE, (8, 5))
    for mode, columns in (("reduced", 5), ("complete", 8)):
        q, r = (x.values for x in linalg.qr(a, mode))
        assert q.shape == (8, columns)
        assert r.shape == (columns, 5)
        assert np.abs(q.T @ q - np.eye(columns)).max() < 1e-14
        assert np.abs(q @ r - a.values).max() < 1e-14
        assert (np.tril(r, -1) == 0).all()
    q, r = linalg.qr(HALF.zeros((3, 2)))
    assert (q.values == np.eye(3, 2)).all()
    assert not r.values.any()


def test_bits_do_not_depend_on_threads():
    a = fp.Context("binary16", rounding="SR", seed=5).array(
        np.random.default_rng(0).standard_normal((300, 300))
    )
    before = fp.get_threads()
    try:
        results = []
        for threads in (1, 2, 4):
            fp.set_threads(threads)
            results.append(linalg.lu(fp.Array(a.carrier, fresh(a.context))).packed)
    finally:
        fp.set_threads(before)
    assert same(results[0], results[1])
    assert same(results[0], results[2])


def test_a_solution_is_elimination_and_two_substitutions():
    a, b = matrix(SINGLE, (20, 20)), matrix(SINGLE, (20, 3), seed=1)
    x = linalg.solve(a, b)
    L, U, p = linalg.lu(a)
    assert same(x, loops.backward(U, loops.forward(L, b[p], unit=True)))
    assert same(linalg.inv(a), linalg.solve(a, SINGLE.array(np.eye(20))))
    assert np.abs(a.values.astype(float) @ x.values - b.values).max() < 1e-4


def test_a_context_of_the_same_format_can_compute():
    a, down = matrix(HALF, (6, 6)), fp.Context("binary16", rounding="RTZ")
    assert same(linalg.lu(a, context=down).packed, linalg.lu(a.to(down)).packed)
    assert linalg.lu(a, context=down).packed.context is down


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linalg.lu(HALF.zeros(3)), r"a has shape \(3,\); give a matrix"),
        (lambda: linalg.lu(np.eye(3)), "a is ndarray, not an Array"),
        (lambda: linalg.lu(HALF.zeros((2, 9000))), "at most 8192 rows and columns"),
        (lambda: linalg.lu(matrix(HALF, (2, 2)), context=SINGLE), "never promotes"),
        (lambda: linalg.solve(HALF.zeros((2, 3)), HALF.zeros(2)), "give a square matrix"),
        (lambda: linalg.solve(HALF.array(np.eye(2)), HALF.zeros(3)), "give a vector of 2 elements"),
        (lambda: linalg.solve(HALF.array(np.eye(2)), SINGLE.zeros(2)), "never promotes"),
        (lambda: linalg.solve(HALF.zeros((2, 2)), HALF.zeros(2)), r"U\[0, 0\] is 0: the matrix is"),
        (lambda: linalg.cholesky(HALF.array([[1.0, 2.0], [0.0, 1.0]])), "a is not symmetric"),
        (lambda: linalg.cholesky(HALF.array([[1.0, 2.0], [2.0, 1.0]])), "pivot 1 is -3: the"),
        (lambda: linalg.cholesky(HALF.array([[np.nan]])), "pivot 0 is nan: the matrix"),
        (lambda: linalg.qr(HALF.zeros((2, 2)), "full"), "mode='full' is not offered"),
        (lambda: linalg.lu(HALF.zeros((2, 2)), pivot=1), "pivot=1 is not offered; use one of"),
        (lambda: linalg.solve_triangular(HALF.zeros((2, 2)), HALF.zeros(2), lower="no"),
         "lower='no' is not offered"),
        (lambda: linalg.norm(HALF.zeros((2, 2)), 2), "ord=2 is not offered; use one of .fro., 1"),
        (lambda: linalg.norm(HALF.zeros(2), "nuc"), "ord='nuc' is not offered"),
        (lambda: linalg.norm(HALF.zeros((2, 2, 2))), "give a vector or a matrix"),
        (lambda: linalg.cond(HALF.zeros((2, 2)), 2), "p=2 is not offered; use one of 1, inf"),
    ],
)
def test_what_cannot_be_computed_is_refused_with_a_sentence(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_arrays_of_other_settings_meet_only_in_a_named_context():
    down = fp.Context("binary16", rounding="RTZ")
    a, b = matrix(HALF, (3, 3)), matrix(down, 3)
    with pytest.raises(TypeError, match="rounding"):
        linalg.solve(a, b)
    assert same(linalg.solve(a, b, context=down), linalg.solve(a.to(down), b))


def test_norms_are_sums_of_rounded_terms():
    x = matrix(HALF, (7, 5))
    flat = x.reshape(-1)
    assert same(linalg.norm(x), np.sqrt(np.sum(flat * flat)))
    assert same(linalg.norm(flat), linalg.norm(x, "fro"))
    assert same(linalg.norm(x, 1), np.max(np.sum(abs(x), 0)))
    assert same(linalg.norm(x, np.inf), np.max(np.sum(abs(x), 1)))
    assert same(linalg.norm(flat, 1), np.sum(abs(flat)))
    assert same(linalg.norm(flat, np.inf), np.max(abs(flat)))
    assert [float(linalg.norm(HALF.zeros(0), o)) for o in (1, 2, np.inf)] == [0, 0, 0]
    a = matrix(HALF, (5, 5))
    assert same(linalg.cond(a, "fro"), linalg.norm(a) * linalg.norm(linalg.inv(a)))
