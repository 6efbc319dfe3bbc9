"""What an action asks of a device is noted; memory that calls may read (law)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16
from ipu.machine import Device
from ipu.run.noted import KnownMemory, in_order, noted_on


def test_ranges_that_overlap_are_one():
    rng = np.random.default_rng(0)
    memory, is_known = KnownMemory(), np.zeros(200, bool)
    numbers = np.zeros(200, np.uint8)
    origin = np.lib.array_utils.byte_bounds(numbers)[0]
    for _ in range(60):
        start, size = rng.integers(180), rng.integers(6)
        memory.add(origin + start, origin + start + size)
        is_known[start : start + size] = True
        assert memory.n_bytes == is_known.sum()
        first = rng.integers(190)
        part = slice(first, first + rng.integers(1, 3))
        if not memory.holds(numbers[part]):
            # Ranges side by side may belong to two arrays, and no array lies in both.
            assert part.stop - part.start == 2 or not is_known[part].all()
        else:
            assert is_known[part].all()


def test_an_action_is_noted_with_its_rows_and_cycles():
    device = Device()
    x = device.from_host(np.ones((4, 4)), BINARY16)
    result, work = noted_on(device, lambda: device.add(device.matmul(x, x), x))
    runs, numbers = in_order(work.notes)
    assert device.notes is None
    assert (len(runs), numbers, work.notes.is_whole) == (2, [], True)
    assert [row.verb for _, row in work.rows] == ["matmul"]
    assert work.cycles == device.vector_cycles > 0
    x.carrier[...] = 2
    assert all(again(np.zeros(0, np.uint64), first) for again, first in runs)
    assert (result.carrier == 18).all()
