"""Matrix products of BlockArrays through units that take blocks.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import numpy as np

from fpsim.array import Array
from fpsim.block_array import BlockArray
from fpsim.core import HasCore, Out, core_of
from fpsim.elementwise.apply import apply
from fpsim.products.by_unit.dispatch import multiply, round_outputs
from fpsim.products.by_unit.scaled import ScaledOperand, multiply_scaled
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32, Format
from fpsim.records.scaled_units import ScaledUnit
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags, Shape
from fpsim.records.units import MatrixUnit, find_unit
from fpsim.state.draws import NO_PLACES, draw_places
from fpsim.state.processor import usual_arithmetic
from fpsim.state.publish import fold, publish

__all__ = ["block_matmul", "last_factor", "start_of"]


@usual_arithmetic
def block_matmul(
    a: BlockArray, b: BlockArray, unit: str | MatrixUnit, context: HasCore, *,
    to: Format | str | None = None, accumulator: Array | None = None, out: Out = None,
) -> Array:
    """a @ b through a unit that takes blocks, in this context.

    unit          of blocks; where blocks are whole along K also one of numbers.
    accumulator   binary32, what the first call takes in; before the last factor.

    Shapes    a (M, K) with blocks along axis 1, b (K, N) with blocks along axis 0.
    Rounding  as the unit's record says, in binary32; then one product with the last factor (the
              scales of the tensors, the inverse of `shrink`) to nearest even, where there is one;
              where each row has a scale, one with that of b's, then one with that of a's; then once
              into the context's format, or `to`.
    Flags     INVALID and OVERFLOW.
    Raises    TypeError for other elements and scales than the unit takes; ValueError for shapes and
              axes.
    """
    record = find_unit(unit)
    for name, x, axis in (("a", a, 1), ("b", b, 0)):
        _check_operand(record, name, x, axis)
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"a has shape {a.shape} and b has shape {b.shape}; K must agree: {a.shape[1]} and "
            f"{b.shape[0]}"
        )
    core = core_of(None, context) if not hasattr(context, "core") else context.core
    if to is not None:
        core = core.context.in_format(to).core
    if core.format.precision > record.partials.precision:
        raise ValueError(
            f"partials={record.partials} are narrower than the result in {core.format}; use a "
            f"context of {record.partials}, or to={record.partials.name!r}"
        )
    shape = a.shape[0], b.shape[1]
    memory = None if out is None else core.checked_target(out, shape)
    start = None if accumulator is None else start_of(record, accumulator, shape)
    places = draw_places(core, range(_calls(record, a.shape[1]) + 1), shape)
    values, flags = _multiplied(record, a, b, start)
    for factor in (_of_rows(b, 0), _of_rows(a, 1), last_factor(a, b)):
        values = _scaled(values, factor, flags)
    if core.format != BINARY32:
        # The rounding of a product's result, as every unit has it.
        final = UnitSettings(_RESULT, BINARY32, BINARY32, core.settings).final
        assert final is not None
        round_outputs(final, _calls(record, a.shape[1]), values, flags, places)
    result = publish(
        core, "matmul", values, fold(flags), flags if core.watched else None,
        lambda index: [a.values[index[0]], b.values[:, index[1]]], memory,
        advances=core.settings.rounding.stochastic,
    )
    return out if isinstance(out, Array) else Array(result, core.context)


#: A unit with binary32 partials, whose results are rounded into the context's format.
_RESULT = MatrixUnit("RESULT_F32_F32", "the last rounding", (BINARY32,), BINARY32, 1, None)


def last_factor(a: BlockArray, b: BlockArray) -> np.float32 | None:
    """What sums are multiplied by: fl(fl(A1 A2) fl(1 / (6 bound)^2)), and the inverse of shrinks.

    None where that is 1.

    >>> import fpsim as fp
    >>> x = fp.quantize(np.full((1, 64), 3.0), "nvfp4")
    >>> float(last_factor(x, x.T) * 36 * 448**2)
    9.0
    """
    factor, amounts, aims = None, [], 1.0
    for x in (a, b):
        if _has_one_scale(x):
            amounts.append(np.float32(x.scale_values[0, 0]))
        if x.tensor_amax is not None:
            amounts.append(np.float32(x.tensor_amax))
            aims *= x.block.element.max * x.block.bound
    with np.errstate(all="ignore"):
        if amounts:
            factor = amounts[0] * amounts[1] if len(amounts) > 1 else amounts[0]
            factor = factor * (np.float32(1) / np.float32(aims)) if aims != 1 else factor
        shrinks = a.block.shrink * b.block.shrink
        if shrinks != 1:
            inverse = np.float32(1 / shrinks)
            factor = inverse if factor is None else factor * inverse
    return factor


def _has_one_scale(x: BlockArray) -> bool:
    """Whether all of a matrix stands under one binary32 scale."""
    return x.block.scale == BINARY32 and x.block.shape == (None, None) and x.scales.size == 1


def _of_rows(x: BlockArray, axis: int) -> Carrier | None:
    """Binary32 scales of whole rows along K, as the result broadcasts them."""
    if x.block.elements is not None or _has_one_scale(x) or not x.scales.size:
        return None
    scales = x.scale_values.astype(np.float32)
    return scales.reshape(-1, 1) if axis else scales.reshape(1, -1)


def _scaled(
    values: Carrier, factor: np.float32 | Carrier | None, flags: np.ndarray
) -> Carrier:
    if factor is None:
        return values
    raised = np.zeros(values.shape, np.uint8)
    scaled, _ = apply(
        "multiply", (values, np.asarray(factor)), Settings(BINARY32), element_flags=raised
    )
    flags |= raised & np.uint8(Flags.OVERFLOW | Flags.INVALID)
    return scaled


def _multiplied(
    unit: MatrixUnit, a: BlockArray, b: BlockArray, start: Carrier | None
) -> tuple[Carrier, ElementFlags]:
    """Sums of the unit in binary32, without scales that stand outside of it; flags of each."""
    if isinstance(unit, ScaledUnit):
        return multiply_scaled(unit, _operand(a, unit), _operand(b, unit), start)
    settings = UnitSettings(unit, a.block.element, b.block.element, Settings(BINARY32))
    left, right = a.element_values, np.ascontiguousarray(b.element_values.T)
    return multiply(settings, left, right, start, (a.shape[0], b.shape[1]), NO_PLACES)


def _calls(unit: MatrixUnit, k: int) -> int:
    """Stores before the last rounding: one for each call, or promoted block."""
    is_promoted = isinstance(unit, ScaledUnit) and unit.promotion is not None
    step = unit.scale_block if is_promoted else unit.terms  # type: ignore[attr-defined]
    return -(-k // step)


def _operand(x: BlockArray, unit: ScaledUnit) -> ScaledOperand:
    if x.block.elements is None:  # the scale is a factor of the result
        values, ones = x.element_values, np.ones((x.codes.shape[0], x.codes.shape[1]))
        return ScaledOperand(values, x.block.element, ones[:, :: unit.scale_block], x.block.scale)
    scales = x.scale_values
    rows = x.codes.shape[0]
    if x.block.rows != 1:
        scales = np.repeat(scales, rows // max(1, scales.shape[0]), axis=0)
    return ScaledOperand(x.element_values, x.block.element, scales, x.block.scale)


def _check_operand(unit: MatrixUnit, name: str, x: BlockArray, axis: int) -> None:
    takes = "blocks" if isinstance(unit, ScaledUnit) else "numbers, the other operand is in blocks"
    if not isinstance(x, BlockArray):
        raise TypeError(
            f"{name} is {type(x).__name__}, and unit {unit} takes {takes}; give "
            f"fpsim.quantize({name}, …, axis={axis})"
        )
    is_whole = x.block.elements is None and x.block.scale == BINARY32
    if not isinstance(unit, ScaledUnit) and not is_whole:
        raise TypeError(
            f"unit {unit} takes numbers, and a and b are blocks; use a unit of blocks, as "
            "B200_TC05_MXF8_F32 (fpsim list units)"
        )
    if x.ndim != 2:
        raise ValueError(f"{name} has shape {x.shape}; a product of blocks takes matrices")
    if x.axis != axis:
        square = x.block.rows == x.block.elements
        advice = f"{name}.along({axis})" if square else f"fpsim.quantize({name}, …, axis={axis})"
        raise ValueError(
            f"{name} has blocks along axis {x.axis}; a product sums over axis {axis}: use {advice}"
        )
    block = x.block
    if block.element not in unit.inputs:
        inputs = " or ".join(str(f) for f in unit.inputs)
        raise TypeError(f"unit {unit} takes elements of {inputs}, got {block.element} for {name}")
    if not isinstance(unit, ScaledUnit):
        return
    if is_whole and unit.promotion is not None:
        if x.shape[axis] % unit.scale_block:
            raise ValueError(
                f"{name} has {x.shape[axis]} numbers along axis={axis}, no multiple of the "
                f"{unit.scale_block} that unit {unit} adds up; fill it up with zeros"
            )
        return
    if block.scale not in unit.scale_formats or block.elements != unit.scale_block:
        scales = " or ".join(str(f) for f in unit.scale_formats)
        raise TypeError(
            f"unit {unit} takes a scale in {scales} for every {unit.scale_block} elements, got "
            f"{block.scale} for {block.elements} of {name}"
        )


def start_of(unit: MatrixUnit | ScaledUnit, accumulator: Array, shape: Shape) -> Carrier:
    """What a product through a unit begins with.

    Raises    TypeError for another format than the unit's partials, ValueError for another shape.
    """
    if not isinstance(accumulator, Array) or accumulator.format != unit.partials:
        kind = accumulator.format if isinstance(accumulator, Array) else type(accumulator).__name__
        raise TypeError(f"unit {unit} has {unit.partials} partials, got {kind} for accumulator")
    if accumulator.shape != shape:
        raise ValueError(f"accumulator has shape {accumulator.shape}, the result has shape {shape}")
    return accumulator.carrier
