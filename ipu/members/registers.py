"""Registers: flags, status, counts and cycles that additions leave on a stand-in of a replica.

A sum over replicas adds each chunk under the replica of the chunk's number. Where another process
computes that addition, it does so on a stand-in; what the addition has raised there is brought to
the replica later, so that each replica's registers are those of one process.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fpsim.records.flags import Flags
from ipu.learn.address import Numbering
from ipu.machine.device import Device

__all__ = ["add_registers", "from_text", "take_registers", "to_text"]

Registers = dict[str, Any]


def take_registers(device: Device) -> Registers:
    """What operations have left on a device, which has nothing of it afterwards."""
    flags = {}
    for fmt in device.target.formats:
        context = device.context(fmt)
        if context.flags:
            flags[fmt.name] = int(context.flags)
    counts = [[tensor, name, dict(row)] for (tensor, name), row in (device.counts or {}).items()]
    taken = {
        "flags": flags, "status": device.status_word, "counts": counts,
        "cycles": device.vector_cycles,
    }
    device.clear_status()
    device.vector_cycles = 0
    if device.counts is not None:
        device.counts.clear()
    return taken


def add_registers(device: Device, taken: Registers) -> None:
    """Add what was taken elsewhere."""
    by_name = {fmt.name: fmt for fmt in device.target.formats}
    for name, flags in taken["flags"].items():
        context = device.context(by_name[name])
        context.flags = Flags(int(context.flags) | flags)
    device.status_word |= taken["status"]
    device.vector_cycles += taken["cycles"]
    if device.counts is not None:
        for tensor, name, row in taken["counts"]:
            device.counts.setdefault((tensor, name), Counter()).update(row)


def to_text(stand_ins: Mapping[int, Numbering]) -> bytes:
    """The registers of all stand-ins, by replica; they have nothing of it afterwards."""
    rows = {replica: take_registers(n.device) for replica, n in stand_ins.items()}
    return json.dumps({replica: row for replica, row in rows.items() if any(row.values())}).encode()


def from_text(text: bytes) -> dict[int, Registers]:
    """What `to_text` has written."""
    return {int(replica): row for replica, row in json.loads(text).items()}
