"""Linear algebra of Arrays: sums and products, factorisations, solvers, refinement.

Sums and products are rounded per operation or through matrix units. Factorisations and solvers are
textbook loops in a documented order; each operation of a loop is an operation of the context, with
its flags and random bits.
"""

from fpsim.convolutions import conv2d, conv2d_input_gradient, conv2d_weight_gradient
from fpsim.linalg.factors import LU, cholesky, inv, lu, solve
from fpsim.linalg.householder import qr
from fpsim.linalg.integers import integer_matmul
from fpsim.linalg.krylov import Solution, gmres
from fpsim.linalg.norms import cond, norm
from fpsim.linalg.refinement import Refinement, refine
from fpsim.linalg.triangular import solve_triangular
from fpsim.rounded_products import dot, mean, rounded_matmul, sum  # noqa: A004  (numpy's name)
from fpsim.unit_products import k_split, matmul

__all__ = [
    "LU", "Refinement", "Solution", "cholesky", "cond", "conv2d", "conv2d_input_gradient",
    "conv2d_weight_gradient", "dot", "gmres", "integer_matmul", "inv", "k_split", "lu", "matmul",
    "mean", "norm", "qr", "refine", "rounded_matmul", "solve", "solve_triangular", "sum",
]
