"""Products through units whose operands are blocks.

Elements are values with an exponent each; scales are significands and exponents. Rows and columns
that hold what is not finite are computed apart, as they are only NaN and infinities.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply
from fpsim.kernels.by_unit.scaled import (
    ABSENT,
    BIAS,
    COLUMNS,
    DOWN,
    NEAREST,
    TO_ZERO,
    ScaledVariant,
    scaled_kernel,
)
from fpsim.products.by_unit.dispatch import multiply
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32, Format, ScaleFormat
from fpsim.records.rounding import RNE, RTN, RTZ
from fpsim.records.scaled_units import ScaledUnit
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.records.units import MatrixUnit
from fpsim.state.draws import NO_PLACES
from fpsim.state.threads import run_blocks

__all__ = ["ScaledOperand", "multiply_scaled"]

_MODES = {RNE: NEAREST, RTZ: TO_ZERO, RTN: DOWN}
_BINARY32 = Settings(BINARY32)

#: Products of rows and panels below which a second thread costs more than it gives.
_FEW = 1 << 16


class ScaledOperand(NamedTuple):
    """One operand with the axis of its blocks last: a row for each row, or column, of the result.

    values   of elements (rows, K), without scales.
    scales   values of scales (rows, K / block).
    """

    values: NDArray[np.float32]
    element: Format
    scales: NDArray[np.float64]
    scale: ScaleFormat | Format

    @property
    def is_finite(self) -> NDArray[np.bool_]:
        """Rows without a NaN or an infinity."""
        of_values = np.isfinite(self.values).all(axis=1)
        return np.asarray(of_values & np.isfinite(self.scales).all(axis=1))


def multiply_scaled(
    unit: ScaledUnit, a: ScaledOperand, b: ScaledOperand, start: Carrier | None
) -> tuple[Carrier, ElementFlags]:
    """The product of a and the transposed b in binary32, added to `start`; flags of each output.

    Shapes    a (M, K), b (N, K) by rows: result (M, N). K is filled up with zeros to whole calls.
    """
    shape = len(a.values), len(b.values)
    values = np.zeros(shape, np.float32) if start is None else start.copy()
    flags = np.zeros(shape, np.uint8)
    if not values.size or not a.values.shape[1]:
        return values, flags
    rows, columns = a.is_finite, b.is_finite
    left, right = _without(a, rows), _without(b, columns)
    if unit.promotion is None:
        _run(unit, left, right, values, flags)
    else:
        _promoted(unit, left, right, values, flags)
    if not (rows.all() and columns.all()):
        _specials(a, b, rows, columns, start, values, flags)
    return values, flags


def _without(x: ScaledOperand, finite: NDArray[np.bool_]) -> ScaledOperand:
    """The same with zeros in rows that are not finite."""
    if finite.all():
        return x
    keeps = finite[:, None]
    return x._replace(
        values=np.where(keeps, x.values, np.float32(0)), scales=np.where(keeps, x.scales, 1.0)
    )


def _specials(
    a: ScaledOperand, b: ScaledOperand, rows: NDArray[np.bool_], columns: NDArray[np.bool_],
    start: Carrier | None, values: Carrier, flags: ElementFlags,
) -> None:
    """Outputs of rows and columns that hold NaN or infinities: by the rules of addition alone."""
    with np.errstate(all="ignore"):
        whole = [_signs_of_scales(x) * x.values for x in (a, b)]
        exact = whole[0] @ whole[1].T
        if start is not None:
            exact += np.where(np.isfinite(start), 0.0, start)
    there = ~(rows[:, None] & columns[None, :])
    is_nan = [np.asarray(np.isnan(x).any(axis=1)) for x in whole]
    quiet = is_nan[0][:, None] | is_nan[1][None, :]
    if start is not None:
        quiet |= np.isnan(start)
    result = np.where(quiet, np.nan, exact)
    values[there] = result[there]
    flags[there] = np.where(np.isnan(result) & ~quiet, Flags.INVALID, 0)[there]


def _signs_of_scales(x: ScaledOperand) -> NDArray[np.float64]:
    """0, 1 or NaN for each element: all that a scale means to an infinity."""
    signs = np.where(np.isnan(x.scales), np.nan, np.sign(x.scales))
    return np.repeat(signs, x.values.shape[1] // x.scales.shape[1], axis=1)


# Scales within a call -------------------------------------------------------------------------


def _exponents(x: NDArray[np.float32], emin: int) -> NDArray[np.uint32]:
    """Exponents with the bias, subnormal numbers with the smallest; zeros absent.

    No element is a subnormal number of binary32, so its own field is the exponent.
    """
    fields = np.ascontiguousarray(x).view(np.uint32) >> np.uint32(23)
    fields &= np.uint32(255)
    np.maximum(fields, np.uint32(emin + 127), out=fields)
    fields += np.uint32(BIAS - 127)
    np.copyto(fields, np.uint32(ABSENT), where=x == 0)
    return fields


def _padded(x: NDArray[Any], columns: int) -> NDArray[Any]:
    """x with zeros up to so many columns; itself where it has them."""
    if x.shape[1] == columns:
        return x
    whole = np.zeros((len(x), columns), x.dtype)
    whole[:, : x.shape[1]] = x
    return whole


def _panels(x: NDArray[Any]) -> NDArray[Any]:
    """Rows as panels of sixteen columns (panels, K, 16)."""
    rows, depth = x.shape
    panels = -(-rows // COLUMNS)
    whole = np.zeros((panels * COLUMNS, depth), x.dtype)
    whole[:rows] = x
    return np.ascontiguousarray(whole.reshape(panels, COLUMNS, depth).transpose(0, 2, 1))


class _Tables(NamedTuple):
    """Values and exponents of elements, significands and exponents of scales, by rows."""

    values: NDArray[np.float32]
    fields: NDArray[np.uint32]
    significands: NDArray[np.float32]
    exponents: NDArray[np.uint32]


def _tables(unit: ScaledUnit, x: ScaledOperand, depth: int) -> _Tables:
    """What the loop reads of an operand; groups of what fills K up are absent."""
    per_scale = x.values.shape[1] // x.scales.shape[1]
    step = unit.terms if unit.group == 1 else unit.group
    number = x.scale.number if isinstance(x.scale, ScaleFormat) else None
    scales = np.repeat(x.scales, max(1, per_scale // step), axis=1)
    _, exponent = np.frexp(scales)
    least = -BIAS // 2 if number is None else number.emin
    power = np.maximum(np.where(scales == 0, least, exponent - 1), least)
    significands = np.ldexp(scales, -power).astype(np.float32)
    return _Tables(
        _padded(x.values, depth),
        _padded(_exponents(x.values, x.element.emin), depth),
        _padded(significands, depth // step),
        _padded((power + BIAS).astype(np.uint32), depth // step),
    )


def _run(
    unit: ScaledUnit, a: ScaledOperand, b: ScaledOperand, values: Carrier, flags: ElementFlags
) -> None:
    assert unit.window is not None
    depth = -(-a.values.shape[1] // unit.terms) * unit.terms
    left = [np.ascontiguousarray(t) for t in _tables(unit, a, depth)]
    right = [_panels(t) for t in _tables(unit, b, depth)]
    columns = right[0].shape[0] * COLUMNS
    out, marks = _padded(values, columns), np.zeros((len(values), columns), np.uint8)
    loop = scaled_kernel(ScaledVariant(
        unit.terms, unit.group, unit.window, _MODES[unit.rounding], unit.empty_groups
    ))

    def work(begin: int, end: int) -> int:
        done: int = loop(
            left[0], left[1], right[0], right[1], left[2], left[3], right[2], right[3], out, marks,
            begin, end,
        )
        return done

    run_blocks(work, 0, len(out), max(1, _FEW // max(1, depth * columns // 64)))
    values[...] = out[:, : values.shape[1]]
    flags[...] = marks[:, : values.shape[1]]


# Scales after a call --------------------------------------------------------------------------


def _promoted(
    unit: ScaledUnit, a: ScaledOperand, b: ScaledOperand, values: Carrier, flags: ElementFlags
) -> None:
    """Each block from zero through the unit, then one fma into the sums."""
    plain = MatrixUnit(
        unit.name, unit.instruction, unit.inputs, unit.partials, unit.terms, unit.window,
        accumulator=unit.accumulator, rounding=unit.rounding,
    )
    settings = UnitSettings(plain, a.element, b.element, _BINARY32)
    left, right = (x.scales.astype(np.float32) for x in (a, b))
    for block in range(left.shape[1]):
        k = slice(block * unit.scale_block, (block + 1) * unit.scale_block)
        part, raised = multiply(
            settings, np.ascontiguousarray(a.values[:, k]),
            np.ascontiguousarray(b.values[:, k].T), None, values.shape, NO_PLACES,
        )
        flags |= raised
        of_a, of_b = left[:, block, None], right[None, :, block]
        if unit.promotion == "scales first":
            factors = _operation("multiply", of_a, of_b, flags), part
        else:
            factors = _operation("multiply", part, of_a, flags), np.broadcast_to(of_b, part.shape)
        values[...] = _operation("fma", *factors, flags, values)


def _operation(
    name: str, x: Carrier, y: Carrier, flags: ElementFlags, *more: Carrier
) -> Carrier:
    """A binary32 operation to nearest even, whose flags of overflow and invalid are added."""
    raised = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.uint8)
    values, _ = apply(name, (x, y, *more), _BINARY32, element_flags=raised)
    flags |= raised & np.uint8(Flags.OVERFLOW | Flags.INVALID)
    return values
