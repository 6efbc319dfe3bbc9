"""Recorded operations run on other arrays: against the operations themselves (differential)."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from fpsim import BINARY16, Array
from fpsim.elementwise.recorded_program import RecordedJob, RecordedProgram, are_apart
from fpsim.elementwise.recording import Recording
from fpsim.state.threads import get_threads, set_threads
from ipu.machine import Device
from ipu.machine.control import FpCtl


def recorded(device: Device, function, inputs: list[Array]) -> RecordedProgram | None:
    device.recording = recording = Recording()
    try:
        results = function(device, *inputs)
    finally:
        device.recording = None
    return RecordedProgram.of(recording, [x.carrier for x in inputs], [x.carrier for x in results])


def address(x: np.ndarray) -> int:
    return int(x.ctypes.data)


def run(
    program: RecordedProgram, inputs, outputs, numbers=(), seed: int = 0, first: int = 0
) -> list[int]:
    size = inputs[0].size
    starts = [tuple(map(address, arrays)) for arrays in (inputs, outputs)]
    return program.run([RecordedJob(*starts, size, first, numbers)], seed)


def halves(n: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [np.float32(np.float16(rng.standard_normal(n))) for _ in range(count)]


def one(device: Device) -> Array:
    return device.context(BINARY16).ones((1,))


def test_an_output_waits_while_the_input_that_it_replaces_is_read():
    def swapped(device, x, y):
        return device.add(y, 1.0), device.multiply(device.add(x, 0.5), y)

    device = Device()
    program = recorded(device, swapped, [one(device), one(device)])
    x, y = halves(9000, 2)
    expected = [z.carrier for z in swapped(
        device, *(Array(a.copy(), device.context(BINARY16)) for a in (x, y))
    )]
    run(program, [x, y], [x, y])
    assert [a.tobytes() for a in (x, y)] == [a.tobytes() for a in expected]


def test_one_value_may_be_two_outputs_and_an_input_another():
    def doubled(device, x):
        z = device.add(x, x)
        return z, z, x

    device = Device()
    program = recorded(device, doubled, [one(device)])
    (x,) = halves(50, 1)
    outputs = [np.empty_like(x) for _ in range(3)]
    run(program, [x], outputs)
    assert [a.tolist() for a in outputs] == [(x + x).tolist()] * 2 + [x.tolist()]


def test_a_constant_may_be_the_first_operand():
    device = Device()
    program = recorded(device, lambda d, x: (d.subtract(1.0, x),), [one(device)])
    (x,) = halves(20, 1)
    out = np.empty_like(x)
    run(program, [x], [out])
    assert out.tolist() == np.float32(np.float16(1) - np.float16(x)).tolist()


def test_flags_are_those_of_each_operation():
    device = Device()
    program = recorded(
        device, lambda d, x, y: (d.divide(d.multiply(x, 3.0), y),), [one(device), one(device)]
    )
    x, y = np.float32([1, 2, 60000]), np.float32([2, 4, 1])
    assert run(program, [x, y], [np.empty_like(x)]) == [5, 0]


def test_what_is_not_noted_is_refused():
    device = Device()
    for function in (
        lambda d, x: (d.exp(x),),  # more than one kernel
        lambda d, x: (d.negative(x),),
        lambda d, x: (d.add(x, x.like(-x.carrier)),),  # an array from elsewhere
        lambda d, x: (x.like(x.carrier + 1),),
        lambda d, x: (d.add(x.reshape(1, 1), 1.0),),
    ):
        assert recorded(device, function, [one(device)]) is None


@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("number", [3.0, 0.25])
def test_a_single_number_is_part_of_a_program_unless_chance_rounds_it(number, esr):
    device = Device(control=FpCtl(esr=esr), seed=5)

    def scaled(d, x):
        return (d.multiply(x, d.divide(d.context(BINARY16).full((), 1.0), number)),)

    program = recorded(device, scaled, [one(device)])
    (x,) = halves(20, 1)
    values = set()
    for n in range(30 if esr else 1):
        device.clock.operation = n
        expected = scaled(device, Array(x, device.context(BINARY16)))[0].carrier
        out = np.empty_like(x)
        run(program, [x], [out], (n, n + 1), seed=5)
        assert out.tobytes() == expected.tobytes()
        values.add(out.tobytes())
    assert (len(values) > 1) == esr or number == 0.25


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("first", [0, 5, 40])
def test_random_bits_are_those_of_the_elements_places(threads, first):
    device = Device(control=FpCtl(esr=True), seed=9)
    (x,) = halves(300_000, 1)
    program = recorded(device, lambda d, x: (d.multiply(d.multiply(x, x), 0.1),), [one(device)])
    device.clock.operation = 70
    with device.shard(first):
        context = device.context(BINARY16)
        array = Array(x, context)
        expected = device.multiply(device.multiply(array, array), 0.1).carrier
    before, out = get_threads(), np.empty_like(x)
    set_threads(threads)
    try:
        run(program, [x], [out], (70, 71), seed=9, first=first)
    finally:
        set_threads(before)
    assert out.tobytes() == expected.tobytes()


_KEPT_BY = """
import numpy as np
from fpsim.elementwise.apply import KernelCall, apply
from fpsim.kernels.elementwise.sequence import address_of
from fpsim.records.formats import BINARY16
from fpsim.records.settings import Settings

settings, x = Settings(BINARY16), np.float32([3])
for name in {names}:
    apply(name, (x, x), settings)
calls = [KernelCall(name, settings, 4, 1, supplied=False) for name in {names}]
print(len({{address_of(c.loop, is_wide=c.constants.dtype == np.uint64) for c in calls}}))
"""


def test_kernels_that_two_processes_have_kept_are_told_apart(tmp_path):
    """Both compile theirs first, so numba gives the two one name."""
    def run(*names: str) -> str:
        environment = os.environ | {"FPSIM_CACHE_DIR": str(tmp_path)}
        program = [sys.executable, "-c", _KEPT_BY.format(names=names)]
        return subprocess.run(
            program, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert run("add").split() == run("multiply").split() == ["1"]
    assert run("add", "multiply").split() == ["2"]


def test_arrays_that_overlap_in_part_are_not_apart():
    assert are_apart([0, 400], [0, 800], 100)
    assert not are_apart([0, 396], [], 100)
    assert not are_apart([0, 0], [400], 100)
    assert not are_apart([0], [400, 400], 100)
    assert are_apart([], [], 100)
