"""The arithmetic of a device in one format: a context that its control bits rule.

It adds what it raises to the device's status register and its cycles to the device's account, and
shows the registers when a trap stops it.

Source    docs/semantics.md §6 (registers).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from fpsim.context import Context
from fpsim.core import Core
from fpsim.elementwise.notes import CallNotes
from fpsim.elementwise.recording import Recording
from fpsim.records.flags import Flags, as_integer
from fpsim.records.formats import Format
from fpsim.records.settings import Settings
from fpsim.state.bits import BitSource
from fpsim.state.counts import Counts
from fpsim.state.state import Clock
from ipu.machine.control import FpCtl, choices, status_words
from ipu.machine.options import DeviceOptions
from ipu.machine.vector import operation_loops

__all__ = ["DeviceLike", "MachineContext", "MachineCore"]

#: Control registers whose meaning a format remembers.
_KEPT = 64


class DeviceLike(Protocol):
    """What a context knows of its device; `Device` says what each is."""

    options: DeviceOptions
    clock: Clock
    counts: Counts | None
    raised: int
    vector_cycles: int
    recording: Recording | None
    notes: CallNotes | None
    program: str

    @property
    def control(self) -> FpCtl: ...
    @property
    def source(self) -> BitSource: ...
    @property
    def counted_as(self) -> str: ...
    def settle(self) -> None: ...
    def registers(self) -> str: ...
    def context(self, fmt: Format | str) -> Context: ...


@lru_cache(maxsize=256)
def _rules(control: FpCtl, fmt: Format, f32_denormals: str) -> tuple[Settings, Flags]:
    """Settings and traps of a format; all devices share one object, by which kernels are known."""
    policies = choices(control, fmt, f32_denormals)
    traps = policies.pop("traps")
    return Settings(fmt, **policies), traps


class MachineCore(Core):
    """What stands behind a format's arithmetic on a device: its control bits rule it."""

    def __init__(self, context: Context, device: DeviceLike, fmt: Format) -> None:
        rules = _rules(device.control, fmt, device.options.f32_denormals)
        super().__init__(context, rules[0], device.source, rules[1], count=False)
        self.device = device
        self.clock = device.clock
        self.counts = device.counts
        self.loops, self.meter = operation_loops(fmt), device
        self._status_words = status_words(device.control, fmt)
        #: What control bits mean, by their identity, and the bits, which stay alive.
        self._by_control = {id(device.control): (rules, self._status_words, device.control)}

    def obey(self, control: FpCtl) -> None:
        """Compute under these control bits from now on; flags, constants and arrays stay."""
        meaning = self._by_control.get(id(control))
        if meaning is None:
            rules = _rules(control, self.format, self.device.options.f32_denormals)
            if len(self._by_control) >= _KEPT:
                self._by_control.clear()
            meaning = rules, status_words(control, self.format), control
            self._by_control[id(control)] = meaning
        (self.settings, self.traps), self._status_words, _ = meaning

    def raise_flags(self, flags: int) -> None:
        """Add the flags of an operation, and its bits under the control register to $FP_STS."""
        if type(flags) is not int or not 0 <= flags < 32:
            flags = as_integer("flags", flags)
        self._status.flags |= flags
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

    def __init__(self, device: DeviceLike, fmt: Format) -> None:
        self.device = device
        self.core = self.core_class(self, device, fmt)

    def in_format(self, fmt: Format | str) -> Context:
        """The device's own: each format has its own flags there."""
        return self.device.context(fmt)
