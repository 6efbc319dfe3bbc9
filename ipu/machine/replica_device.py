"""A device that computes for several replicas at once, on stacked arrays.

Replicas run one program on values of their own. Here each verb runs once for all of them: rows of
a stack have the random bits of their replica (`ReplicaKeys`), and flags are kept for each. Arrays
that are equal on all replicas are plain ones; what is computed of them alone, without bits of the
replicas, is computed once. Values, flags, cycles, products and numbers of operations are those of
one device for each replica. A rule of the table that needs the values of one replica runs replica
by replica (`ReplicaDevice.compute`).

Source    docs/semantics.md §2 (numbering), §6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.context import Context
from fpsim.convenience import round_to
from fpsim.core import Evaluate, Operand
from fpsim.elementwise import compare, elementary
from fpsim.elementwise.apply import apply
from fpsim.elementwise.apply_rows import RowKeys, apply_rows, flags_of_rows, has_rows
from fpsim.elementwise.axes import checked_axes, one_axis
from fpsim.elementwise.order import largest_along
from fpsim.elementwise.selection import (
    Keys,
    kept_least,
    kept_positive,
    kept_where,
    least_positive,
)
from fpsim.elementwise.sizes import checked_number, checked_shape
from fpsim.elementwise.unscale import quotient_operands
from fpsim.products.by_unit.product_rows import multiply_rows
from fpsim.products.jobs.shapes import result_shape
from fpsim.products.native_spread_sums import native_spread_sums
from fpsim.products.native_sums import is_native
from fpsim.records.formats import BINARY32, Format
from fpsim.records.rounding import SR
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, Shape
from fpsim.state.bits import Philox
from fpsim.state.draws import Draw
from fpsim.state.processor import usual_arithmetic
from fpsim.state.state import State
from fpsim.unit_products import UnitCall
from ipu.machine import reference
from ipu.machine.contexts import MachineContext, MachineCore
from ipu.machine.cost.ledger import LedgerRow
from ipu.machine.device import Device
from ipu.machine.options import CHOSEN
from ipu.machine.product_calls import ProductCall
from ipu.machine.stacked import NotTogetherError, StackedArray, StackedValues
from ipu.machine.sums import has_plain_squares, is_far_from_tiny
from ipu.machine.vector import thread_cycles

__all__ = ["ReplicaDevice", "ReplicaKeys"]


#: Of a mask: 0 or 1 by 16 random bits.
_COIN = Settings(BINARY32, SR(bits=16))


class ReplicaKeys:
    """The random bits of each replica: a key of Philox for each.

    >>> ReplicaKeys([42, 7]).seed
    Traceback (most recent call last):
    ...
    ipu.machine.stacked.NotTogetherError: random bits of one replica
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = np.array(seeds, np.uint64)

    @property
    def seed(self) -> int:
        raise NotTogetherError("random bits of one replica")

    def draw(self, operation: int, shape: tuple[int, ...], bits: int, places: int = 1) -> None:
        raise NotTogetherError("random bits of one replica")

    def advance(self) -> None:
        """Nothing: operations are numbered by the clock."""

    def spawn(self, k: int) -> ReplicaKeys:
        raise NotTogetherError("random bits of one replica")


class _ReplicaCore(MachineCore):
    """The arithmetic in one format, whose flags are those of all replicas."""

    device: ReplicaDevice

    def raise_flags(self, flags: int) -> None:
        self.device.add_flags(self, flags)

    def words_of(self, flags: NDArray[np.int64] | int) -> Any:
        """Bits of the status register for flags."""
        return np.array(self._status_words)[flags]


class _ReplicaContext(MachineContext):
    core_class = _ReplicaCore


class _SingleResults(NamedTuple):
    """What a rule gave each replica that is no array: a rule that reads it runs one by one."""

    values: Sequence[Any]


class _Notes(list[tuple[str, LedgerRow]]):
    """Products in order, in place of a ledger."""

    temporary = 0

    def add(self, tensor: str, row: LedgerRow) -> None:
        self.append((tensor, row))


class _Done(NamedTuple):
    """What operations have left behind: numbers, cycles, products, and flags of the replicas."""

    operation: int
    cycles: int
    products: int
    flags: dict[Format, NDArray[np.int64]]
    status: NDArray[np.int64]


class ReplicaDevice(Device):
    """A device for several replicas.

    like     a device of one of them, which is not changed.
    seed     of the random bits that all have alike.
    seeds    keys of their own random bits, one for each replica.

    >>> from fpsim import BINARY16
    >>> from ipu.machine.control import FpCtl
    >>> device = ReplicaDevice(Device(control=FpCtl(esr=True)), 0, range(4))
    >>> x = device.stacked([[1.5]] * 4, BINARY16)
    >>> device.source = device.keys
    >>> y = device.multiply(x, 1 + 2.0**-10)
    >>> y.shape, y.stack.ravel().tolist()
    ((1,), [1.501953125, 1.5009765625, 1.5009765625, 1.5009765625])
    """

    in_one_call = False
    _context_class = _ReplicaContext

    def __init__(self, like: Device, seed: int, seeds: Sequence[int]) -> None:
        options = {name: getattr(like.options, name) for name in CHOSEN}
        arguments = dict(
            seed=seed, partials=like.partials, conv_partials=like.conv_partials, **options
        )
        super().__init__(like.target, like.control, **arguments)
        self.keys = ReplicaKeys(seeds)
        self.replicas = len(seeds)
        self.ledger: Any = _Notes()
        #: Flags of each replica since they were last taken, by format, and bits of its $FP_STS.
        self.flags_by_format: dict[Format, NDArray[np.int64]] = {}
        self.status_words = np.zeros(self.replicas, np.int64)
        #: On which rules run that need one replica at a time.
        self._single = Device(like.target, like.control, **arguments)

    def stacked(self, values: ArrayLike, fmt: Format | str) -> StackedArray:
        """Values of each replica rounded to nearest on the host, as `from_host`."""
        context = self.context(fmt)
        rounded = np.asarray(round_to(values, context.format), context.format.carrier)
        return StackedArray(rounded, context)

    def joined(self, arrays: Sequence[Array]) -> Array:
        """Arrays of the replicas, of one shape and format: a plain one where all are equal."""
        context = self.context(arrays[0].format)
        stack = np.stack([x.carrier for x in arrays])
        codes = stack.reshape(len(stack), -1).view(f"u{stack.itemsize}")
        if (codes == codes[0]).all():
            return Array(stack[0], context)
        return StackedArray(stack, context)

    # Flags ----------------------------------------------------------------------------------

    def add_flags(self, core: _ReplicaCore, flags: NDArray[np.int64] | int) -> None:
        """Flags of an operation: of each replica, or the same of all."""
        if not (flags.any() if isinstance(flags, np.ndarray) else flags):
            return
        fmt = core.settings.format
        if fmt not in self.flags_by_format:
            self.flags_by_format[fmt] = np.zeros(self.replicas, np.int64)
        self.flags_by_format[fmt] |= flags
        self.status_words |= core.words_of(flags)

    def give_to(self, devices: Sequence[Device]) -> None:
        """Each replica's device gets what the operations here have left behind since last time."""
        for fmt, flags in self.flags_by_format.items():
            for device, of_replica in zip(devices, flags.tolist(), strict=True):
                # The bits of the status register are those of the control register of then.
                State.raise_flags(device.context(fmt).core, of_replica)
        for device, word in zip(devices, self.status_words.tolist(), strict=True):
            device.raised |= word
            device.vector_cycles += self.vector_cycles
            device.units_used.update(self.units_used)
            for tensor, row in self.ledger:
                device.ledger.add(tensor, row)
        self.forget()

    def forget(self) -> None:
        """Nothing is left behind: no flags, cycles and products."""
        self.flags_by_format.clear()
        self.status_words[:] = 0
        self.vector_cycles = 0
        self.ledger.clear()

    def _done(self) -> _Done:
        flags = {fmt: flags.copy() for fmt, flags in self.flags_by_format.items()}
        return _Done(
            self.clock.operation, self.vector_cycles, len(self.ledger), flags,
            self.status_words.copy(),
        )

    def _return_to(self, before: _Done) -> None:
        self.clock.operation, self.vector_cycles = before.operation, before.cycles
        del self.ledger[before.products :]
        self.flags_by_format, self.status_words = before.flags, before.status

    # Rules ----------------------------------------------------------------------------------

    def compute(self, rule: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What a rule of the table gives, for all replicas at once or one after the other."""
        if not _has_single_results(arguments):
            before = self._done()
            try:
                return rule(self, *arguments, **options)
            except NotTogetherError:
                self._return_to(before)
        return self._one_by_one(rule, arguments, options)

    def _one_by_one(
        self, rule: Callable[..., Any], arguments: Sequence[Any],
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """What a rule or a verb gives each replica, on a device of its own."""
        single, start = self._single, self.clock.operation
        single.control = self.control
        for name in ("partials", "conv_partials", "planner", "conv_planner", "_tensor"):
            setattr(single, name, getattr(self, name))
        results, ends = [], set()
        flags: dict[Format, list[int]] = {}
        for replica in range(self.replicas):
            single.source = self._source_of(replica)
            single.clock.operation, single.clock.first = start, self.clock.first
            single.vector_cycles, single.ledger = 0, _Notes()  # type: ignore[assignment]
            single.clear_status()
            results.append(rule(
                single, *(self._of_one(x, replica) for x in arguments),
                **{name: self._of_one(x, replica) for name, x in options.items()},
            ))
            self.status_words[replica] |= single.status_word
            for fmt in self.target.formats:
                flags.setdefault(fmt, []).append(single.context(fmt).core.raised)
            ends.add((single.clock.operation, single.vector_cycles))
        if len(ends) > 1:
            raise NotTogetherError("replicas that do different work")
        for fmt, of_replicas in flags.items():
            if any(of_replicas):
                before = self.flags_by_format.get(fmt, np.zeros(self.replicas, np.int64))
                self.flags_by_format[fmt] = before | np.array(of_replicas)
        ((self.clock.operation, cycles),) = ends
        self.vector_cycles += cycles
        self.ledger += single.ledger
        self.units_used.update(single.units_used)
        return self._together(results)

    def _verb_one_by_one(self, verb: Callable[..., Array], arguments: Sequence[Any]) -> Array:
        """A verb for one replica after the other, where data ask for it."""
        result: Array = self._one_by_one(verb, arguments)
        return result

    def _source_of(self, replica: int) -> Any:
        if self.source is not self.keys:
            return self.source
        return Philox(int(self.keys.seeds[replica]))

    def _of_one(self, value: Any, replica: int) -> Any:
        """An argument of a rule, as that replica has it."""
        if isinstance(value, StackedArray):
            return Array(value.stack[replica, ...], self._single.context(value.format))
        if isinstance(value, Array):
            return Array(value.carrier, self._single.context(value.format))
        if isinstance(value, StackedValues):
            return value.stack[replica]
        if isinstance(value, _SingleResults):
            return value.values[replica]
        if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple(self._of_one(item, replica) for item in value)
        return value

    def _together(self, results: Sequence[Any]) -> Any:
        """What a rule gave each replica, as one."""
        first = results[0]
        if isinstance(first, Array):
            stack = np.stack([x.carrier for x in results])
            return StackedArray(stack, self.context(first.format))
        if type(first) is tuple:
            return tuple(self._together(items) for items in zip(*results, strict=True))
        is_plain = first is None or isinstance(first, (bool, int, float, str, Format))
        if is_plain and all(x == first for x in results):
            return first
        return _SingleResults(results)

    # Element by element ---------------------------------------------------------------------

    def _is_private(self, settings: Settings) -> bool:
        """Whether a rounding has bits of each replica."""
        return settings.rounding.stochastic and self.source is self.keys

    def _rounded(
        self, name: str, operands: Sequence[Operand], out: Array | None = None,
        evaluate: Evaluate = apply, context: Context | None = None,
    ) -> Array:
        """An elementwise operation with one rounding per element.

        context    computes, with operands of any format; None: that of the operands' format.
        """
        core = self._core_of(context or self._of(*operands))
        settings = core.settings
        is_private = self._is_private(settings)
        if not is_private and not any(isinstance(x, StackedArray) for x in operands):
            carriers = [_carrier(core, x, context) for x in operands]
            return core.rounded(name, carriers, out, evaluate)
        shape = np.broadcast_shapes(*(np.shape(x) if not isinstance(x, Array) else x.shape
                                      for x in operands))
        rows = [self._rows_of(core, x, shape, i, context) for i, x in enumerate(operands)]
        keys = self._keys(shape) if settings.rounding.stochastic else None
        values, flags = self._evaluated(name, rows, settings, shape, keys, evaluate)
        self.add_flags(core, flags)
        if settings.rounding.stochastic:
            self.clock.operation += 1
        self._spend(core, name, math.prod(shape))
        if out is None:
            return StackedArray(values, core.context)
        if not isinstance(out, StackedArray) or out.shape != shape:
            raise NotTogetherError("memory of one replica")
        out.stack[...] = values
        return out

    def _core_of(self, context: Context) -> _ReplicaCore:
        core = context.core
        assert isinstance(core, _ReplicaCore)
        return core

    def _spend(self, core: _ReplicaCore, name: str, size: int) -> None:
        """The cycles of an operation on one replica."""
        assert core.loops is not None
        cycles, elements = core.loops[name]
        self.vector_cycles += cycles * -(-size // elements)

    def _keys(self, shape: Shape) -> RowKeys:
        """Of the next operation; a number is no part of a tensor."""
        clock, seeds = self.clock, self.keys.seeds
        if self.source is not self.keys:
            seeds = np.full(self.replicas, self.source.seed, np.uint64)
        return seeds, clock.operation, clock.first if shape else 0

    def _rows_of(
        self, core: MachineCore, x: Operand, shape: Shape, place: int, context: Context | None
    ) -> Carrier:
        """An operand as rows of elements: (replicas or 1, elements or 1)."""
        if isinstance(x, StackedArray):
            if context is None and x.format != core.settings.format:
                raise NotTogetherError("operands of two formats")
            stack = x.stack
        else:
            stack = _carrier(core, x, context)[None]
        if stack.shape[1:] != shape and not (place and stack[0].size == 1):
            axes = len(shape) - (stack.ndim - 1)
            whole = stack.reshape(len(stack), *(1,) * axes, *stack.shape[1:])
            stack = np.broadcast_to(whole, (len(stack), *shape))
        return np.ascontiguousarray(stack).reshape(len(stack), -1)

    def _evaluated(
        self, name: str, rows: list[Carrier], settings: Settings, shape: Shape,
        keys: RowKeys | None, evaluate: Evaluate,
    ) -> tuple[Carrier, NDArray[np.int64]]:
        if not has_rows(settings) or not math.prod(shape):
            raise NotTogetherError("arithmetic without rows")
        if evaluate is apply:
            return apply_rows(name, rows, settings, shape, self.replicas, keys)
        whole = (self.replicas, *shape)
        if keys is None:
            flags = np.zeros(whole, np.uint8)
            stacks = [np.broadcast_to(x, (self.replicas, math.prod(shape))) for x in rows]
            values, _ = evaluate(
                name, [x.reshape(whole) for x in stacks], settings, element_flags=flags
            )
            return values, flags_of_rows(flags)
        seeds, number, first = keys
        values, of_rows = np.empty(whole, settings.format.carrier), []
        for r in range(self.replicas):
            operands = [x[r if len(x) > 1 else 0].reshape(shape) for x in rows]
            bits = Draw(seeds[r], np.uint64(number), None, first)
            values[r], raised = evaluate(name, operands, settings, bits=bits)
            of_rows.append(raised)
        return values, np.array(of_rows)

    def add(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        return self._rounded("add", (x, y), out)

    def subtract(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        return self._rounded("subtract", (x, y), out)

    def multiply(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        return self._rounded("multiply", (x, y), out)

    def divide(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        return self._rounded("divide", (x, y), out)

    def sqrt(self, x: Array) -> Array:
        return self._rounded("sqrt", (x,))

    def unscale(self, x: Array, scale: float) -> Array:
        context = self._of(x)
        numbers = x.stack if isinstance(x, StackedArray) else x.carrier
        dividend, divisor = quotient_operands(numbers, scale, context.core.settings)
        return self._rounded(
            "divide", (_like(x, dividend, context), Array(divisor, context)), context=context
        )

    def _cast(self, x: Array, before: Format, fmt: Format | str) -> Array:
        return self._rounded("convert", (x,), context=self.context(fmt))

    def negative(self, x: Array) -> Array:
        if not isinstance(x, StackedArray):
            return super().negative(x)
        context = self._of(x)
        self._spend(self._core_of(context), "negative", x.size)
        values = compare.with_sign("negative", x.stack, context.core.settings)
        return StackedArray(values, context)

    def _function(self, name: str, x: Array) -> Array:
        if self._of(x).core.settings.native:
            return super()._function(name, x)
        return self._rounded(name, (x,), evaluate=elementary.evaluate)

    @usual_arithmetic
    def relu(self, x: Array) -> Array:
        if not isinstance(x, StackedArray):
            return super().relu(x)
        context = self._of(x)
        values = kept_least(x.stack, least_positive(context.core.settings))
        if values is None:
            return self._verb_one_by_one(Device.relu, [x])
        self.vector_cycles += thread_cycles("relu", x.format, x.size)
        return StackedArray(values, context)

    @usual_arithmetic
    def select(self, where: Any, x: Array) -> Array:
        if isinstance(where, StackedValues):
            where = where.stack
        elif not isinstance(x, StackedArray):
            return super().select(where, x)
        whole = self.replicas, *x.shape
        numbers = x.stack if isinstance(x, StackedArray) else np.broadcast_to(x.carrier, whole)
        self.vector_cycles += thread_cycles("select", x.format, x.size)
        return StackedArray(kept_where(np.broadcast_to(where, whole), numbers), self._of(x))

    @usual_arithmetic
    def select_positive(self, keys: Keys, most: int, x: Array) -> Array:
        whole = self.replicas, *x.shape
        if keys.shape == x.shape and not isinstance(x, StackedArray):
            return super().select_positive(keys, most, x)
        numbers = x.stack if isinstance(x, StackedArray) else np.broadcast_to(x.carrier, whole)
        self.vector_cycles += thread_cycles("select", x.format, x.size)
        keys = np.ascontiguousarray(np.broadcast_to(keys, whole))
        return StackedArray(
            kept_positive(keys, most, np.ascontiguousarray(numbers)), self._of(x)
        )

    @usual_arithmetic
    def random_mask(self, shape: tuple[int, ...], keep: float) -> Any:
        """As `Device.random_mask`; of the replicas' own bits a mask for each."""
        if self.source is not self.keys:
            return super().random_mask(shape, keep)
        shape = checked_shape(shape, 4)
        checked_number("keep", keep)
        share = self.context(BINARY32).constant(keep).carrier
        rows = np.full((1, math.prod(shape)), share)
        values, _ = apply_rows(
            "round_to_integral", [rows], _COIN, shape, self.replicas, self._keys(shape)
        )
        self.clock.operation += 1
        return StackedValues(values == 1)

    # Many to one ----------------------------------------------------------------------------

    @usual_arithmetic
    def reduce_sum(
        self, x: Array, axis: int | tuple[int, ...], fmt: Format | str | None = None,
        scale: float = 1.0,
    ) -> Array:
        if not isinstance(x, StackedArray):
            return super().reduce_sum(x, axis, fmt, scale)
        axes = checked_axes(axis, x.ndim)
        total = self._sum_of_rows(x, axes, is_far_from_tiny(x.format), ("cast", "add"))
        if total is None:
            return self._verb_one_by_one(Device.reduce_sum, [x, axis, fmt, scale])
        return self._scaled_sum(x, axes, total, x.format if fmt is None else fmt, scale)

    @usual_arithmetic
    def reduce_squares(self, x: Array, axes: tuple[int, ...], scale: float = 1.0) -> Array:
        if not isinstance(x, StackedArray):
            return super().reduce_squares(x, axes, scale)
        if not has_plain_squares(x.format):
            single = self.cast(x, reference.wide(x.format))
            return self.reduce_sum(self.multiply(single, single), axes, scale=scale)
        axes = checked_axes(axes, x.ndim, "axes")
        total = self._sum_of_rows(x, axes, True, ("cast", "multiply", "add"), squared=True)
        if total is None:
            return self._verb_one_by_one(Device.reduce_squares, [x, axes, scale])
        return self._scaled_sum(x, axes, total, BINARY32, scale)

    def _sum_of_rows(
        self, x: StackedArray, axes: tuple[int, ...], in_one_pass: bool, verbs: Sequence[str],
        *, squared: bool = False,
    ) -> Array | None:
        """The sum in binary32 of each replica; None, and nothing has happened, if it is unusual.

        in_one_pass    whether the numbers are summed as they are, else once they are cast.
        """
        single = self.context(BINARY32)
        usual = self.options.sums == "spread" and is_native(single.core.settings, "sequential")
        if not (usual and axes and (in_one_pass or x.format == BINARY32)):
            return None
        sums = native_spread_sums(x.stack, tuple(a + 1 for a in axes), squared=squared)
        if sums is None:
            return None
        values, inexact = sums
        self.add_flags(self._core_of(single), flags_of_rows(inexact.reshape(self.replicas, -1)))
        for verb in verbs if in_one_pass else ("add",):
            self.vector_cycles += thread_cycles(verb, BINARY32, x.size)
        return StackedArray(values, single)

    @usual_arithmetic
    def reduce_max(self, x: Array, axis: int) -> Array:
        if not isinstance(x, StackedArray):
            return super().reduce_max(x, axis)
        context = self._of(x)
        largest, has_nan = largest_along(
            x.stack, one_axis(axis, x.ndim) + 1, context.core.settings,
            number_wins=self.options.max_nan == "number",
        )
        if has_nan:
            return self._verb_one_by_one(Device.reduce_max, [x, axis])
        self.vector_cycles += thread_cycles("maximum", x.format, x.size)
        return StackedArray(largest, context)

    # Products -------------------------------------------------------------------------------

    def _product(
        self, call: ProductCall, to: Format | None, late_shape: Shape | None = None
    ) -> Array:
        return super()._product(call._replace(compute=partial(self._computed, call)), to)

    def _computed(self, call: ProductCall, context: Context) -> Array:
        x, y = call.operands
        settings = context.core.settings
        is_private = self._is_private(settings)
        stacked = isinstance(x, StackedArray) or isinstance(y, StackedArray)
        if not (is_private or stacked):
            return call.compute(context)
        if call.verb != "matmul" or call.parts != 1:
            raise NotTogetherError("products that are no stacks")
        unit = UnitCall(
            "matmul", "ab", x, y, call.unit, context, None, None, call.scale, self._subnormals, None
        )
        shape = result_shape(x.shape, y.shape)
        left, right = (z.stack if isinstance(z, StackedArray) else z.carrier[None] for z in (x, y))
        keys = self._keys(shape) if settings.rounding.stochastic else None
        values, flags = multiply_rows(unit.settings, left, right, shape, self.replicas, keys)
        self.add_flags(self._core_of(context), flags)
        if settings.rounding.stochastic:
            self.clock.operation += 1
        return StackedArray(values, context)


def _carrier(core: MachineCore, x: Operand, context: Context | None) -> Carrier:
    """An operand that all replicas have; one of any format where a context is named."""
    if context is not None and isinstance(x, Array):
        return x.carrier
    return core.carriers((x,))[0]


def _like(x: Array, values: Carrier, context: Context) -> Array:
    return StackedArray(values, context) if isinstance(x, StackedArray) else Array(values, context)


def _has_single_results(arguments: Sequence[Any]) -> bool:
    """Whether one of the arguments has results of single replicas."""
    for value in arguments:
        if isinstance(value, _SingleResults):
            return True
        is_structure = isinstance(value, Sequence) and not isinstance(value, (str, Array))
        if is_structure and _has_single_results(value):
            return True
    return False
