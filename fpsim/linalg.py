"""Matrix products through a unit: shapes, passes, stores, random bits and flags around the kernels.

A product runs pass by pass: the unit adds the terms of a pass to the partial result, which is then
stored in the partials' format. The result goes through one more rounding into the context's format
where that is narrower. Everything numerical is in the kernels; which of them runs (`fpsim.engines`)
changes the time and never a bit.

Source    docs/semantics.md §2 (random bits) and §5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim.arithmetic import Carrier
from fpsim.array import Array
from fpsim.engines import run
from fpsim.formats import Format
from fpsim.places import Places
from fpsim.product import find_product
from fpsim.publish import checked_target, fold_flags, published, row_and_column, wants_marks
from fpsim.rounded import dot, rounded_matmul
from fpsim.sums import mean, sum  # noqa: A004  (numpy's name)
from fpsim.units import UNITS, MatrixUnit, find_unit

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["dot", "matmul", "mean", "rounded_matmul", "sum", "with_partials"]


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

    Shapes    a (..., M, K), b (..., K, N), leading dimensions broadcast: result (..., M, N). K is
              padded with zeros to whole passes; with K = 0 the result is the accumulator, else +0.
    Rounding  as the unit's record says; half partials once per pass, by the context.
    Flags     INVALID and OVERFLOW; UNDERFLOW and INEXACT of a unit are not modelled.
    Raises    TypeError for other input formats; ValueError for shapes that do not match and for
              partials narrower than the result.
    Source    docs/semantics.md §5.

    >>> import fpsim as fp, ipu.machine.amp
    >>> half = fp.Context(fp.BINARY16)
    >>> a, b = half.array([[60000.0, 2.0, 0.5]]), half.array([[2.0], [1.0], [-60000.0]])
    >>> [matmul(a, b, unit).values.tolist() for unit in ("AMP_F16_F32", "AMP_F16_F16")]
    [[[90002.0]], [[inf]]]
    """
    unit = with_partials(find_unit(unit), partials)
    _check_inputs(unit, a, b)
    context = _result_context(unit, a, context)
    shape = _result_shape(a, b)
    product = find_product(unit, a.format, b.format, context.settings, scale, subnormals)
    start = _start(unit, accumulator, shape)
    target = checked_target(context, out, shape)
    places = Places(context, product.places(a.shape[-1]), shape)
    values, marks = run(product, a.values, b.values, start, shape, places)
    raised = int(np.bitwise_or.reduce(marks, axis=None)) if marks.any() else 0
    fold_flags(
        context, "matmul", raised, values, marks if wants_marks(context) else None,
        lambda index: row_and_column(a.values, b.values, index),
    )  # fmt: skip
    places.advance()
    return published(context, values, target, out)


def with_partials(unit: MatrixUnit, partials: Format | None) -> MatrixUnit:
    """The member of a unit's family with these partials and the same preset; None: the unit."""
    if partials is None or partials == unit.partials:
        return unit
    family = [u for u in UNITS.values() if u.family == unit.family and u.preset == unit.preset]
    for member in family:
        if member.partials == partials:
            return member
    raise ValueError(
        f"partials={partials} is not offered by {unit.family}; "
        f"use {' or '.join(str(u.partials) for u in family)}"
    )


def _check_inputs(unit: MatrixUnit, a: Array, b: Array) -> None:
    for name, operand in (("a", a), ("b", b)):
        if not isinstance(operand, Array):
            raise TypeError(
                f"{name} is {type(operand).__name__}, not an Array; convert with ctx.array({name})"
            )
        if operand.format not in unit.inputs:
            names = " or ".join(str(f) for f in unit.inputs)
            raise TypeError(
                f"unit {unit} takes {names} inputs, got {operand.format} for {name}. "
                f"Convert it: {name}.to({unit.inputs[0].name.upper()})."
            )


def _result_context(unit: MatrixUnit, a: Array, context: Context | None) -> Context:
    if context is None:
        same = a.format == unit.partials
        return a.context if same else a.context.replace(format=unit.partials)
    if unit.partials.precision < context.format.precision:
        raise ValueError(
            f"partials={unit.partials} are narrower than the result in {context.format}; "
            f"use partials={context.format} or a {unit.partials} context"
        )
    return context


def _result_shape(a: Array, b: Array) -> tuple[int, ...]:
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
