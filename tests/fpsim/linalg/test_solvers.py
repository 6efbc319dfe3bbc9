"""GMRES and refinement against loops and exact arithmetic (differential, law)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim import linalg
from fpsim.kernels.by_operation.pairs import residuals
from tests.fpsim.linalg import loops
from tests.fpsim.linalg.loops import HALF, NATIVE, SINGLE, matrix


def randsvd(n, kappa, seed=0):
    """A matrix of this condition number, of binary32 numbers."""
    random = np.random.default_rng(seed)
    left, right = (np.linalg.qr(random.standard_normal((n, n)))[0] for _ in range(2))
    a = left * np.logspace(0, -np.log10(kappa), n) @ right
    return a.astype(np.float32), random.standard_normal(n).astype(np.float32)


def test_refinement_is_the_analysts_loop():
    A, b = randsvd(30, 100)
    factors = linalg.lu(HALF.array(A)).to(SINGLE)
    result = linalg.refine(
        A, b, factor=HALF, work=SINGLE, residual=NATIVE, steps=4, tolerance=0,
        watch=lambda x: x.copy(),
    )
    for steps, x in enumerate(result.watched):
        wanted = loops.refine(A, b, factors, NATIVE, SINGLE, steps)
        assert np.array_equal(x.codes(), wanted.codes())
    assert result.steps <= 4
    assert not result.converged


def test_refinement_ends_where_nothing_moves():
    A, b = np.eye(3), np.ones(3)
    result = linalg.refine(
        A, b, factor=HALF, work=SINGLE, residual=NATIVE, steps=10**9, tolerance=0
    )
    assert result.steps == 1
    assert result.converged


@pytest.mark.parametrize("solver", ["lu", "gmres"])
def test_refinement_reaches_the_working_precision(solver):
    A, b = randsvd(40, 300)
    exact = np.linalg.solve(A.astype(float), b.astype(float))
    result = linalg.refine(
        A, b, factor="binary16", work="binary32", residual="binary64", solver=solver
    )
    assert result.converged
    assert np.abs(result.x.values - exact).max() < 2.0**-23 * np.abs(exact).max()
    assert result.corrections[-1] <= 2.0**-24 < result.corrections[0]
    assert len(result.inner) == result.steps == len(result.backward_errors)
    assert result.contexts["factor"].flags & fp.Flags.INEXACT


def test_gmres_helps_where_substitution_fails():
    A, b = randsvd(40, 1e5)
    runs = [
        linalg.refine(A, b, factor=HALF, work=SINGLE, residual=NATIVE, solver=solver, steps=12)
        for solver in ("lu", "gmres")
    ]
    assert [run.converged for run in runs] == [False, True]


def test_five_roles_may_have_five_precisions():
    A, b = randsvd(20, 1e3)
    roles = {"factor": "binary16", "work": "binary64", "residual": "pairs", "basis": "binary16",
             "applied": "binary32"}
    result = linalg.refine(A, b, solver="gmres", steps=60, **roles)
    assert result.converged
    assert result.contexts["residual"] == "pairs"
    formats = {k: c.format for k, c in result.contexts.items() if k != "residual"}
    assert formats == {k: fp.find_format(v) for k, v in roles.items() if k != "residual"}
    assert all(result.contexts[k].flags for k in ("factor", "basis", "applied"))
    exact = np.linalg.solve(A.astype(float), b.astype(float))
    assert np.abs(result.x.values - exact).max() < 1e-11 * np.abs(exact).max()


def test_residuals_in_pairs_are_nearly_exact():
    """b - A x where almost everything cancels: pairs have it, binary64 has no digit."""
    n, random = 30, np.random.default_rng(4)
    A, x = random.standard_normal((n, n)), random.standard_normal(n)
    b, out = A @ x, np.empty(n)
    residuals(A, x, b, out)
    bounds = n**2 * 2.0**-105 * (np.abs(A) @ np.abs(x))
    for row, right, value, bound in zip(A.tolist(), b.tolist(), out.tolist(), bounds, strict=True):
        terms = (Fraction(a) * Fraction(v) for a, v in zip(row, x.tolist(), strict=True))
        exact = Fraction(right) - sum(terms)
        assert abs(Fraction(value) - exact) <= Fraction(bound) + abs(exact) / 2**53


def test_pairs_refine_to_the_last_digit_where_binary64_does_not():
    A, b = (v.astype(float) for v in randsvd(30, 1e6, seed=2))
    rows = [[Fraction(v) for v in row] for row in A.tolist()]
    errors = []
    for residual in ("binary64", "pairs"):
        run = linalg.refine(A, b, factor="binary32", work="binary64", residual=residual, steps=20)
        x = [Fraction(v) for v in run.x.tolist()]
        left = [Fraction(bi) - sum(r * v for r, v in zip(row, x, strict=True))
                for row, bi in zip(rows, b.tolist(), strict=True)]
        correction = np.linalg.solve(A, np.array([float(v) for v in left]))
        assert run.contexts["residual"] == "pairs" or residual == "binary64"
        errors.append(np.abs(correction).max() / np.abs(run.x.values).max())
    assert errors[1] < 2.0**-53 < errors[0]


def test_gmres_solves_and_its_recurrence_is_the_residual():
    a = matrix(SINGLE, (25, 25)) + SINGLE.array(6 * np.eye(25))
    b = matrix(SINGLE, 25, seed=1)
    solution = linalg.gmres(a, b, tolerance=1e-5)
    residual = b.values - a.values.astype(float) @ solution.x.values
    assert solution.converged
    assert solution.residuals[-1] <= 1e-5 < solution.residuals[-2]
    assert np.linalg.norm(residual) / np.linalg.norm(b.values) < 2e-5
    assert solution.iterations == len(solution.residuals) - 1 < 25


def test_exact_factors_need_one_iteration():
    a, b = matrix(SINGLE, (12, 12)), matrix(SINGLE, 12, seed=1)
    assert linalg.gmres(a, b, factors=linalg.lu(a)).iterations == 1
    wide = linalg.gmres(a.to(NATIVE), b, factors=linalg.lu(a), context=SINGLE)
    assert wide.x.format == fp.BINARY32
    assert wide.converged


def test_gmres_ends_where_nothing_is_left():
    unit, zero = HALF.array(np.eye(3)), HALF.zeros(3)
    assert linalg.gmres(unit, zero).converged
    assert linalg.gmres(unit, zero).iterations == 0
    one = linalg.gmres(unit, HALF.array([1.0, 2.0, 3.0]))
    assert one.converged
    assert one.iterations == 1
    lost = linalg.gmres(unit, HALF.array([np.inf, 0.0, 0.0]))
    assert not lost.converged
    singular = linalg.gmres(HALF.zeros((3, 3)), HALF.ones(3))
    assert not singular.converged
    empty = linalg.gmres(HALF.zeros((0, 0)), HALF.zeros(0))
    assert empty.converged


@pytest.mark.parametrize("size", [1e-4, 300.0, np.inf, np.nan])
def test_gmres_has_not_converged_where_the_norm_of_b_is_no_positive_number(size):
    solution = linalg.gmres(HALF.array(2 * np.eye(2)), HALF.array([size, size]))
    assert (solution.iterations, solution.converged, solution.residuals) == (0, False, (1.0,))


ROLES = {"factor": "binary16", "work": "binary32", "residual": "binary64"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"residual": "binary128"}, "residual='binary128' is beyond what formats hold.*'pairs'"),
        ({"work": "nonsense"}, "nonsense"),
        ({"factor": 16}, "factor=16 is no context; give one, a format or its name"),
        ({"solver": "cg"}, "solver='cg' is not offered; use one of 'lu', 'gmres'"),
        ({"steps": -1}, "steps=-1 is too small"),
        ({"tolerance": -1.0}, "tolerance=-1.0 is not allowed"),
        ({"A": 1e5 * np.eye(2)}, "A has magnitudes to 100000, and factor=binary16 ends at 65504"),
        ({"A": 1e-9 * np.eye(2)}, r"U\[0, 0\] is 0: the matrix is singular in binary16"),
        ({"A": np.ones((2, 3))}, r"A has shape \(2, 3\); give a square matrix"),
        ({"A": [[np.nan, 0], [0, 1]]}, "A has elements that are not finite in binary32"),
        ({"b": [1e50, 1.0]}, "b has elements that are not finite in binary32"),
        ({"b": np.ones((2, 1))}, "give a vector of 2 elements"),
        ({"b": np.ones(3)}, "give a vector of 2 elements"),
        ({"A": [[1e200]], "b": [1.0], "work": "binary64", "factor": "binary64",
          "residual": "pairs"}, "takes magnitudes to 2..510, got 1e.200"),
    ],
)
def test_what_cannot_be_refined_is_refused_with_a_sentence(changes, message):
    arguments = {"A": np.eye(2), "b": np.ones(2), **ROLES, **changes}
    with pytest.raises((TypeError, ValueError), match=message):
        linalg.refine(arguments.pop("A"), arguments.pop("b"), **arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: linalg.gmres(a, b.reshape(-1, 1)), "give a vector of 2 elements"),
        (lambda a, b: linalg.gmres(a, b, tolerance="no"), "tolerance='no' is not allowed"),
        (lambda a, b: linalg.gmres(a, b, max_iterations=0), "max_iterations=0 is too small"),
        (lambda a, b: linalg.gmres(a, b, factors=3), "factors=3 are no factors of a"),
    ],
)
def test_what_gmres_cannot_take_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(HALF.array(np.eye(2)), HALF.ones(2))
