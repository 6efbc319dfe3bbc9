"""Device: the one mutable numerical object, a target under control bits.

It holds a context for each format the target computes in. They share the seed and the number of
the next stochastic operation, count into one table per tensor, and show the registers when a trap
stops them. Arrays of a device keep its contexts, so operators on them are operations of the device.

Each elementwise operation computes in its operand's format. A product chooses its unit, computes
through it under the device's registers, and writes a row into the ledger. The AMP returns products
of quarters as halves, so a result in quarters is also cast. Images are (batch, height, width,
channels), kernels (height, width, channels of a group, outputs).

Source    docs/semantics.md §2 (numbering), §5 (units), §6 (registers, primitives).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fpsim.array import Array
from fpsim.context import Context
from fpsim.convenience import round_to
from fpsim.core import Operand
from fpsim.elementwise.apply import common_shape
from fpsim.elementwise.axes import checked_axes, one_axis
from fpsim.elementwise.notes import CallNotes
from fpsim.elementwise.order import largest_along
from fpsim.elementwise.recording import LARGEST, POSITIVE, SAME, SQUARES, SUM, Recording
from fpsim.elementwise.selection import (
    Keys,
    kept_least,
    kept_positive,
    kept_where,
    least_positive,
)
from fpsim.elementwise.sizes import checked_count, checked_number, checked_shape
from fpsim.operations import divide_by
from fpsim.records.evidence import Fact
from fpsim.records.formats import (
    BINARY16,
    BINARY32,
    BINARY64,
    F143,
    F152,
    Format,
    find_number_format,
)
from fpsim.records.geometry import Padding, Stride
from fpsim.records.rounding import SR
from fpsim.records.types import Carrier, Shape
from fpsim.records.units import MatrixUnit, find_unit, with_partials
from fpsim.state.bits import BitSource
from fpsim.state.counts import Counts
from fpsim.state.processor import usual_arithmetic
from fpsim.state.state import Clock
from ipu.machine import reference
from ipu.machine.assigned import Assigned
from ipu.machine.blocks import BlockState
from ipu.machine.choice import (
    RULE,
    ConvolutionTraits,
    choose,
    find_partials,
    fitting_partials,
)
from ipu.machine.contexts import MachineContext, MachineCore
from ipu.machine.control import DENORMALS, POWER_ON, RULES, FpCtl, FpSts, dump
from ipu.machine.cost.blocks import BlockOperand, block_row
from ipu.machine.cost.ledger import Ledger, LedgerRow
from ipu.machine.cost.planner import Planner
from ipu.machine.cost.rows import ledger_row
from ipu.machine.generator import WORKERS, find_source
from ipu.machine.late import WORTH, LateResults
from ipu.machine.options import CHOSEN, MAXIMUM, SUMS, DeviceOptions
from ipu.machine.product_calls import (
    ProductCall,
    convolution_call,
    input_gradient_call,
    matmul_call,
    weight_gradient_call,
)
from ipu.machine.sums import is_far_from_tiny, reference_sum, single_pass_sum, single_sum
from ipu.machine.target import MK2, Target, find_target
from ipu.machine.vector import thread_cycles

__all__ = ["Device", "MachineContext", "MachineCore"]

_QUARTERS = (F143.name, F152.name)


def _no_memory(out: object) -> TypeError:
    """The sentence for the keyword that the format of a product's result had before."""
    return TypeError(
        f"out={out} of a product on a device; the format of its result is to={out} now (out= is "
        "memory everywhere, and these products take none)"
    )


class Device:
    """A target with control bits, status, seed and counters, and the verbs of its arithmetic.

    target          a `Target` or its name.
    control         the control register; exceptions and rounding follow it.
    seed            of the random bits of stochastic rounding.
    random          their source: "philox", or "xoroshiro", the generators of the target's workers.
    f32_denormals   "flush" (INFERRED) or "ieee".
    max_nan         "number" (ASSUMED) or "propagate": what max gives for a number and a NaN.
    sums            "spread" (ASSUMED): sums add parts of at most 64 neighbours, then the sums of
                    the parts; "chain": one summand after the other.
    partials        of matrix products with binary16 inputs, where the call does not say: BINARY32
                    or BINARY16, or poplibs' words "float" and "half".
    conv_partials   the same for convolutions; None: as `partials`.
    preset          of the matrix units: "window" (default), "exact", "sticky", "sequential_f32".
    planner         choices of the cost model, which change the ledger and no bit.
    count           count flags, zeros and subnormals per tensor and operation in `counts`.
    disable_sr_for_amp_vertices    stochastic rounding stops at the matrix units: their stores and
                    results go to nearest, as with poplibs' option of that name.

    >>> from fpsim import BINARY16
    >>> device = Device()
    >>> big = device.from_host([10000.0], BINARY16)
    >>> device.multiply(big, big).values.tolist(), device.status
    ([65504.0], FpSts(inv=False, div0=False, oflo=True))
    >>> Device(control=FpCtl(oflo=True)).multiply(big, big)
    Traceback (most recent call last):
    ...
    fpsim.FloatingPointTrap: multiply raised OVERFLOW|INEXACT at (0,): (10000.0, 10000.0)
    $FP_CTL 0x00000004  INV 0x0  DIV0 0x0  OFLO 0x1  RND 0x0  ESR 0x0  NANOO 0x0
    $FP_STS 0x00000004  INV 0x0  DIV0 0x0  OFLO 0x1
    """

    #: Called by the tape with each row of `ipu.ops` that has run, or whose gradient has, and its
    #: result; see `ipu.run`.
    watch: Callable[[Any, Array], object] | None = None
    #: Where operations are noted as they run.
    recording: Recording | None = None
    #: Where their native calls are noted, to be run again; see `fpsim.elementwise.notes`.
    notes: CallNotes | None = None
    #: Is told of values of the host, and of the array that they become; None: nobody asks.
    entering: Callable[[ArrayLike, Array], None] | None = None
    #: Whether rows of `ipu.ops` may run in one call (`ipu.ops.in_one_call`), and updates; else each
    #: operation runs alone. Nothing but time differs.
    in_one_call = True
    #: Runs the rules of `ipu.ops` of the tape; None: they are called as they are.
    compute: Callable[..., Any] | None = None
    #: What is made for each format.
    _context_class: type[MachineContext] = MachineContext

    def __init__(
        self,
        target: Target | str = MK2,
        control: FpCtl = POWER_ON,
        *,
        seed: int = 0,
        random: str = "philox",
        f32_denormals: str = "flush",
        max_nan: str = "number",
        sums: str = "spread",
        partials: Format | str = BINARY32,
        conv_partials: Format | str | None = None,
        preset: str = "window",
        planner: Planner | None = None,
        count: bool = False,
        disable_sr_for_amp_vertices: bool = False,
    ) -> None:
        if not isinstance(control, FpCtl):
            raise TypeError(f"control={control!r} is not a control register; use FpCtl(...)")
        self.target = find_target(target)
        self.options = DeviceOptions(
            target=self.target, random=random, f32_denormals=f32_denormals, max_nan=max_nan,
            sums=sums, preset=preset, planner=Planner() if planner is None else planner,
            disable_sr_for_amp_vertices=disable_sr_for_amp_vertices,
        )
        #: Formats that are wished for; scopes of a program change them.
        self.partials = find_partials(partials)
        self.conv_partials = None if conv_partials is None else find_partials(conv_partials)
        #: The policy of binary32, also inside of units, whatever a result's format is.
        self._subnormals = DENORMALS[f32_denormals]
        self._control = control
        self._source = find_source(random, seed, self.target)
        self._contexts: dict[Format, MachineContext] = {}
        self._by_identity: dict[int, MachineContext] = {}
        self.clock = Clock()
        self.counts: Counts | None = Counts() if count else None
        #: $FP_STS without the bits of late results: each operation adds its own, mapped by the
        #: control register of then.
        self.raised = 0
        #: Thread cycles of the elementwise operations and reductions so far, by the declared model
        #: of `ipu.machine.vector`.
        self.vector_cycles = 0
        #: What runs on the machine now, as a trap tells it: replica, IPU, stage, micro-batch, slot.
        self.program = ""
        self._tensor = self._suffix = ""
        self.ledger = Ledger()
        self.units_used: dict[str, MatrixUnit] = {}
        self._rows: dict[tuple[object, ...], tuple[LedgerRow, object]] = {}
        #: Choices of the cost model; programs change them. None: convolutions have those of all.
        self.planner = self.options.planner
        self.conv_planner: Planner | None = None
        self._units: dict[tuple[object, ...], tuple[MatrixUnit, object]] = {}
        self._has_warned = False
        #: Whether another thread may compute products that are asked for with `late=True`; see
        #: `settling`.
        self.puts_off = False
        self._late = LateResults()
        self.blocks = BlockState()

    def twin(self) -> Device:
        """Another device that computes and draws like a new one of this kind.

        >>> Device(sums="chain", seed=7).twin().options.sums
        'chain'
        """
        options = {name: getattr(self.options, name) for name in CHOSEN}
        return type(self)(
            self.target, self._control, seed=self._source.seed or 0, partials=self.partials,
            conv_partials=self.conv_partials, count=self.counts is not None, **options,
        )

    # State ----------------------------------------------------------------------------------

    def context(self, fmt: Format | str) -> MachineContext:
        """The context that computes in fmt on this device."""
        context = self._by_identity.get(id(fmt))
        if context is None:
            context = self._contexts.get(fmt) if isinstance(fmt, Format) else None
        if context is None:
            fmt = find_number_format(fmt)
            if fmt not in self.target.formats:
                names = ", ".join(f.name for f in self.target.formats)
                raise ValueError(
                    f"target={self.target.name} computes in {names}, not in {fmt.name}; "
                    "choose another target (hypothetical has bfloat16, mk2-fp8 has quarters, "
                    "reference has binary64)"
                )
            context = self._contexts[fmt] = self._context_class(self, fmt)
            # The context keeps its format alive, so that no other has its number.
            self._by_identity[id(fmt)] = context
        return context

    def _set_source(self, source: BitSource) -> None:
        if source is self._source:
            return
        self._source = source
        for context in self._contexts.values():
            context.core.source = source

    source: BitSource = property(  # type: ignore[assignment]
        attrgetter("_source"), _set_source,
        doc="The random bits; assign to draw from another source.",
    )

    def _set_control(self, control: FpCtl) -> None:
        if control is self._control:
            return
        if control.nanoo != self._control.nanoo:  # flags of then mean other bits of $FP_STS
            self.settle()
        self._control = control
        for context in self._contexts.values():
            context.core.obey(control)

    control: FpCtl = property(  # type: ignore[assignment]
        attrgetter("_control"), _set_control, doc="$FP_CTL; assign to write it."
    )

    def rounding(self, stochastic: bool) -> Assigned:
        """ESR is on or off for the operations inside, and as it was afterwards."""
        control = self._control
        if control.esr != stochastic:
            control = _with_esr(control, stochastic)
        return Assigned(self, "control", control)

    def shard(self, first: int) -> Assigned:
        """Element 0 of the elementwise operations inside has the random bits of element `first`."""
        return Assigned(self.clock, "first", first)

    @property
    def status_word(self) -> int:
        """$FP_STS as a word; assign to write it."""
        self.settle()
        return self.raised

    @status_word.setter
    def status_word(self, word: int) -> None:
        self.settle()
        self.raised = word

    @property
    def status(self) -> FpSts:
        """$FP_STS: the bits of all operations since it was cleared."""
        return FpSts.from_word(self.status_word)

    def clear_status(self) -> None:
        """Write ones to $FP_CLR; the flags of all contexts are lowered too."""
        self.status_word = 0
        for context in self._contexts.values():
            context.clear_flags()

    def registers(self) -> str:
        """$FP_CTL and $FP_STS as text."""
        return dump(self.control, self.status)

    def _set_tensor(self, tensor: str) -> None:
        self._tensor = tensor
        if self.counts is not None:
            self.counts.tensor = self.counted_as

    tensor: str = property(  # type: ignore[assignment]
        attrgetter("_tensor"), _set_tensor,
        doc="Name of the tensor that operations work on now; see `naming`.",
    )

    def naming(self, tensor: str) -> Assigned:
        """The operations inside work on that tensor: counters and traps name it."""
        if self.counts is None:
            return Assigned(self, "_tensor", tensor)
        return Assigned(self, "tensor", tensor)

    @property
    def counted_as(self) -> str:
        """Name under which operations count now."""
        return self.tensor + self._suffix if self.tensor else ""

    def recomputing(self) -> AbstractContextManager[None]:
        """The operations inside repeat others: they count under TENSOR/recompute."""
        return self.counting_apart("recompute")

    @contextmanager
    def counting_apart(self, phase: str) -> Iterator[None]:
        """The operations inside count under TENSOR/PHASE."""
        before = self._suffix
        self._suffix, self.tensor = f"/{phase}", self.tensor
        try:
            yield
        finally:
            self._suffix, self.tensor = before, self.tensor

    @property
    def facts(self) -> dict[str, Fact]:
        """What the results of this device rest on."""
        streams = WORKERS if self.options.random == "xoroshiro" else {}
        sums = SUMS[self.options.sums]
        return RULES | {"choice of the unit": RULE, "order of sums": sums} | streams

    # Values ---------------------------------------------------------------------------------

    def from_host(self, values: ArrayLike, fmt: Format | str) -> Array:
        """Values rounded to nearest on the host, then copied in: no status, no random bits."""
        context = self.context(fmt)
        rounded = np.asarray(round_to(values, context.format), context.format.carrier)
        if self.notes is not None:
            self._note_host(values, rounded, context.format)
        array = Array(rounded, context)
        if self.entering is not None:
            self.entering(values, array)
        return array

    def _note_host(self, values: ArrayLike, rounded: Carrier, fmt: Format) -> None:
        def again(*_: object) -> bool:
            rounded[...] = round_to(values, fmt)
            return True

        assert self.notes is not None
        if isinstance(values, np.ndarray) and rounded.flags.writeable:
            self.notes.note((values,), (rounded,), again)
        else:
            self.notes.refuse()

    def zeros(self, shape: int | tuple[int, ...], fmt: Format | str) -> Array:
        """+0 in every element."""
        return self.context(fmt).zeros(shape)

    def _of(self, *operands: Operand) -> Context:
        """The context that computes with these operands."""
        for operand in operands:
            if isinstance(operand, Array):
                context = operand.context
                is_ours = getattr(context, "device", None) is self
                return context if is_ours else self.context(operand.format)
        raise TypeError("no operand is an Array; make one with device.from_host(values, format)")

    # Formats --------------------------------------------------------------------------------

    def cast(self, x: Array, fmt: Format | str) -> Array:
        """x in another format, rounded once; itself if it is in that format."""
        if not isinstance(x, Array):
            raise _no_array(x)
        before = x.context.core.settings.format
        if fmt is before or (isinstance(fmt, Format) and fmt == before):
            return x
        return self._cast(x, before, fmt)

    @usual_arithmetic
    def _cast(self, x: Array, before: Format, fmt: Format | str) -> Array:
        context = self.context(fmt)
        core, fmt = context.core, context.core.settings.format
        is_single = fmt is BINARY32 or fmt == BINARY32
        if is_single and is_far_from_tiny(before) and _is_plain(context, x):
            self.vector_cycles += thread_cycles("cast", fmt, x.size)
            self._note("cast", x.carrier, x.carrier, SAME)
            if self.notes is not None:  # it stays the same memory while there is no NaN
                self.notes.note((x.carrier,), (), lambda *_: _is_plain(context, x))
            return Array(x.carrier, context)  # they are normal numbers there, as they stand
        return core.rounded("convert", [x.carrier])

    def to_integers(self, x: Array, dtype: DTypeLike) -> NDArray[Any]:
        """x as integers; NaN gives INV and, in int32, -2147483648."""
        return self._of(x).to_integers(x, dtype)

    # Element by element ---------------------------------------------------------------------

    def add(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        """x + y, rounded once."""
        core = self._of(x, y).core
        return core.rounded("add", core.carriers((x, y)), out)

    def subtract(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        """x - y, rounded once."""
        core = self._of(x, y).core
        return core.rounded("subtract", core.carriers((x, y)), out)

    def multiply(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        """x * y, rounded once."""
        core = self._of(x, y).core
        return core.rounded("multiply", core.carriers((x, y)), out)

    def divide(self, x: Operand, y: Operand, out: Array | None = None) -> Array:
        """x / y, rounded once; in binary16 finite / 0 is NaN with DIV0."""
        core = self._of(x, y).core
        return core.rounded("divide", core.carriers((x, y)), out)

    def unscale(self, x: Array, scale: float) -> Array:
        """x / fl(scale), rounded once; the scale is a binary32 number, in any format of x.

        >>> from fpsim import BINARY16
        >>> from ipu.machine import Device
        >>> device = Device()
        >>> float(device.unscale(device.from_host(2.0, BINARY16), 2.0**17)) == 2.0**-16
        True
        """
        return divide_by(self._of(x).core, x, scale)

    def negative(self, x: Array) -> Array:
        """-x: the sign bit flipped, no flags."""
        return self._of(x).negative(x)

    def sqrt(self, x: Array) -> Array:
        """The square root, rounded once."""
        return self._of(x).sqrt(x)

    def exp(self, x: Array) -> Array:
        """e**x, rounded once (modelled as correctly rounded: the IPU's last digit is unknown)."""
        return self._function("exp", x)

    def log(self, x: Array) -> Array:
        """The natural logarithm, rounded once (modelled as `exp` is)."""
        return self._function("log", x)

    def tanh(self, x: Array) -> Array:
        """The hyperbolic tangent, rounded once (modelled as `exp` is)."""
        return self._function("tanh", x)

    def sigmoid(self, x: Array) -> Array:
        """1 / (1 + e**-x), rounded once (modelled as `exp` is)."""
        return self._function("sigmoid", x)

    def rsqrt(self, x: Array) -> Array:
        """1 / sqrt(x), rounded once (modelled as `exp` is)."""
        return self._function("rsqrt", x)

    def erf(self, x: Array) -> Array:
        """The error function, rounded once (modelled as `exp` is)."""
        return self._function("erf", x)

    @usual_arithmetic
    def _function(self, name: str, x: Array) -> Array:
        context = self._of(x)
        if context.core.settings.native:
            with np.errstate(all="ignore"):
                return Array(np.asarray(reference.FUNCTIONS[name](x.carrier)), context)
        result: Array = getattr(context, name)(x)
        return result

    def maximum(self, x: Operand, y: Operand) -> Array:
        """The larger; INV when a NaN is read, which wins only with max_nan="propagate"."""
        larger: Array = getattr(self._of(x, y), MAXIMUM[self.options.max_nan])(x, y)
        return larger

    @usual_arithmetic
    def relu(self, x: Array) -> Array:
        """max(x, 0) that passes NaN on."""
        context = self._of(x)
        settings = context.core.settings
        least = least_positive(settings)
        values = kept_least(x.carrier, least)
        cycles = self.vector_cycles + thread_cycles("relu", x.format, x.size)
        if values is None:
            result = context.maximum(x, 0.0)
        elif context.counts is not None:
            flags = np.zeros(values.shape, np.uint8)
            result = context.core.exact("maximum", [x.carrier], values, flags, kind=POSITIVE)
        else:
            result = Array(values, context)
            if self.notes is not None:
                again = partial(kept_least, x.carrier, least, values)
                self.notes.note((x.carrier,), (values,), lambda *_: again() is not None)
            if self.recording is not None:
                self.recording.note("maximum", settings, [x.carrier], values, 0, POSITIVE)
        self.vector_cycles = cycles  # the machine takes the same time, whatever is looked at
        return result

    @usual_arithmetic
    def select(self, where: NDArray[np.bool_], x: Array) -> Array:
        """x where true, +0 elsewhere; no arithmetic."""
        context = self._of(x)
        if not isinstance(where, (np.ndarray, np.generic)) or where.dtype != np.bool_:
            kind = type(where).__name__
            raise TypeError(f"where={kind} is not an array of truth values; give x > 0 or such")
        # refuses what does not broadcast
        common_shape((where, x.carrier))  # type: ignore[arg-type]
        self.vector_cycles += thread_cycles("select", x.format, x.size)
        values = kept_where(where, x.carrier)
        if self.notes is not None:
            again = partial(kept_where, where, x.carrier, values)
            self.notes.note((where, x.carrier), (values,), lambda *_: again() is values)
        return Array(values, context)

    @usual_arithmetic
    def select_positive(self, keys: Keys, most: int, x: Array) -> Array:
        """x where 0 < key <= most, +0 elsewhere; keys are codes or bits of floats."""
        self.vector_cycles += thread_cycles("select", x.format, x.size)
        values = kept_positive(keys, most, x.carrier)
        if self.notes is not None:
            again = partial(kept_positive, keys, most, x.carrier, values)
            self.notes.note((keys, x.carrier), (values,), lambda *_: again() is values)
        return Array(values, self._of(x))

    # Many to one ----------------------------------------------------------------------------

    @usual_arithmetic
    def reduce_sum(
        self, x: Array, axis: int | tuple[int, ...], fmt: Format | str | None = None,
        scale: float = 1.0,
    ) -> Array:
        """Sum over axes times a scale, in binary32, rounded once to fmt.

        The order is that of `sums`: parts of at most 64 summands, or one chain. binary64 is summed
        in binary64, in the same order; as one chain in numpy's.

        Shapes    the axes stay, with length 1.
        Rounding  each addition and the multiplication by fl(scale) in binary32, then once from
                  binary32 to fmt (default: x's format).
        Error     of the sum of n: at most 64 ⌈log₆₄ n⌉ u Σ|x|; of one chain (n - 1) u Σ|x|.
        Source    poplibs, Reduction.cpp: half sums accumulate in float, the scale is a float, and
                  sums are spread over workers and tiles; the grain, its contiguity and that it
                  does not depend on the layout are ASSUMED.
        """
        if not isinstance(x, Array):
            raise _no_array(x)
        axes = checked_axes(axis, x.ndim)
        order, total = self.options.sums, self._single_pass_sum(x, axes)
        before = x.context.core.settings.format
        if total is None and (before is BINARY64 or before == BINARY64):
            total = Array(reference_sum(x.carrier, axes, order), self.context(BINARY64))
        elif total is None:
            self.vector_cycles += thread_cycles("add", BINARY32, x.size)
            single = self.cast(x, BINARY32)
            total = single_sum(self.context(BINARY32), single, axes, order)
            self._note("sum", single.carrier, total.carrier, SUM, axes)
            if self.notes is not None:
                again = partial(single_sum, self.context(BINARY32), single, axes, order)
                self._note_sum(single, total.carrier, again)
        return self._scaled_sum(x, axes, total, before if fmt is None else fmt, scale)

    @usual_arithmetic
    def reduce_squares(self, x: Array, axes: tuple[int, ...], scale: float = 1.0) -> Array:
        """Sum of squares over axes times a scale, in binary32, in the order of `reduce_sum`.

        binary64 stays binary64.

        Shapes    the axes stay, with length 1.
        Rounding  each square, addition and the multiplication by fl(scale), in binary32.
        """
        if not isinstance(x, Array):
            raise _no_array(x)
        axes = checked_axes(axes, x.ndim, "axes")
        total = self._single_pass_sum(x, axes, squared=True)
        if total is None:
            single = self.cast(x, reference.wide(x.format))
            return self.reduce_sum(self.multiply(single, single), axes, scale=scale)
        return self._scaled_sum(x, axes, total, BINARY32, scale)

    def _single_pass_sum(
        self, x: Array, axes: tuple[int, ...], *, squared: bool = False
    ) -> Array | None:
        order = self.options.sums
        total = single_pass_sum(self.context(BINARY32), x, axes, order, squared=squared)
        if total is not None:
            for verb in ("cast", "multiply", "add") if squared else ("cast", "add"):
                self.vector_cycles += thread_cycles(verb, BINARY32, x.carrier.size)
            self._note("sum", x.carrier, total.carrier, SQUARES if squared else SUM, axes)
            if self.notes is not None:
                single = self.context(BINARY32)
                again = partial(single_pass_sum, single, x, axes, order, squared=squared)
                self._note_sum(x, total.carrier, again)
        return total

    def _note_sum(self, x: Array, total: Carrier, sums: Callable[[], Array | None]) -> None:
        def again(*_: object) -> bool:
            result = sums()
            if result is None:
                return False
            total[...] = result.carrier
            return True

        assert self.notes is not None
        self.notes.note((x.carrier,), (total,), again)

    def _note(
        self, name: str, x: Carrier, result: Carrier, kind: str, axes: tuple[int, ...] = ()
    ) -> None:
        """What has run in binary32 and is no operation of a context, for a recording."""
        if self.recording is not None:
            settings = self.context(BINARY32).core.settings
            self.recording.note(name, settings, [x], result, 0, kind, axes)
            if kind in (SUM, SQUARES) and self.options.sums != "spread":
                self.recording.refuse()

    def _scaled_sum(
        self, x: Array, axes: tuple[int, ...], total: Array, fmt: Format | str, scale: float
    ) -> Array:
        """A sum without its axes times the scale, rounded once to fmt, with them."""
        if checked_number("scale", scale) != 1:
            total = self.multiply(total, scale)
        shape = list(x.shape)
        for axis in axes:
            shape[axis] = 1
        return self.cast(total.reshape(shape), fmt)

    @usual_arithmetic
    def reduce_max(self, x: Array, axis: int) -> Array:
        """The largest along an axis, -0 < +0; INV when a NaN is read, which wins only if switched.

        Shapes    the axis stays, with length 1.
        """
        context = self._of(x)
        axis = one_axis(axis, x.ndim)
        cycles = self.vector_cycles + thread_cycles("maximum", x.format, x.size)
        largest, has_nan = largest_along(
            x.carrier, axis, context.core.settings, number_wins=self.options.max_nan == "number"
        )
        if has_nan:
            context.fmax(x, x)  # raises what reading a NaN raises
        self.vector_cycles = cycles
        if self.notes is not None:
            self.notes.refuse()
        if self.recording is not None:
            self.recording.note(
                "maximum", context.core.settings, [x.carrier], largest, 0, LARGEST, (axis,)
            )
        return Array(largest, context)

    # Random bits ----------------------------------------------------------------------------

    @usual_arithmetic
    def random_mask(self, shape: tuple[int, ...], keep: float) -> NDArray[np.bool_]:
        """True with probability floor(65536 fl(keep)) / 65536, whatever the control register says.

        One operation of the device: `keep`, in binary32, is rounded to 0 or 1 with 16 random bits.

        Source    the instruction rmask keeps an element by 16 random bits (its comparison is
                  ASSUMED); docs/semantics.md §2 (layout).
        """
        if self.notes is not None:
            self.notes.refuse()
        shape = checked_shape(shape, 4)
        checked_number("keep", keep)
        machine = self.context(BINARY32)
        coin = Context(BINARY32, rounding=SR(bits=16), bits=machine.core.source)
        coin.core.clock = machine.core.clock
        share = np.full(shape, coin.constant(keep).carrier)
        mask: NDArray[np.bool_] = coin.round_to_integral(Array(share, coin)).carrier == 1
        return mask

    # Late results ---------------------------------------------------------------------------

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Inside, `puts_off` may be set: another thread may compute products that are asked for
        with `late=True`. At its end they are there.

        Values, flags, numbers and the ledger are those of computing at once; only time differs.
        """
        try:
            yield
        finally:
            self.puts_off = False
            self.settle()

    def settle(self) -> None:
        """Wait for the late results: their flags are raised."""
        self._late.finish()

    # Partials -------------------------------------------------------------------------------

    def partials_for(
        self, inputs: Format, verb: str = "matmul", *, to: Format | None = None,
        wanted: Format | None = None,
    ) -> Format:
        """Partials of a product with these inputs, by the option for matmuls or convolutions.

        wanted    instead of the option, for a policy or a scope. Where the inputs need other
                  partials, or the partials would be narrower than the result, the product keeps
                  those that fit. A warning reports the second case, once.
        """
        asked = wanted or (verb.startswith("conv") and self.conv_partials) or self.partials
        fitting = fitting_partials(inputs, asked, to or inputs)
        if fitting.precision > asked.precision and fitting == to and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"partials={asked} are narrower than results in {to}, which keep {to} partials; "
                "this is warned of once",
                RuntimeWarning, stacklevel=3,
            )
        return fitting

    # Products -------------------------------------------------------------------------------

    def matmul(
        self, x: Array, y: Array, *, partials: Format | str | None = None,
        to: Format | str | None = None, unit: MatrixUnit | str | None = None, scale: int = 0,
        k_split: int = 1, late: bool = False, out: None = None,
    ) -> Array:
        """The matrix product through the AMP unit for these inputs and partials.

        late      nobody needs the values soon; see `settling`.
        scale     of quarters: the product is multiplied by 2**scale, the sum of both metadata.
        k_split   parts of the tiles that K is split over; their partials are added in binary32 in
                  index order and rounded once.

        Rounding  inside as the unit's record says; once into `to` (default: the inputs' format).
        Raises    ValueError where no such unit exists, and for partials narrower than `to`.
        """
        if not isinstance(x, Array):
            raise _no_array(x)
        if out is not None:
            raise _no_memory(out)
        to = None if to is None else self.context(to).format
        if type(k_split) is not int or k_split < 1:
            checked_count("k_split", k_split, 1)
        if x.context.core.settings.native:
            a, b = self._of(x).core.carriers((x, y))
            return self._native(reference.matmul(a, b), x, to)
        partials = None if partials is None else find_partials(partials)
        record = self._unit("matmul", x, partials, to, unit)
        if k_split > self.target.tiles.value:
            raise ValueError(
                f"k_split={k_split} is more than the {self.target.tiles.value} tiles of "
                f"{self.target.name}; use fewer parts"
            )
        call = matmul_call(record, x, y, scale, self._subnormals, k_split)
        is_late = late and x.ndim == y.ndim == 2
        return self._product(call, to, (x.shape[0], y.shape[1]) if is_late else None)

    def conv2d(
        self, x: Array, w: Array, *, stride: Stride = 1, padding: Padding = "SAME",
        groups: int = 1, partials: Format | str | None = None, to: Format | str | None = None,
        unit: MatrixUnit | str | None = None, scale: int = 0, out: None = None,
    ) -> Array:
        """The convolution of images with kernels.

        scale     of quarters: the result is multiplied by 2**scale, the sum of both metadata.

        Rounding  inside as the unit's record says; once into `to` (default: the inputs' format).
        Raises    ValueError where no such unit exists, and for partials narrower than `to`.

        >>> from fpsim import BINARY16
        >>> from ipu.machine import Device
        >>> device = Device()
        >>> x = device.from_host([[[[1.0], [2.0], [3.0]]]], BINARY16)
        >>> w = device.from_host([[[[1.0]], [[1.0]]]], BINARY16)
        >>> device.conv2d(x, w, padding="VALID").values.tolist(), device.ledger.last.unit
        ([[[[3.0], [5.0]]]], 'SLIC_F16_F32')
        """
        if out is not None:
            raise _no_memory(out)
        to = None if to is None else self.context(to).format
        partials = None if partials is None else find_partials(partials)
        if x.format == BINARY64:
            a, b = self._of(x).core.carriers((x, w))
            return self._native(reference.conv2d(a, b, stride, padding, groups), x, to)
        traits = ConvolutionTraits.of(w.shape, groups, stride, of_outputs=False)
        record = self._unit("conv2d", x, partials, to, unit, traits)
        window = stride, padding, groups
        call = convolution_call(record, x, w, window, scale, self._subnormals)
        return self._product(call, to)

    def conv2d_input_gradient(
        self, gradient: Array, w: Array, shape: Shape, *, stride: Stride = 1,
        padding: Padding = "SAME", groups: int = 1, partials: Format | str | None = None,
        to: Format | str | None = None, unit: MatrixUnit | str | None = None, scale: int = 0,
        out: None = None,
    ) -> Array:
        """The gradient to the images, which have this shape; K are the output channels."""
        verb = "conv2d_input_gradient"
        if out is not None:
            raise _no_memory(out)
        to = None if to is None else self.context(to).format
        partials = None if partials is None else find_partials(partials)
        if gradient.format == BINARY64:
            a, b = self._of(gradient).core.carriers((gradient, w))
            values = reference.conv2d_input_gradient(a, b, shape, stride, padding, groups)
            return self._native(values, gradient, to)
        traits = ConvolutionTraits.of(w.shape, groups, stride, of_outputs=True)
        record = self._unit(verb, gradient, partials, to, unit, traits)
        window = stride, padding, groups
        call = input_gradient_call(record, gradient, w, shape, window, scale, self._subnormals)
        return self._product(call, to)

    def conv2d_weight_gradient(
        self, x: Array, gradient: Array, shape: Shape, *, stride: Stride = 1,
        padding: Padding = "SAME", groups: int = 1, partials: Format | str | None = None,
        to: Format | str | None = None, unit: MatrixUnit | str | None = None, scale: int = 0,
        late: bool = False, out: None = None,
    ) -> Array:
        """The gradient to the kernels, which have this shape; K is (batch, height, width).

        late      nobody needs the values soon; see `settling`.
        """
        verb = "conv2d_weight_gradient"
        if out is not None:
            raise _no_memory(out)
        to = None if to is None else self.context(to).format
        partials = None if partials is None else find_partials(partials)
        if x.format == BINARY64:
            a, b = self._of(x).core.carriers((x, gradient))
            values = reference.conv2d_weight_gradient(a, b, shape, stride, padding, groups)
            return self._native(values, x, to)
        record = self._unit(verb, x, partials, to, unit)
        window = stride, padding, groups
        call = weight_gradient_call(record, x, gradient, shape, window, scale, self._subnormals)
        return self._product(call, to, shape if late else None)

    # Recipes of blocks ----------------------------------------------------------------------

    def check_blocks(self, recipe: object) -> None:
        """Refuse a recipe where no unit takes blocks; see `Target.check_blocks`."""
        self.target.check_blocks(recipe)

    def account_blocks(
        self, verb: str, unit: MatrixUnit, left: BlockOperand, right: BlockOperand, useful: int,
        result: Format,
    ) -> None:
        """A product in blocks that was computed, for the ledger; see `ipu.machine.cost.blocks`."""
        self.units_used[unit.name] = unit
        row = block_row(verb, unit, left, right, useful, result, self.target, self.planner)
        self.ledger.add(self._tensor, row)

    # How products are computed --------------------------------------------------------------

    def _unit(
        self, verb: str, x: Array, partials: Format | None, to: Format | None,
        unit: MatrixUnit | str | None, traits: ConvolutionTraits | None = None,
    ) -> MatrixUnit:
        """The unit that the call names, or that the rule chooses, if the target has it."""
        if unit is not None:
            self._of(x)  # refuses a format that the target lacks
            named = with_partials(find_unit(unit), partials)
            self.target.instruction(named)
            return named
        inputs = x.context.core.settings.format
        formats = inputs, partials, to, self.partials, self.conv_partials
        key = verb, traits, *map(id, formats)
        entry = self._units.get(key)
        if entry is None:
            wanted = partials or self.partials_for(self._of(x).format, verb, to=to)
            by_rule = choose(self.target, inputs, wanted, self.options.preset, traits)
            # The formats stay alive, so that no other has their numbers.
            entry = self._units[key] = by_rule, formats
        return entry[0]

    def _native(self, values: Carrier, x: Array, to: Format | None) -> Array:
        """A product in binary64, which is in no ledger."""
        return self.cast(Array(values, self.context(x.format)), to or x.format)

    def _product(
        self, call: ProductCall, to: Format | None, late_shape: Shape | None = None
    ) -> Array:
        """Compute; products that do not trap are added to the ledger.

        late_shape    of a result that may come late.
        """
        context = call.operands[0].context
        result_format = to or context.core.settings.format
        # A unit has no results in quarters: its halves are cast, as on the machine.
        leaves = BINARY16 if result_format.name in _QUARTERS else result_format
        is_ours = getattr(context, "device", None) is self
        if not is_ours or context.core.settings.format is not leaves:
            context = self.context(leaves)
        is_nearest = self.options.disable_sr_for_amp_vertices and context.rounding.stochastic
        if late_shape is not None and self.puts_off and leaves is result_format and not is_nearest:
            x, y = call.operands
            key = call.key(x.shape, y.shape, late_shape, leaves)
            entry = self._rows.get((key, id(self.planner), id(self.conv_planner)))
            row = None if entry is None else entry[0]
            if row is not None and row.useful >= WORTH and self._late.may_have(context):
                self.units_used[call.unit.name] = call.unit
                self.ledger.add(self._tensor, row)
                return self._late.begin(call.compute, late_shape, context)
        if is_nearest:
            with self.rounding(False):
                product = call.compute(context)
            # A product has a number whatever its stores do; a generator draws nothing for it.
            context.operation += 1
        else:
            product = call.compute(context)
        result = product if leaves is result_format else self.cast(product, result_format)
        self._account(call, product)
        return result

    def _account(self, call: ProductCall, product: Array) -> None:
        x, y = call.operands
        fmt = product.context.core.settings.format
        key = call.key(x.shape, y.shape, product.shape, fmt)
        # By identity: a hash of a planner is a call of Python.
        full = key, id(self.planner), id(self.conv_planner)
        entry = self._rows.get(full)
        if entry is None:
            planner = self.planner
            if self.conv_planner is not None and call.verb.startswith("conv"):
                planner = self.conv_planner
            row = ledger_row(
                call.verb, call.unit, call.operands, product, call.work_of, self.target,
                planner, call.parts,
            )
            # The planners stay alive, so that no other has their identity.
            entry = self._rows[full] = row, (self.planner, self.conv_planner)
        self.units_used[call.unit.name] = call.unit
        self.ledger.add(self._tensor, entry[0])


@lru_cache(maxsize=64)
def _with_esr(control: FpCtl, esr: bool) -> FpCtl:
    """One object, by which contexts and programs know it."""
    return replace(control, esr=esr)


def _no_array(x: object) -> TypeError:
    kind = type(x).__name__
    return TypeError(f"x={kind} is not an Array; make one with device.from_host(values, format)")


def _is_plain(context: Context, x: Array) -> bool:
    """Whether the context counts nothing and x has no NaN, whose reading raises a flag."""
    if context.counts is not None or x.size == 0:
        return False
    largest = x.carrier.max()
    return bool(largest == largest)
