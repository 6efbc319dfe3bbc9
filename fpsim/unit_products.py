"""Matrix products of Arrays, most through matrix units: choices checked, the result published.

Everything numerical is in `fpsim.products`.

Source    docs/semantics.md §3 and §5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.block_array import BlockArray
from fpsim.block_products import block_matmul, start_of
from fpsim.core import HasCore, Out, core_of
from fpsim.elementwise.notes import CallNotes
from fpsim.products import k_split as ranges_of_k
from fpsim.products.by_unit.dispatch import multiply
from fpsim.products.by_unit.repeated import RepeatedProduct
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.shapes import result_shape, row_and_column
from fpsim.records.formats import Format
from fpsim.records.settings import SUBNORMALS, ZERO_OR_NORMAL, Settings
from fpsim.records.types import Carrier, ElementFlags, OperandsAt, Shape
from fpsim.records.units import MatrixUnit, find_unit, with_partials
from fpsim.rounded_products import rounded_matmul
from fpsim.state.draws import NO_DRAW, NO_PLACES, Places, draw_places
from fpsim.state.processor import usual_arithmetic
from fpsim.state.publish import fold, publish

__all__ = ["UnitCall", "UnitChoices", "any_matmul", "k_split", "matmul"]

#: Sums of two scales of FP8 metadata, -32 … 31 each.
_SCALES = range(-64, 63)

#: Settings of earlier calls by the identities of what they were made from, which is fast to look
#: up. Each keeps these objects, so no other object takes an identity.
_SETTINGS: dict[tuple[Any, ...], tuple[UnitSettings, tuple[Any, ...]]] = {}
_MOST_SETTINGS = 256


class Repeated(Protocol):
    """A product that runs time after time on the same memory."""

    def run(self, seed: np.uint64, number: np.uint64) -> int:
        """Compute; the flags of all elements together."""


class UnitCall:
    """One product of a left and a right operand through a unit.

    The choices are checked when it is made, `check_out` and `places` before anything is computed;
    nothing of the context or of `out` changes before `publish`.
    """

    __slots__ = ("_memory", "core", "name", "out", "settings", "unit")

    def __init__(
        self, name: str, names: Sequence[str], left: Array, right: Array, unit: str | MatrixUnit,
        context: HasCore | None, to: Format | str | None, partials: Format | str | None,
        scale: int, subnormals: str | None, out: Out, stochastic_stores: bool = True,
    ) -> None:
        self.name, self.out = name, out
        self._memory: Carrier | None = None
        if not isinstance(stochastic_stores, (bool, np.bool_)):
            raise TypeError(
                f"stochastic_stores={stochastic_stores!r} is not known; use True or False"
            )
        if type(scale) is not int or (subnormals is not None and type(subnormals) is not str):
            _check_choices(scale, subnormals)  # what no key can be made of
        if not (isinstance(left, Array) and isinstance(right, Array)):
            _check_inputs(with_partials(find_unit(unit), partials), names, left, right)
        if context is None:
            context = left.context
        core = context.core if hasattr(context, "core") else core_of(left, context)
        if to is not None:
            core = core.context.in_format(to).core
        formats = left.context.core.settings.format, right.context.core.settings.format
        key = (
            id(unit), id(partials), id(formats[0]), id(formats[1]), id(core.settings),
            scale, subnormals, stochastic_stores,
        )
        entry = _SETTINGS.get(key)
        if entry is None:
            _check_choices(scale, subnormals)
            record = with_partials(find_unit(unit), partials)
            _check_inputs(record, names, left, right)
            _check_result(record, core.settings)
            if len(_SETTINGS) >= _MOST_SETTINGS:
                _SETTINGS.clear()
            settings = UnitSettings(
                record, *formats, core.settings, scale, subnormals, stochastic_stores
            )
            entry = _SETTINGS[key] = settings, (unit, partials, formats, core.settings)
        self.settings = entry[0]
        self.unit, self.core = self.settings.unit, core

    def check_out(self, shape: Shape) -> None:
        """Refuse an `out` that does not take a result of this shape."""
        if self.out is not None:
            self._memory = self.core.checked_target(self.out, shape)

    def places(self, shape: Shape, places: range) -> Places:
        """Random words of the result's rounding places."""
        return draw_places(self.core, places, shape)

    def publish(
        self, values: Carrier, element_flags: ElementFlags, operands: OperandsAt,
        factors: tuple[Carrier, Carrier] | None = None,
        repeated: Callable[[], Repeated] | None = None,
    ) -> Array:
        """The result, unless a trap stops it, which shows the `operands` of its element.

        factors    of a product without an accumulator, which may be noted to run again.
        repeated   what runs it again on them, into these values.
        """
        core, out, flags = self.core, self.out, fold(element_flags)
        if core.meter is not None and core.meter.notes is not None:
            self._note(core.meter.notes, values, factors, repeated)
        values = publish(
            core, self.name, values, flags, element_flags if core.watched else None, operands,
            self._memory, advances=core.settings.rounding.stochastic,
        )
        return out if isinstance(out, Array) else Array(values, core.context)

    def _note(
        self, notes: CallNotes, values: Carrier, factors: tuple[Carrier, Carrier] | None,
        repeated: Callable[[], Repeated] | None,
    ) -> None:
        """The call of a product, to be run again."""
        core, is_drawn = self.core, self.core.settings.rounding.stochastic
        is_watched = self.out is not None or core.watched or core.source.seed is None
        if factors is None or repeated is None or is_watched:
            notes.refuse()
            return
        product = repeated()
        seed, no_number = np.uint64(core.source.seed or 0), NO_DRAW.number

        def again(numbers: NDArray[np.uint64], first: int) -> bool:
            flags = product.run(seed, numbers[first] if is_drawn else no_number)
            if flags:
                core.raise_flags(flags)
            return True

        notes.note(factors, (values,), again, (core.clock.operation,) if is_drawn else ())


def matmul(
    a: Array | BlockArray,
    b: Array | BlockArray,
    unit: str | MatrixUnit,
    *,
    context: HasCore | None = None,
    to: Format | str | None = None,
    partials: Format | str | None = None,
    accumulator: Array | None = None,
    scale: int = 0,
    subnormals: str | None = None,
    stochastic_stores: bool = True,
    out: Out = None,
) -> Array:
    """The matrix product a @ b through a matrix unit.

    a, b         Arrays, or BlockArrays with blocks along K for a unit of blocks, which takes of the
                 choices below to, accumulator and out (`fpsim.block_products.block_matmul`).
    context      computes: its rounding and overflow policy rule the stores of half partials and the
                 last rounding. Default: that of a.
    to           format of the result; its name will do. Default: that of the context.
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

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> a, b = half.array([[60000.0, 2.0, 0.5]]), half.array([[2.0], [1.0], [-60000.0]])
    >>> [float(matmul(a, b, "V100_F16_F32", to=fmt)[0, 0]) for fmt in ("binary32", "binary16")]
    [90002.0, inf]
    """
    if isinstance(a, BlockArray) or isinstance(b, BlockArray):
        choices = UnitChoices(to, partials, accumulator, scale, subnormals, stochastic_stores)
        return _matmul_of_blocks(context, a, b, unit, choices, out)
    choices_of_unit = partials, scale, subnormals, out, stochastic_stores
    call = UnitCall("matmul", "ab", a, b, unit, context, to, *choices_of_unit)
    x, y = a.carrier, b.carrier
    whole = x.ndim == y.ndim == 2 and x.shape[1] == y.shape[0]
    shape: Shape = (x.shape[0], y.shape[1]) if whole else result_shape(x.shape, y.shape)
    start = None if accumulator is None else start_of(call.unit, accumulator, shape)
    if out is not None:
        call.check_out(shape)
    places = NO_PLACES if not call.core.settings.rounding.stochastic else call.places(
        shape, call.settings.rounding_places(x.shape[-1]))
    values, flags = multiply(call.settings, x, y, start, shape, places)
    repeated = None if start is not None else partial(
        RepeatedProduct, call.settings, x, y, values, flags)
    return call.publish(values, flags, lambda at: row_and_column(x, y, at), (x, y), repeated)


@usual_arithmetic
def k_split(
    a: Array, b: Array, unit: str | MatrixUnit, parts: int, *,
    context: HasCore | None = None, to: Format | str | None = None,
    partials: Format | str | None = None, scale: int = 0, subnormals: str | None = None,
    out: Out = None,
) -> Array:
    """The matrix product a @ b with K split over `parts` tiles, and their partials reduced.

    context, to, partials, scale, subnormals    as for `matmul`.

    Shapes    as `matmul`. One part is `matmul`.
    Rounding  in each part as the unit's record says; additions in binary32 to nearest even, then
              once into the result by the context.
    Flags     INVALID and OVERFLOW, of the products and of the reduction.
    Raises    ValueError for more parts than passes over K; the rest as `matmul`.
    Source    docs/semantics.md §5.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> a, b = half.array(np.ones((1, 4096))), half.array(np.ones((4096, 1)) * (1 + 2.0**-8))
    >>> [float(k_split(a, b, "V100_F16_F16", parts).values[0, 0]) for parts in (1, 16, 64)]
    [4100.0, 4100.0, 4104.0]
    """
    call = UnitCall("k_split", "ab", a, b, unit, context, to, partials, scale, subnormals, out)
    x, y = a.carrier, b.carrier
    shape = result_shape(x.shape, y.shape)
    split = ranges_of_k.Split(call.settings, x.shape[-1], parts)
    call.check_out(shape)
    places = call.places(shape, split.rounding_places)
    values, flags = split.multiply(x, y, shape, places)
    return call.publish(values, flags, lambda index: row_and_column(x, y, index))


class UnitChoices(NamedTuple):
    """Choices of `matmul` that go with a unit."""

    to: Format | str | None
    partials: Format | str | None
    accumulator: Array | None
    scale: int
    subnormals: str | None
    stochastic_stores: bool


#: What says nothing.
_USUAL_CHOICES = UnitChoices(None, None, None, 0, None, True)


def _matmul_of_blocks(
    context: HasCore | None, a: Any, b: Any, unit: str | MatrixUnit | None, choices: UnitChoices,
    out: Out,
) -> Array:
    """The product of blocks, which takes fewer choices."""
    if context is None:
        raise ValueError("a and b are blocks, which have no context; name one: context=…")
    if unit is None:
        raise ValueError(
            "a and b are blocks, whose products go through a unit; name one, as "
            "unit='B200_TC05_MXF8_F32'"
        )
    for name in ("partials", "scale", "subnormals", "stochastic_stores"):
        if getattr(choices, name) is not getattr(_USUAL_CHOICES, name):
            raise ValueError(f"{name}={getattr(choices, name)} is no choice of a product of blocks")
    return block_matmul(
        a, b, unit, context, to=choices.to, accumulator=choices.accumulator, out=out
    )


def any_matmul(
    context: HasCore, a: Array | BlockArray, b: Array | BlockArray,
    unit: str | MatrixUnit | None, choices: UnitChoices, out: Out, *, fused: bool, kahan: bool,
) -> Array:
    """The product of matrices or vectors: through a unit, or rounded after every operation."""
    if isinstance(a, BlockArray) or isinstance(b, BlockArray):
        if fused or kahan:
            name = "fused" if fused else "kahan"
            raise ValueError(f"{name}=True goes with Arrays and unit=None; drop {name}")
        return _matmul_of_blocks(context, a, b, unit, choices, out)
    if isinstance(a, Array) and isinstance(b, Array) and 1 in (a.carrier.ndim, b.carrier.ndim):
        return _matmul_of_vectors(context, a, b, unit, choices, out, fused=fused, kahan=kahan)
    if unit is None:
        for name, value, usual in zip(choices._fields, choices, _USUAL_CHOICES, strict=True):
            if value is not usual:
                raise ValueError(f"{name}={value} goes with a unit; name one or drop {name}")
        return rounded_matmul(a, b, context=context, fused=fused, kahan=kahan, out=out)
    if fused or kahan:
        name = "fused" if fused else "kahan"
        raise ValueError(f"{name}=True goes with unit=None; drop unit or {name}")
    return matmul(a, b, unit, context=context, out=out, **choices._asdict())


def _matmul_of_vectors(
    context: HasCore, a: Array, b: Array, unit: str | MatrixUnit | None, choices: UnitChoices,
    out: Out, *, fused: bool, kahan: bool,
) -> Array:
    """A vector is a matrix of one row (a) or column (b), which the result does not have."""
    row, column = a.carrier.ndim == 1, b.carrier.ndim == 1
    x = a.reshape(1, -1) if row else a
    y = b.reshape(-1, 1) if column else b
    shape = result_shape(x.shape, y.shape)
    if row:
        shape = (*shape[:-2], shape[-1])
    if column:
        shape = shape[:-1]
    core = context.core if choices.to is None else context.in_format(choices.to).core
    target = core.checked_target(out, shape)
    if choices.accumulator is not None:
        raise ValueError("accumulator goes with matrices; give a and b two dimensions")
    product = any_matmul(context, x, y, unit, choices, None, fused=fused, kahan=kahan)
    product = product.reshape(shape)
    if target is None:
        return product
    target[...] = product.carrier
    return core.wrapped(target, out)


def _check_choices(scale: int, subnormals: str | None) -> None:
    whole = isinstance(scale, (int, np.integer)) and not isinstance(scale, bool)
    if not whole or scale not in _SCALES:
        raise ValueError(
            f"scale={scale!r} is no sum of two metadata scales; use a whole number from "
            f"{_SCALES.start} to {_SCALES.stop - 1}"
        )
    offered = [policy for policy in SUBNORMALS if policy != ZERO_OR_NORMAL]
    if subnormals is not None and not (isinstance(subnormals, str) and subnormals in offered):
        raise ValueError(f"subnormals={subnormals!r} is not known; use one of {', '.join(offered)}")


def _check_inputs(unit: MatrixUnit, names: Sequence[str], *operands: Array) -> None:
    if unit.takes_blocks:
        raise TypeError(
            f"unit {unit} takes blocks along K; give fpsim.quantize(a, …, axis=1) and "
            "fpsim.quantize(b, …, axis=0) to matmul"
        )
    for name, operand in zip(names, operands, strict=True):
        if not isinstance(operand, Array):
            raise TypeError(
                f"{name} is {type(operand).__name__}, not an Array; convert it with "
                f"ctx.array({name})"
            )
        if operand.format not in unit.inputs:
            inputs = " or ".join(str(f) for f in unit.inputs)
            raise TypeError(
                f"unit {unit} takes {inputs} inputs, got {operand.format} for {name}. "
                f"Convert it: {name}.to({unit.inputs[0].name.upper()})."
            )


def _check_result(unit: MatrixUnit, settings: Settings) -> None:
    """Partials must have what the result, and the policy that rules their stores, ask for."""
    if settings.subnormals == ZERO_OR_NORMAL:
        raise ValueError(
            f"subnormals={ZERO_OR_NORMAL!r} is modelled for single operations, no unit stores so; "
            "use keep, flush_results or flush_both"
        )
    fmt = unit.partials
    if fmt.precision < settings.format.precision:
        raise ValueError(
            f"partials={fmt} are narrower than the result in {settings.format}; use "
            f"partials={settings.format}, or to={fmt.name!r}"
        )
    if unit.stores and settings.overflow == "infinity" and not fmt.has_infinity:
        raise ValueError(
            f"overflow='infinity' rules the partials of unit {unit} too, and {fmt} has no "
            "infinity; use a context with overflow='saturate' or 'nan'"
        )
