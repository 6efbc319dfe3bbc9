"""Iterative refinement: a system solved in several precisions, one context for each role.

Source    E. Carson, N. J. Higham, Accelerating the solution of linear systems by iterative
          refinement in three precisions, SIAM J. Sci. Comput. 40 (2018), A817;
          docs/linear-algebra.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.context import Context
from fpsim.elementwise.sizes import checked_count
from fpsim.kernels.by_operation.pairs import residuals
from fpsim.linalg.factors import LU, lu
from fpsim.linalg.krylov import checked_tolerance, gmres
from fpsim.linalg.operands import checked_choice, right_side, square
from fpsim.records.formats import BINARY64, Format
from fpsim.state.processor import usual_arithmetic

__all__ = ["Refinement", "refine"]

#: Larger numbers cannot be halved without overflow.
_LARGEST_OF_PAIRS = 2.0**510
#: Names of what no format here holds.
_TOO_PRECISE = ("binary128", "quad", "quadruple", "double-double", "binary256")


@dataclass(frozen=True)
class Refinement:
    """A refined solution, and how it came about.

    x                of the working precision.
    converged        the last correction was small enough.
    steps            corrections that were added.
    corrections      largest element of each correction over that of x.
    backward_errors  of x before each correction, |b - A x| / (|A||x| + |b|) by largest row sums;
                     b - A x as the residual's precision has it.
    inner            products with A of each step's GMRES; zeros without it.
    watched          what `watch` returned for x at the start and after each step.
    contexts         of each role, by its name (factor, work, residual, basis, applied); their flags
                     are there.

    >>> import numpy as np
    >>> A, b = np.array([[4.0, 1.0], [1.0, 3.0]]) / 7, np.array([1.0, 2.0])
    >>> result = refine(A, b, factor="binary16", work="binary32", residual="binary64")
    >>> isinstance(result, Refinement), result.steps
    (True, 2)
    >>> [error < 1e-7 for error in result.backward_errors]
    [False, True]
    >>> result.contexts["factor"].flags.names
    ['INEXACT']
    """

    x: Array
    converged: bool
    steps: int
    corrections: tuple[float, ...]
    backward_errors: tuple[float, ...]
    inner: tuple[int, ...]
    watched: tuple[Any, ...]
    contexts: dict[str, Context | str]


@usual_arithmetic
def refine(
    A: Any, b: Any, *, factor: Context | Format | str, work: Context | Format | str,
    residual: Context | Format | str, solver: str = "lu",
    basis: Context | Format | str | None = None, applied: Context | Format | str | None = None,
    steps: int = 30, tolerance: float | None = None, inner_tolerance: float | None = None,
    watch: Callable[[Array], Any] | None = None,
) -> Refinement:
    """x with A x = b: LU in one precision, corrections in a second, residuals in a third.

    factor, work, residual   contexts, or formats to nearest. residual="pairs": pairs of binary64,
                    for more digits than formats have; A, b and x must then be of binary64.
    solver          lu: the correction by substitution with L and U in `work`; gmres: by `gmres`.
    basis, applied  of GMRES: where its basis is computed (default: `work`), and where A, L and U
                    are applied (default: `residual`, or `work` for pairs); so five precisions.
    steps           at most so many corrections; fewer where one changes nothing.
    tolerance       of the last correction over x, by largest elements; default: the unit roundoff
                    of `work`.
    inner_tolerance  of GMRES; default: as `gmres`.
    watch           called with x at the start and after each step.

    Shapes    A (N, N), b (N,): Arrays or numbers.
    Rounding  A and b are converted to `work`: theirs is the system that is solved. `lu` of that A
              in `factor`; x = U^-1 L^-1 b in `work`; then r = b - A x in `residual`, terms in order
              and the difference last, converted to `work` (for GMRES scaled by a power of two and
              converted to `basis`, d the other way); x = x + d in `work`. In pairs: every
              row's terms in order, each product and sum with what it lost (Dot2), rounded once.
    Error     in pairs: 2**-53 of the residual, and N² 2**-105 |A||x|.
    Flags     in the context of each role.
    Raises    ValueError where A does not fit the range of `factor`, LinAlgError where it is
              singular there.
    Source    Carson and Higham 2018, algorithm 1.1 with u_s = u for the substitutions;
              docs/linear-algebra.md.

    >>> import numpy as np
    >>> A, b = np.array([[4.0, 1.0], [1.0, 3.0]]) / 7, np.array([1.0, 2.0])
    >>> result = refine(A, b, factor="binary16", work="binary32", residual="binary64")
    >>> result.converged, np.abs(result.x.values - np.linalg.solve(A, b)).max() < 1e-6
    (True, np.True_)
    """
    checked_choice("solver", solver, ("lu", "gmres"))
    if watch is not None and not callable(watch):
        raise TypeError(f"watch={watch!r} is no function of x; give one, or None")
    most = checked_count("steps", steps)
    roles = _Roles(factor, work, residual, basis, applied)
    tolerance = checked_tolerance(tolerance, roles.work.format.eps / 2)
    system = _System(roles, _numbers("A", A, roles.work), _numbers("b", b, roles.work))
    run = _Run(system, watch)
    while run.steps < most and not run.is_done(tolerance):
        run.step(solver, inner_tolerance)
    return run.result(tolerance)


class _Roles:
    """The contexts of a refinement."""

    def __init__(self, factor: Any, work: Any, residual: Any, basis: Any, applied: Any) -> None:
        self.factor, self.work = _context("factor", factor), _context("work", work)
        self.basis = self.work if basis is None else _context("basis", basis)
        self.in_pairs = isinstance(residual, str) and residual == "pairs"
        self.residual = self.work if self.in_pairs else _context("residual", residual)
        self.applied = self.residual if applied is None else _context("applied", applied)
        if self.in_pairs and self.work.format != BINARY64 and self.work.format.precision > 26:
            raise ValueError(f"residual='pairs' takes numbers of binary64, not {self.work.format}")

    def named(self) -> dict[str, Context | str]:
        residual = "pairs" if self.in_pairs else self.residual
        return {"factor": self.factor, "work": self.work, "residual": residual,
                "basis": self.basis, "applied": self.applied}


def _context(role: str, choice: Any) -> Context:
    if isinstance(choice, Context):
        return choice
    if isinstance(choice, str) and choice in _TOO_PRECISE:
        raise ValueError(
            f"{role}={choice!r} is beyond what formats hold: at most 26 digits, or binary64; for "
            "residuals with more digits use residual='pairs'"
        )
    if not isinstance(choice, (Format, str)):
        raise TypeError(f"{role}={choice!r} is no context; give one, a format or its name")
    return Context(choice)


def _numbers(name: str, values: Any, work: Context) -> Array:
    """An operand in the working precision, finite and refused otherwise."""
    array = work.array(values)
    if not np.isfinite(array.carrier).all():
        raise ValueError(
            f"{name} has elements that are not finite in {work.format.name}; give finite numbers, "
            "or a wider work="
        )
    return array


class _System:
    """A and b in the precisions of their roles, and the factors of A."""

    def __init__(self, roles: _Roles, a: Array, b: Array) -> None:
        self.roles, self.a, self.b = roles, square(a, "A"), right_side(b, len(a))
        if b.ndim != 1:
            raise ValueError(f"b has shape {b.shape}; give a vector of {len(a)} elements")
        narrow = roles.factor.array(a)
        if not np.isfinite(narrow.carrier).all():
            fmt = roles.factor.format
            raise ValueError(
                f"A has magnitudes to {float(np.abs(a.carrier).max()):g}, and factor={fmt.name} "
                f"ends at {fmt.max:g}; scale it, as in refine(A / s, b / s, …)"
            )
        factors = lu(narrow)
        factors.check_regular()
        self.factors = LU(roles.work.array(factors.packed), factors.p)
        self.a_residual, self.b_residual = (roles.residual.array(v) for v in (a, b))
        is_same = roles.applied is roles.residual
        self.a_applied = self.a_residual if is_same else roles.applied.array(a)

    def residual(self, x: Array) -> Array:
        """b - A x in the residual's precision."""
        if self.roles.in_pairs:
            return self.roles.work.array(_in_pairs(self.a, x, self.b))
        context = self.roles.residual
        column = context.array(x).reshape(-1, 1)
        product = context.matmul(self.a_residual, column).reshape(-1)
        return context.subtract(self.b_residual, product)


def _in_pairs(a: Array, x: Array, b: Array) -> NDArray[np.float64]:
    """b - A x by binary64 pairs."""
    operands = [np.ascontiguousarray(v.values, np.float64) for v in (a, x, b)]
    largest = max((float(np.abs(v).max(initial=0.0)) for v in operands), default=0.0)
    if largest > _LARGEST_OF_PAIRS:
        raise ValueError(
            f"residual='pairs' takes magnitudes to 2**510, got {largest:g}; scale A and b"
        )
    out = np.empty(len(operands[2]))
    residuals(*operands, out)
    return out


class _Run:
    """The steps of one refinement."""

    def __init__(self, system: _System, watch: Callable[[Array], Any] | None) -> None:
        self.system, self.work, self.watch = system, system.roles.work, watch
        self.x = system.factors.solve(system.b)
        self.steps, self.inner, self.is_still = 0, list[int](), False
        self.corrections, self.backward_errors = list[float](), list[float]()
        self.watched = [watch(self.x)] if watch else []
        self.row_sums = _largest(np.abs(_wide(system.a)).sum(axis=1))

    def is_done(self, tolerance: float) -> bool:
        """Converged, no longer finite, or no longer moved."""
        if self.is_still or not np.isfinite(self.x.carrier).all():
            return True
        return bool(self.corrections) and self.corrections[-1] <= tolerance

    def step(self, solver: str, inner_tolerance: float | None) -> None:
        """One correction."""
        system, work = self.system, self.work
        r = system.residual(self.x)
        scale = self.row_sums * _largest(_wide(self.x)) + _largest(_wide(system.b))
        self.backward_errors.append(_largest(_wide(r)) / scale if scale else 0.0)
        right = work.array(r)
        if solver == "gmres":
            correction = self._by_gmres(right, inner_tolerance)
        else:
            correction = system.factors.solve(right)
            self.inner.append(0)
        before, self.x = self.x, work.add(self.x, correction)
        self.is_still = np.array_equal(before.carrier, self.x.carrier)
        size, largest = _largest(_wide(correction)), _largest(_wide(self.x))
        self.corrections.append(size / largest if largest else size)
        self.steps += 1
        if self.watch:
            self.watched.append(self.watch(self.x))

    def _by_gmres(self, right: Array, tolerance: float | None) -> Array:
        """The correction; the residual is scaled by a power of two, so that it fits the basis."""
        system, basis = self.system, self.system.roles.basis
        exponent = np.frexp(_largest(_wide(right)))[1]
        solution = gmres(
            system.a_applied, basis.array(np.ldexp(_wide(right), -exponent)),
            factors=system.factors, tolerance=tolerance, context=basis,
        )
        self.inner.append(solution.iterations)
        return self.work.array(np.ldexp(_wide(solution.x), exponent))

    def result(self, tolerance: float) -> Refinement:
        finite = bool(np.isfinite(self.x.carrier).all())
        converged = finite and bool(self.corrections) and self.corrections[-1] <= tolerance
        return Refinement(
            self.x, converged, self.steps, tuple(self.corrections), tuple(self.backward_errors),
            tuple(self.inner), tuple(self.watched), self.system.roles.named(),
        )


def _wide(x: Array) -> NDArray[np.float64]:
    """The values, for quotients that only tell how far a run is."""
    return np.asarray(x.values, np.float64)


def _largest(x: NDArray[np.float64]) -> float:
    return float(np.abs(x).max(initial=0.0))
