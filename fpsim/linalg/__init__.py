"""Linear algebra of Arrays: sums and products, factorisations, solvers, refinement.

Sums and products are rounded per operation or through matrix units. Factorisations and solvers are
textbook loops in a documented order; each operation of a loop is an operation of the context, with
its flags and random bits.

What a function returns as a record:

>>> from fpsim import Context, linalg
>>> half, single = Context("binary16"), Context("binary32")
>>> a, b = single.array([[4.0, 1.0], [1.0, 3.0]]), single.array([1.0, 2.0])
>>> refined = linalg.refine(a, b, factor=half, work=single, residual=Context("binary64"))
>>> isinstance(refined, linalg.Refinement), refined.converged
(True, True)
>>> solution = linalg.gmres(a, b)
>>> isinstance(solution, linalg.Solution), solution.converged
(True, True)

Gradients of a convolution, through a unit:

>>> x = half.array([[[[1.0], [2.0]], [[3.0], [4.0]]]])  # images, rows, columns, channels
>>> w = half.array([[[[0.5]]]])
>>> linalg.conv2d(x, w, "H100_F16_F32").tolist()
[[[[0.5], [1.0]], [[1.5], [2.0]]]]
>>> linalg.conv2d_input_gradient(x, w, "H100_F16_F32", x.shape).tolist()
[[[[0.5], [1.0]], [[1.5], [2.0]]]]
>>> linalg.conv2d_weight_gradient(x, x, "H100_F16_F32", w.shape).tolist()
[[[[30.0]]]]
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
