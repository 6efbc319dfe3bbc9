"""Recordings on rows as programs: which are none, and where a program has no result (differential).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, Array
from fpsim.elementwise.recording import Recording
from fpsim.products.row_program import RowProgram, lies
from ipu.machine import Device
from ipu.machine.control import FpCtl

Function = Callable[..., tuple[Array, ...]]


def program_of(device: Device, function: Function, inputs: Sequence[Array]) -> RowProgram | None:
    device.recording = recording = Recording()
    try:
        results = function(device, *inputs)
    finally:
        device.recording = None
    return RowProgram.of(recording, [x.carrier for x in inputs], [x.carrier for x in results])


def values(device: Device, *shapes: tuple[int, ...], fmt=BINARY16, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [device.from_host(rng.standard_normal(shape), fmt) for shape in shapes]


PROGRAMS: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "a number of each row": (
        lambda d, x, y: (d.multiply(x, y), d.add(y, 1.0)), [(6, 9), (6, 1)]
    ),
    "a number of each column": (lambda d, x, y: (d.subtract(y, x),), [(6, 9), (9,)]),
    "a constant first": (lambda d, x: (d.divide(1.0, x),), [(6, 9)]),
    "one of three axes": (
        lambda d, x: (d.add(x, d.reduce_sum(x, (1, 3), scale=0.25)),), [(5, 1, 1, 140)]
    ),
    "two axes together": (lambda d, x: (d.reduce_squares(x, (1, 2)),), [(5, 7, 11)]),
    "the largest": (lambda d, x: (d.subtract(x, d.reduce_max(x, -1)),), [(6, 9)]),
    "a function of sums": (
        lambda d, x: (d.log(d.reduce_squares(x, (1,))), d.exp(d.cast(x, BINARY32))), [(6, 9)]
    ),
    "one that replaces another": (
        lambda d, x: (d.multiply(y := d.add(x, 1.0), y, out=y),), [(6, 9)]
    ),
}


@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_was_recorded(name, esr):
    function, shapes = PROGRAMS[name]
    device = Device(control=FpCtl(esr=esr), seed=4)
    program = program_of(device, function, values(device, *shapes))
    assert program is not None
    inputs = values(device, *shapes, seed=1)
    start = device.clock.operation
    device.clear_status()
    expected = function(device, *inputs)
    numbers = range(start, device.clock.operation)
    outcome = program.run([x.carrier for x in inputs], 4, numbers)
    assert [a.tobytes() for a in outcome.results] == [x.carrier.tobytes() for x in expected]
    assert program.n_draws == len(numbers)
    for fmt in (BINARY16, BINARY32):
        flags = [f for s, f in outcome.flags.values() if s.format == fmt]
        assert int(device.context(fmt).flags) == int(np.bitwise_or.reduce([0, *flags]))


def _other_memory(device: Device, x: Array) -> tuple[Array]:
    return (device.add(x, x.like(x.carrier + 1)),)


@pytest.mark.parametrize("function", [
    lambda d, x: (d.reduce_sum(x, 0),),  # along the rows
    lambda d, x: (d.negative(x),),
    lambda d, x: (d.rsqrt(x),),  # without a kernel
    lambda d, x: (d.add(x, x.like(x.carrier[:, :1])),),  # a part of an input
    lambda d, x: (d.add(x, 1.0, out=x),),  # in the place of an input
    lambda d, x: (d.add(x, x.like(x.carrier.T.copy().T)),),
    lambda d, x: (x,),
    _other_memory,
])
def test_what_is_no_program_on_rows(function):
    device = Device()
    assert program_of(device, function, values(device, (6, 9))) is None


def test_sums_along_different_axes_are_no_program():
    device = Device()
    inputs = values(device, (6, 3, 5))
    assert program_of(
        device, lambda d, x: (d.reduce_sum(x, (1, 2)), d.reduce_sum(x, (2,))), inputs
    ) is None


def test_chains_are_no_program():
    device = Device(sums="chain")
    inputs = values(device, (6, 9))
    assert program_of(device, lambda d, x: (d.reduce_sum(x, 1),), inputs) is None


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_sum_that_the_processor_would_not_tell_has_no_result(number):
    device = Device()
    inputs = values(device, (6, 9))
    program = program_of(device, lambda d, x: (d.reduce_sum(x, 1),), inputs)
    carrier = inputs[0].carrier.copy()
    assert program.run([carrier], 0, ()) is not None
    carrier[3, 4] = number
    assert program.run([carrier], 0, ()) is None


def test_how_operands_lie():
    assert lies((), (3, 4)) == "single"
    assert lies((3, 1), (3, 4)) == lies((3, 1, 1), (3, 4, 5)) == "row"
    assert lies((4,), (3, 4)) == lies((1, 1, 4), (3, 1, 4)) == "column"
    assert lies((3, 1, 5), (3, 4, 5)) == ""
    assert lies((1, 4), (1, 4)) == "full"
