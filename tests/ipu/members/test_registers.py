"""Registers of stand-ins (law: taken and added, they are those of one device)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16, BINARY32
from ipu.learn.address import Numbering
from ipu.machine import Device
from ipu.members.registers import add_registers, from_text, take_registers, to_text


def used(values, fmt=BINARY16):
    device = Device(count=True)
    compute(device, values, fmt)
    return device


def compute(device, values, fmt):
    x = device.from_host(values, fmt)
    with device.naming("reduce"):
        device.add(x, x)


def left(device):
    flags = {f.name: int(device.context(f).flags) for f in device.target.formats}
    counts = {key: +row for key, row in device.counts.items()}
    return flags, device.status_word, counts, device.vector_cycles


def test_registers_of_two_devices_are_those_of_one():
    both = used([60000.0, 1e-7, 0.0])
    compute(both, [1.0, np.nan], BINARY32)
    first, second = used([60000.0, 1e-7, 0.0]), used([1.0, np.nan], BINARY32)
    texts = to_text({3: Numbering(second), 4: Numbering(used([]))})
    taken = from_text(texts)
    add_registers(first, taken[3])
    assert left(first) == left(both)
    assert left(second) == left(Device(count=True))


def test_nothing_is_taken_twice():
    device = used([60000.0])
    assert take_registers(device)["status"]
    assert not any(take_registers(device).values())


def test_devices_that_do_not_count_need_no_counts():
    device = Device()
    add_registers(device, take_registers(used([60000.0])))
    assert device.status.oflo
