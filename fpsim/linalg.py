"""Matrix products through a unit: shapes, passes, stores, random bits and flags around the kernels.

A product runs pass by pass: the unit adds the terms of a pass to the partial result, which is then
stored in the partials' format. The result goes through one more rounding into the context's format
where that is narrower. Everything numerical is in the kernels; which of them runs
(`fpsim.products.by_unit.dispatch`) changes the time and never a bit.

Source    docs/semantics.md §2 (random bits) and §5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.apply import Carrier
from fpsim.products.by_operation.rounded import dot, rounded_matmul
from fpsim.products.by_unit.dispatch import run
from fpsim.products.request import Request
from fpsim.products.sums import mean, sum  # noqa: A004  (numpy's name)
from fpsim.records.formats import Format
from fpsim.records.units import MatrixUnit
from fpsim.state.publish import row_and_column

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["dot", "matmul", "mean", "result_shape", "rounded_matmul", "sum"]


def matmul(
    a: Array,
    b: Array,
    unit: str | MatrixUnit,
    *,
    context: Context | None = None,
    partials: Format | None = None,
    accumulator: Array | None = None,
    scale: int = 0,
    subnormals: str | None = None,
    stochastic_stores: bool = True,
    out: Array | Carrier | None = None,
) -> Array:
    """The matrix product a @ b through a matrix unit.

    context      of the result; its rounding and overflow policy rule the stores of half partials
                 and the last rounding. Default: a's choices in the format of the partials.
    partials     picks the member of the unit's family with partials of this format.
    accumulator  added to: the partial result that the first pass takes in. Default: zeros.
    scale        added to the exponent of every product (the sum of two FP8 metadata scales).
    subnormals   policy for binary32 operands, partials and accumulators; default: the context's
                 where the result is binary32, else keep.
    stochastic_stores    False: the unit stores partials to nearest even where the context rounds
                 stochastically (poplibs' disableSRForAMPVertices); the last rounding is unchanged.

    Shapes    a (..., M, K), b (..., K, N), leading dimensions broadcast: result (..., M, N). K is
              padded with zeros to whole passes; with K = 0 the result is the accumulator, else +0.
    Rounding  as the unit's record says; half partials once per pass, by the context.
    Flags     INVALID and OVERFLOW; UNDERFLOW and INEXACT of a unit are not modelled.
    Raises    TypeError for other input formats; ValueError for shapes that do not match and for
              partials narrower than the result.
    Source    docs/semantics.md §5.

    >>> import fpsim as fp, ipu.machine.units.amp
    >>> half = fp.Context(fp.BINARY16)
    >>> a, b = half.array([[60000.0, 2.0, 0.5]]), half.array([[2.0], [1.0], [-60000.0]])
    >>> [matmul(a, b, unit).values.tolist() for unit in ("AMP_F16_F32", "AMP_F16_F16")]
    [[[90002.0]], [[inf]]]
    """
    request = Request(
        "matmul", unit, {"a": a, "b": b}, context=context, partials=partials, scale=scale,
        subnormals=subnormals, out=out, stochastic_stores=stochastic_stores,
    )  # fmt: skip
    shape = result_shape(a, b)
    start = _start(request.unit, accumulator, shape)
    places = request.open(shape, request.product.places(a.shape[-1]))
    values, marks = run(request.product, a.values, b.values, start, shape, places)
    return request.publish(values, marks, lambda index: row_and_column(a.values, b.values, index))


def result_shape(a: Array, b: Array) -> tuple[int, ...]:
    """Of a product of matrices, leading dimensions broadcast."""
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(
            f"a has shape {a.shape}, b has shape {b.shape}; give matrices (..., M, K) and "
            "(..., K, N), a vector as a matrix of one row or column"
        )
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"a has shape {a.shape}, b has shape {b.shape}; the last dimension of a must equal "
            "the last but one of b"
        )
    if a.ndim == b.ndim == 2:
        return (a.shape[0], b.shape[1])
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            f"a has shape {a.shape}, b has shape {b.shape}; leading dimensions do not broadcast"
        ) from None
    return (*batch, a.shape[-2], b.shape[-1])


def _start(unit: MatrixUnit, accumulator: Array | None, shape: tuple[int, ...]) -> Carrier | None:
    if accumulator is None:
        return None
    if not isinstance(accumulator, Array) or accumulator.format != unit.partials:
        given = accumulator.format if isinstance(accumulator, Array) else type(accumulator).__name__
        raise TypeError(f"unit {unit} has {unit.partials} partials, got {given} for accumulator")
    if accumulator.shape != shape:
        raise ValueError(f"accumulator has shape {accumulator.shape}, the result has shape {shape}")
    return accumulator.values
