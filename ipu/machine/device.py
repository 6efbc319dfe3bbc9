"""Device: the one mutable numerical object, a target under control bits.

It holds a context for each format the target computes in. They share the seed and the number of
the next stochastic operation, count into one table per tensor, and show the registers when a trap
stops them. Arrays of a device keep its contexts, so operators on them are operations of the device.

Source    docs/semantics.md §2 (numbering), §5 (units), §6 (registers).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fpsim.array import Array
from fpsim.context import Context
from fpsim.convenience import round_to
from fpsim.core import Core, Evaluate, Out
from fpsim.elementwise.apply import apply
from fpsim.records.evidence import Fact
from fpsim.records.flags import Flags, as_integer
from fpsim.records.formats import BINARY32, Format, find_number_format
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.state.bits import BitSource
from fpsim.state.counts import Counts
from fpsim.state.state import Clock
from ipu.machine.assigned import Assigned
from ipu.machine.choice import RULE, find_partials
from ipu.machine.control import POWER_ON, RULES, FpCtl, FpSts, choices, dump, status_words
from ipu.machine.convolutions import Convolutions
from ipu.machine.cost.planner import Planner
from ipu.machine.generator import WORKERS, find_source
from ipu.machine.target import MK2, Target, find_target
from ipu.machine.units import amp
from ipu.machine.vector import operation_loops
from ipu.machine.verbs import MAXIMUM, SUMS

__all__ = ["Device", "MachineContext", "MachineCore"]


class MachineCore(Core):
    """What stands behind a format's arithmetic on a device: its control bits rule it."""

    def __init__(self, context: Context, device: Device, fmt: Format) -> None:
        rules = choices(device.control, fmt, device.f32_denormals)
        traps = rules.pop("traps")
        super().__init__(context, Settings(fmt, **rules), device.source, traps, count=False)
        self.device = device
        self.clock = device.clock
        self.counts = device.counts
        self._loops = operation_loops(fmt)
        self._by_control = {device.control: (self.settings, traps)}
        self._status_words = status_words(device.control, fmt)

    def obey(self, control: FpCtl) -> None:
        """Compute under these control bits from now on; flags, constants and arrays stay."""
        rules = self._by_control.get(control)
        if rules is None:
            policies = choices(control, self.format, self.device.f32_denormals)
            traps = policies.pop("traps")
            rules = self._by_control[control] = (Settings(self.format, **policies), traps)
        self.settings, self.traps = rules
        self._status_words = status_words(control, self.format)

    def raise_flags(self, flags: int) -> None:
        """Add the flags of an operation, and its bits under the control register to $FP_STS."""
        super().raise_flags(flags)
        self.device.raised |= self._status_words[flags]

    @property
    def flags(self) -> Flags:
        """As any context's, those of late results included."""
        self.device.settle()
        return Flags(self._status.flags)

    @flags.setter
    def flags(self, flags: Flags) -> None:
        self.device.settle()
        self._status.flags = as_integer("flags", flags)

    def clear_flags(self) -> None:
        """Lower every flag, also those of late results."""
        self.device.settle()
        super().clear_flags()

    def rounded(
        self, name: str, carriers: list[Carrier], out: Out = None, evaluate: Evaluate = apply
    ) -> Array:
        """As any context's; its cycles are added to the device's."""
        result = super().rounded(name, carriers, out, evaluate)
        self.device.vector_cycles += self._loops[name].of(result.size)
        return result

    def exact(
        self, name: str, carriers: list[Carrier], values: Carrier, element_flags: ElementFlags,
        out: Out = None,
    ) -> Array:  # fmt: skip
        """As any context's; its cycles are added to the device's."""
        result = super().exact(name, carriers, values, element_flags, out)
        self.device.vector_cycles += self._loops[name].of(result.size)
        return result

    def dump(self) -> str:
        """$FP_CTL and $FP_STS, as a tile exception prints them, and the tensor worked on."""
        device = self.device
        shown = ", ".join(filter(None, [device.counted_as, device.program]))
        return device.registers() + (f"\nin {shown}" if shown else "")


class MachineContext(Context):
    """A format's arithmetic on a device."""

    core: MachineCore
    #: What is made of a context, a device and a format.
    core_class: type[MachineCore] = MachineCore

    def __init__(self, device: Device, fmt: Format) -> None:
        self.device = device
        self.core = self.core_class(self, device, fmt)

    def in_format(self, fmt: Format | str) -> Context:
        """The device's own: each format has its own flags there."""
        return self.device.context(fmt)


class Device(Convolutions):
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
        super().__init__()
        if not isinstance(control, FpCtl):
            raise TypeError(f"control={control!r} is not a control register; use FpCtl(...)")
        if planner is not None and not isinstance(planner, Planner):
            raise TypeError(f"planner={planner!r} is not a Planner; use Planner(...), or None")
        if not isinstance(max_nan, str) or max_nan not in MAXIMUM:
            raise ValueError(f"max_nan={max_nan!r} is not known; use number or propagate")
        if not isinstance(sums, str) or sums not in SUMS:
            raise ValueError(f"sums={sums!r} is not known; use one of {', '.join(SUMS)}")
        if not isinstance(preset, str) or preset not in amp.PRESETS:
            raise ValueError(f"preset={preset!r} is not known; use one of {', '.join(amp.PRESETS)}")
        self.target = find_target(target)
        self._control = control
        self.f32_denormals = f32_denormals
        self.max_nan = max_nan
        self.sums = sums
        self.partials = find_partials(partials)
        self.conv_partials = None if conv_partials is None else find_partials(conv_partials)
        self.preset = preset
        self.planner = planner or Planner()
        self.disable_sr_for_amp_vertices = disable_sr_for_amp_vertices
        self.random = random
        self._source = find_source(random, seed, self.target)
        self.clock = Clock()
        self.vector_cycles = 0
        self.counts: Counts | None = Counts() if count else None
        self._tensor = ""
        #: $FP_STS without the bits of late results: each operation adds its own, mapped by the
        #: control register of then.
        self.raised = 0
        #: What runs on the machine now, as a trap tells it: replica, IPU, stage, micro-batch, slot.
        self.program = ""
        self._suffix = ""
        self._contexts: dict[Format, MachineContext] = {}
        choices(control, BINARY32, f32_denormals)  # refuses a wrong switch now, not at first use

    # State ----------------------------------------------------------------------------------

    def context(self, fmt: Format | str) -> MachineContext:
        """The context that computes in fmt on this device."""
        context = self._contexts.get(fmt) if isinstance(fmt, Format) else None
        if context is None:
            fmt = find_number_format(fmt)
            if fmt not in self.target.formats:
                known = ", ".join(f.name for f in self.target.formats)
                raise ValueError(
                    f"target={self.target.name} computes in {known}, not in {fmt.name}; "
                    "choose another target (hypothetical has bfloat16, mk2-fp8 has quarters, "
                    "reference has binary64)"
                )
            context = self._contexts[fmt] = MachineContext(self, fmt)
        return context

    @property
    def source(self) -> BitSource:
        """The random bits; assign to draw from another source."""
        return self._source

    @source.setter
    def source(self, source: BitSource) -> None:
        if source is self._source:
            return
        self._source = source
        for context in self._contexts.values():
            context.core.source = source

    @property
    def control(self) -> FpCtl:
        """$FP_CTL; assign to write it."""
        return self._control

    @control.setter
    def control(self, control: FpCtl) -> None:
        if control is self._control:
            return
        if control.nanoo != self._control.nanoo:  # flags of then mean other bits of $FP_STS
            self.settle()
        self._control = control
        for context in self._contexts.values():
            context.core.obey(control)

    def rounding(self, stochastic: bool) -> Assigned:
        """ESR is on or off for the operations inside, and as it was afterwards."""
        control = self._control
        if control.esr != stochastic:
            control = replace(control, esr=stochastic)
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

    @property
    def tensor(self) -> str:
        """Name of the tensor that operations work on now; see `naming`."""
        return self._tensor

    @tensor.setter
    def tensor(self, tensor: str) -> None:
        self._tensor = tensor
        if self.counts is not None:
            self.counts.tensor = self.counted_as

    def naming(self, tensor: str) -> Assigned:
        """The operations inside work on that tensor: counters and traps name it."""
        return Assigned(self, "tensor", tensor)

    @property
    def counted_as(self) -> str:
        """Name under which operations count now."""
        return self.tensor + self._suffix if self.tensor else ""

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """The operations inside repeat others: they count under TENSOR/recompute."""
        self._suffix, self.tensor = "/recompute", self.tensor
        try:
            yield
        finally:
            self._suffix, self.tensor = "", self.tensor

    @property
    def facts(self) -> dict[str, Fact]:
        """What the results of this device rest on."""
        streams = WORKERS if self.random == "xoroshiro" else {}
        return RULES | {"choice of the unit": RULE, "order of sums": SUMS[self.sums]} | streams

    # Values ---------------------------------------------------------------------------------

    def from_host(self, values: ArrayLike, fmt: Format) -> Array:
        """Values rounded to nearest on the host, then copied in: no status, no random bits."""
        context = self.context(fmt)
        rounded = round_to(values, context.format)
        return Array(np.asarray(rounded, context.format.carrier), context)

    def zeros(self, shape: int | tuple[int, ...], fmt: Format) -> Array:
        """+0 in every element."""
        return self.context(fmt).zeros(shape)
