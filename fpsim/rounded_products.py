"""Sums and products of Arrays whose every addition and multiplication is rounded in a context.

Source    docs/semantics.md §2 (places) and §4 (orders).
"""

from __future__ import annotations

from fpsim.array import Array
from fpsim.core import Core, HasCore, Out, core_of
from fpsim.elementwise.order import reduced_shape
from fpsim.products.by_operation.chain import Chain
from fpsim.products.by_operation.dispatch import multiply, rounding_places
from fpsim.products.jobs.shapes import result_shape, row_and_column
from fpsim.products.long_dots import is_long_dot, long_dot
from fpsim.products.native64 import native_product
from fpsim.products.one_by_one import product_one_by_one
from fpsim.products.sums import AxisSum
from fpsim.records.settings import ZERO_OR_NORMAL
from fpsim.records.types import Axis, Carrier, ElementFlags
from fpsim.state.draws import NO_PLACES, draw_places
from fpsim.state.processor import usual_arithmetic
from fpsim.state.publish import fold, publish

__all__ = ["dot", "mean", "native_sum", "rounded_matmul", "sum"]


def sum(  # noqa: A001  (numpy's name)
    x: Array, axis: Axis = None, order: str = "sequential", *,
    context: HasCore | None = None, block: int = 256, keepdims: bool = False,
    out: Out = None,
) -> Array:
    """Sum over axes (default: all), each addition rounded in the context.

    order   sequential, pairwise, blocked (blocks of `block` elements), kahan, exact (one rounding).

    Shapes    the axes vanish, or stay with length 1 if `keepdims`; over several, elements come in C
              order. An empty sum is +0.
    Rounding  at every addition, `exact`: once.
    Flags     those of the additions.
    Source    docs/semantics.md §4.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> x = half.array([1e-4] * 10_000)
    >>> [float(sum(x, order=order)) for order in ("sequential", "pairwise", "kahan", "exact")]
    [0.25, 1.0, 1.0, 1.0]
    """
    return _reduce(x, axis, order, context, block, keepdims, out, divide=False)


def mean(
    x: Array, axis: Axis = None, order: str = "sequential", *,
    context: HasCore | None = None, block: int = 256, keepdims: bool = False,
    out: Out = None,
) -> Array:
    """Sum as `sum` computes it, then one division by the number of elements.

    Flags     those of the additions and the division; INVALID for the mean of nothing.

    >>> import fpsim as fp
    >>> ones = fp.Context("binary16").array([1.0] * 4096)
    >>> mean(ones).item(), mean(ones, order="pairwise").item()  # in order the sum stops at 2048
    (0.5, 1.0)
    """
    return _reduce(x, axis, order, context, block, keepdims, out, divide=True)


@usual_arithmetic
def _reduce(
    x: Array, axis: Axis, order: str, context: HasCore | None, block: int, keepdims: bool,
    out: Out, *, divide: bool,
) -> Array:
    core = core_of(x, context)
    (values,) = core.carriers((x,))
    reduction = AxisSum(values, axis, order, block, divide=divide)
    shape = reduced_shape(values.shape, axis, keepdims=True) if keepdims else reduction.shape
    target = core.checked_target(out, shape)
    # Without axes of length 1 it is the same memory.
    inner = None if target is None else target.reshape(reduction.shape)
    result = reduction.run(core, inner)
    return core.wrapped(result.reshape(shape) if target is None else target, out)


def native_sum(
    core: Core, values: Carrier, axes: tuple[int, ...], *, squared: bool = False
) -> Array | None:
    """Sum of binary32 numbers in index order by the processor's own additions.

    None, and nothing published, where they may differ (see `fpsim.products.native_sums`), as for a
    NaN, so that callers need not look for one.

    squared   the sum of squares, which must be numbers of binary32.
    """
    total = AxisSum(values, axes, "sequential", 1, divide=False)
    result = total.run_native(core, squared=squared)
    return None if result is None else core.wrapped(result)


@usual_arithmetic
def rounded_matmul(
    a: Array, b: Array, *, context: HasCore | None = None, fused: bool = False,
    kahan: bool = False, out: Out = None,
) -> Array:
    """The product a @ b with every operation rounded, terms in ascending order.

    acc = fl(a0 b0), then acc = fl(acc + fl(ak bk)).

    fused   one rounding per term: acc = fl(acc + ak bk).
    kahan   a compensated sum of the rounded products.

    Shapes    a (..., M, K), b (..., K, N), leading dimensions broadcast: result (..., M, N). With
              K = 0 it is +0.
    Rounding  after every product and every addition, in the context (default: that of a).
    Flags     those of all the operations.
    Source    docs/semantics.md §4.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> row, column = half.array([[1.0, 2.0**-11, 2.0**-11]]), half.array([[1.0]] * 3)
    >>> [float(rounded_matmul(row, column, kahan=k).values[0, 0]) for k in (False, True)]
    [1.0, 1.0009765625]
    """
    core = core_of(a, context, "a")
    if not isinstance(b, Array):
        core_of(b, name="b")  # says so
    if fused and kahan:
        raise ValueError("fused=True and kahan=True exclude each other; choose one")
    x, y = core.carriers((a, b))
    shape = result_shape(x.shape, y.shape)
    target = None if out is None else core.checked_target(out, shape)
    single = core.settings.native or core.settings.subnormals == ZERO_OR_NORMAL
    compute = _one_by_one if single else _by_kernels
    values, flags, element_flags = compute(core, x, y, fused, kahan)
    values = publish(
        core, "matmul", values, flags, element_flags, lambda index: row_and_column(x, y, index),
        target, advances=core.settings.rounding.stochastic,
    )
    return out if isinstance(out, Array) else Array(values, core.context)


#: Values, all flags together, and those of each element where they are watched.
_Outcome = tuple[Carrier, int, ElementFlags | None]


def _by_kernels(core: Core, x: Carrier, y: Carrier, fused: bool, kahan: bool) -> _Outcome:
    """The product through the engines of products."""
    shape, watched = result_shape(x.shape, y.shape), core.watched
    chain = Chain(
        core.settings, "fused" if fused else "kahan" if kahan else "separate", core.raised
    )
    places = NO_PLACES
    if core.settings.rounding.stochastic:
        places = draw_places(core, rounding_places(chain.name, x.shape[-1]), shape)
    if x.shape[0] == 1 and is_long_dot(chain, x.shape, y.shape):
        return long_dot(chain, x, y, watched=watched)
    return multiply(chain, x, y, shape, places, watched=watched)


def _one_by_one(core: Core, x: Carrier, y: Carrier, fused: bool, kahan: bool) -> _Outcome:
    """The product by single operations: in binary64, and by policies that no kernel has."""
    where = "in binary64, the native reference" if core.settings.native else (
        f"with subnormals={ZERO_OR_NORMAL!r}"
    )
    if kahan or (fused and core.settings.native):
        raise TypeError(f"{'kahan' if kahan else 'fused'}=True is not offered {where}; leave it")
    if core.settings.native:
        return native_product(x, y), 0, None
    values, flags = product_one_by_one(x, y, core.settings, fused=fused)
    return values, fold(flags), flags if core.watched else None


def dot(
    x: Array, y: Array, *, context: HasCore | None = None, fused: bool = False,
    kahan: bool = False,
) -> Array:
    """The inner product of two vectors, every operation rounded; see `rounded_matmul`.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> float(dot(half.array([1.0, 2.0]), half.array([3.0, 4.0])))
    11.0
    """
    for name, operand in (("x", x), ("y", y)):
        core_of(operand, context, name)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"x has shape {x.shape}, y has shape {y.shape}; give two equal vectors")
    row, column = x.reshape(1, -1), y.reshape(-1, 1)
    return rounded_matmul(row, column, context=context, fused=fused, kahan=kahan).reshape(())
