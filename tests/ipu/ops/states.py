"""All that a device tells of what it has done, for comparisons of two ways to do it."""

from __future__ import annotations

from fpsim import BFLOAT16, BINARY16, BINARY32
from ipu.machine import Device

__all__ = ["counted", "state"]


def state(device: Device) -> tuple[object, ...]:
    """Flags by format, status, cycles, the number of the next operation, and counters."""
    formats = [fmt for fmt in (BINARY16, BFLOAT16, BINARY32) if fmt in device.target.formats]
    flags = [device.context(fmt).flags for fmt in formats]
    return flags, device.status, device.vector_cycles, device.clock.operation, counted(device)


def counted(device: Device) -> object:
    """Counters in the order of their rows, and flags in the order of time."""
    counts = device.counts
    if counts is None:
        return None
    rows = [(key, list(row.items())) for key, row in counts.items()]
    return rows, None if counts.raised is None else list(counts.raised.items())
