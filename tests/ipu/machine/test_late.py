"""Late results: values, flags, numbers and the ledger of computing at once (**law**, corners)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import fpsim as fp
from fpsim import BINARY16, BINARY32, Flags
from fpsim.state import tasks
from ipu.machine import Device, FpCtl
from ipu.machine import device as device_module
from ipu.machine import late as late_results
from ipu.machine.late import Late


@pytest.fixture(autouse=True)
def two_threads(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(device_module, "WORTH", 1)
    before = fp.get_threads()
    fp.set_threads(2)
    yield
    fp.set_threads(before)


@pytest.fixture
def nobody(monkeypatch) -> None:
    """Late results wait until somebody asks."""
    monkeypatch.setattr(late_results, "offer", tasks.Task)


def operands(device, n=8, scale=200):
    values = np.random.default_rng(0).standard_normal((2, n, n)) * scale
    return [device.from_host(v, BINARY16) for v in values]


def product(device, x, y, *, late=True, times=1):
    """The last of several products; the first of a shape is never late."""
    device.matmul(x, y)
    with device.settling():
        device.puts_off = True
        results = [device.matmul(x, y, late=late) for _ in range(times)]
        return results[-1]


def state(device):
    return (
        device.status, device.context(BINARY16).flags, device.clock.operation,
        device.vector_cycles, device.ledger.table(), device.units_used,
    )


@pytest.mark.parametrize("esr", [False, True])
def test_a_late_product_is_the_product(esr):
    late, at_once = (Device(control=FpCtl(esr=esr), seed=3) for _ in range(2))
    results = [product(d, *operands(d), late=d is late, times=2) for d in (late, at_once)]
    assert [isinstance(r, Late) for r in results] == [True, False]
    assert results[0].shape == results[1].shape == (8, 8)
    assert results[0].size == 64
    assert np.array_equal(results[0].values, results[1].values)
    assert state(late) == state(at_once)


def test_a_late_weight_gradient_is_the_gradient():
    devices = [Device(control=FpCtl(esr=True)) for _ in range(2)]
    results = []
    for device in devices:
        x, y = (device.from_host(np.full((1, 4, 4, 2), v), BINARY16) for v in (0.3, 0.7))
        for late in (False, device is devices[0]):
            with device.settling():
                device.puts_off = True
                results.append(device.conv2d_weight_gradient(x, y, (3, 3, 2, 2), late=late))
    assert [isinstance(r, Late) for r in results] == [False, True, False, False]
    assert np.array_equal(results[1].values, results[3].values)
    assert state(devices[0]) == state(devices[1])


READINGS: dict[str, Callable[[Device], object]] = {
    "status": lambda device: device.status.oflo,
    "status_word": lambda device: device.status_word & 4,
    "registers": lambda device: "OFLO 0x1" in device.registers().splitlines()[1],
    "flags": lambda device: device.context(BINARY16).flags & Flags.OVERFLOW,
}


@pytest.mark.parametrize("reading", READINGS)
def test_who_reads_flags_sees_those_of_late_results(nobody, reading):
    device = Device()
    big = device.from_host([[60000.0]], BINARY16)
    device.matmul(big, big)
    device.clear_status()
    with device.settling():
        device.puts_off = True
        result = device.matmul(big, big, late=True)
        assert isinstance(result, Late)
        assert result.is_waiting
        assert READINGS[reading](device)
        assert not result.is_waiting


CLEARINGS: dict[str, Callable[[Device], None]] = {
    "clear_status": Device.clear_status,
    "clear_flags": lambda device: device.context(BINARY16).clear_flags(),
    "flags": lambda device: setattr(device.context(BINARY16), "flags", Flags.NONE),
    "status_word": lambda device: setattr(device, "status_word", 0),
}


@pytest.mark.parametrize("clearing", CLEARINGS)
def test_who_lowers_flags_lowers_those_of_late_results(nobody, clearing):
    device = Device()
    big = device.from_host([[60000.0]], BINARY16)
    device.matmul(big, big)
    with device.settling():
        device.puts_off = True
        device.matmul(big, big, late=True)
        CLEARINGS[clearing](device)
        after = device.status, device.context(BINARY16).flags
    assert (device.status, device.context(BINARY16).flags) == after
    assert after[1] == Flags.NONE or clearing == "status_word"
    assert not after[0].oflo or clearing in ("clear_flags", "flags")


@pytest.mark.parametrize("nanoo", [False, True])
def test_flags_mean_what_the_control_register_said_when_they_arose(nobody, nanoo):
    device = Device(control=FpCtl(nanoo=nanoo))
    big = device.from_host([[60000.0]], BINARY16)
    device.matmul(big, big)
    expected = device.status
    device.clear_status()
    with device.settling():
        device.puts_off = True
        device.matmul(big, big, late=True)
        device.control = FpCtl(nanoo=not nanoo)
    assert device.status == expected


@pytest.mark.parametrize(
    "choices",
    [
        {"control": FpCtl(oflo=True)}, {"count": True}, {"random": "xoroshiro"},
        {"disable_sr_for_amp_vertices": True, "control": FpCtl(esr=True)},
    ],
    ids=["trap", "count", "xoroshiro", "no SR in the AMP"],
)
def test_what_must_be_known_at_once_is_not_late(choices):
    device = Device(**choices)
    assert not isinstance(product(device, *operands(device, scale=1)), Late)


def test_without_another_thread_nothing_is_late():
    fp.set_threads(1)
    device = Device()
    assert not isinstance(product(device, *operands(device)), Late)


def test_outside_of_settling_and_in_a_new_shape_nothing_is_late():
    device = Device()
    x, y = operands(device)
    with device.settling():
        assert not isinstance(device.matmul(x, y, late=True), Late)
        device.puts_off = True
        assert not isinstance(device.matmul(x, y, late=True, to=BINARY32), Late)
        assert isinstance(device.matmul(x, y, late=True, to=BINARY32), Late)
    assert not isinstance(device.matmul(x, y, late=True), Late)


def test_a_small_product_is_not_late(monkeypatch):
    device = Device()
    monkeypatch.setattr(device_module, "WORTH", 8**3 + 1)
    assert not isinstance(product(device, *operands(device)), Late)


def test_so_many_results_wait_and_no_more(nobody):
    device = Device()
    x, y = operands(device)
    device.matmul(x, y)
    with device.settling():
        device.puts_off = True
        results = [device.matmul(x, y, late=True) for _ in range(4)]
        assert [isinstance(r, Late) for r in results] == [True, True, False, False]
        _ = results[0].values
        assert isinstance(device.matmul(x, y, late=True), Late)


def test_an_error_reaches_who_uses_the_values(monkeypatch):
    device = Device()
    x, y = operands(device)
    device.matmul(x, y)

    def fail(*_, **__):
        raise MemoryError("no room")

    with monkeypatch.context() as patched, device.settling():
        device.puts_off = True
        patched.setattr("fpsim.linalg.matmul", fail)
        result = device.matmul(x, y, late=True)
        with pytest.raises(MemoryError, match="no room"):
            _ = result.values
        device._late.clear()
    assert device.matmul(x, y).shape == (8, 8)


def test_a_context_apart_computes_the_next_operations_with_flags_of_its_own():
    context = fp.Context(BINARY16, rounding=fp.SR(), seed=4, count=True)
    x = context.array([0.1, 0.2, 60000.0])
    context.clear_flags()
    context.traps = Flags.OVERFLOW
    number, other = context.operation, late_results.apart(context)
    assert other.divide(x, 3.0).values.tolist() == context.divide(x, 3.0).values.tolist()
    assert other.core.settings is context.core.settings
    assert other.add(x, x).values[2] == np.inf
    assert Flags.OVERFLOW in other.flags
    assert Flags.OVERFLOW not in context.flags
    assert (context.operation, other.operation) == (number + 1, number + 2)
    assert other.counts is None


def test_a_context_apart_of_a_shard_has_its_random_bits():
    context = fp.Context(BINARY16, rounding=fp.SR(), seed=4)
    x = context.array([0.1] * 64)
    context.core.clock.first = 1000
    other = late_results.apart(context)
    assert other.divide(x, 3.0).values.tolist() == context.divide(x, 3.0).values.tolist()
