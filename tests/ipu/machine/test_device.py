"""The device: the hardware's measured behaviour (golden), traps, numbering, counters, targets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, F143, Context, Flags, FloatingPointTrap
from ipu.machine import ALL_ON, MK2_FP8, Device, FpCtl, FpSts
from ipu.machine.control import STOCHASTIC

MEASURED = pytest.mark.source("TensorFlow plugin: floating_point_control_bits_test.py")


INT_MIN = -2147483648


def half(device, *values):
    return device.from_host(list(values), BINARY16)


def single(device, *values):
    return device.from_host(list(values), BINARY32)


@MEASURED
def test_nan_becomes_the_smallest_integer_or_stops():
    device = Device()
    assert device.to_integers(half(device, math.nan), "int32").tolist() == [INT_MIN]
    assert device.status == FpSts(inv=True)
    strict = Device(control=FpCtl(inv=True))
    with pytest.raises(FloatingPointTrap):
        strict.to_integers(half(strict, math.nan), "int32")


@MEASURED
@pytest.mark.source("S4-39")
@pytest.mark.parametrize("x", [10000.0, 8.0])
def test_half_divided_by_zero_is_nan_with_div0_alone(x):
    device = Device()
    result = device.divide(half(device, x), half(device, 0.0))
    assert math.isnan(result.values[0])
    assert device.status == FpSts(div0=True)
    strict = Device(control=FpCtl(div0=True))
    with pytest.raises(FloatingPointTrap, match="DIVBYZERO"):
        strict.divide(half(strict, x), half(strict, 0.0))


@MEASURED
def test_single_divided_by_zero_is_infinity_with_div0_alone():
    device = Device()
    assert device.divide(single(device, 8.0), single(device, 0.0)).values.tolist() == [math.inf]
    assert device.status == FpSts(div0=True)
    strict = Device(control=FpCtl(div0=True))
    with pytest.raises(FloatingPointTrap, match="DIVBYZERO"):
        strict.divide(single(strict, 8.0), single(strict, 0.0))


@MEASURED
@pytest.mark.source("S4-38")
def test_half_overflow_saturates_or_is_nan_or_stops():
    for control, expected, raised in (
        (FpCtl(), 65504.0, FpSts(oflo=True)),
        (FpCtl(nanoo=True), math.nan, FpSts(inv=True, oflo=True)),
    ):
        device = Device(control=control)
        big = half(device, 10000.0)
        np.testing.assert_array_equal(device.multiply(big, big).values, [expected])
        assert device.status == raised
    strict = Device(control=FpCtl(oflo=True))
    with pytest.raises(FloatingPointTrap, match="OVERFLOW"):
        strict.multiply(half(strict, 10000.0), half(strict, 10000.0))


@pytest.mark.source("poplibs: FloatPointBehaviour.cpp")
def test_single_overflow_is_infinity_and_stops_if_armed():
    device = Device()
    huge = single(device, 1e30)
    assert device.multiply(huge, huge).values.tolist() == [math.inf]
    assert device.status == FpSts(oflo=True)
    strict = Device(control=FpCtl(oflo=True))
    with pytest.raises(FloatingPointTrap):
        strict.multiply(single(strict, 1e30), single(strict, 1e30))


@MEASURED
@pytest.mark.source("S4-13")
def test_one_and_a_thousandth_in_4096_lanes():
    """P(up) is 0.0244, so 100 of 4096 are expected with standard deviation 9.9; the band of ±60 is
    six of them (false alarm below 1e-8)."""
    for esr, distinct in ((False, 1), (True, 2)):
        device = Device(control=FpCtl(esr=esr))
        ones = device.from_host(np.ones(4096), BINARY16)
        result = device.add(ones, half(device, 1e-3)).values
        assert len(set(result.tolist())) == distinct
    neighbours = {1.0009765625, 1.001953125}
    assert set(result.tolist()) == neighbours
    assert abs(int((result == max(neighbours)).sum()) - 0.0244 * 4096) < 60


@MEASURED
@pytest.mark.source("S4-12")
def test_a_weight_of_1000_does_not_feel_250_small_steps():
    device = Device()
    w, step = half(device, 1000.0), half(device, 1e-3)
    for _ in range(250):
        w = device.subtract(w, step)
    assert w.values.tolist() == [1000.0]


def test_single_subnormals_are_flushed_unless_switched():
    tiny = 2.0**-130
    assert Device().add(single(Device(), tiny), 0.0).values.tolist() == [0.0]
    ieee = Device(f32_denormals="ieee")
    assert ieee.add(single(ieee, tiny), 0.0).values.tolist() == [tiny]


def test_half_subnormals_are_kept():
    device = Device()
    assert device.multiply(half(device, 2.0**-14), 0.5).values.tolist() == [2.0**-15]


def test_an_infinite_single_stays_infinite_as_half():
    device = Device()
    assert device.cast(single(device, math.inf), BINARY16).values.tolist() == [math.inf]
    assert device.status == FpSts()


def test_quarter_casts_saturate_or_are_nan_and_infinity_is_always_nan():
    for nanoo, expected in ((False, 240.0), (True, math.nan)):
        device = Device(MK2_FP8, FpCtl(nanoo=nanoo))
        result = device.cast(half(device, 1000.0, math.inf), F143).values
        np.testing.assert_array_equal(result, np.float32([expected, math.nan]))


def test_reading_a_nan_raises_inv_and_max_returns_the_number():
    device = Device()
    x, y = half(device, math.nan), half(device, 2.0)
    assert device.maximum(x, y).values.tolist() == [2.0]
    assert device.status == FpSts(inv=True)
    propagating = Device(max_nan="propagate")
    assert math.isnan(propagating.maximum(x, y).values[0])


def test_relu_passes_nan_on():
    device = Device()
    result = device.relu(half(device, math.nan, -1.0, 3.0)).values
    np.testing.assert_array_equal(result, np.float32([math.nan, 0.0, 3.0]))


@pytest.mark.source("S4-43")
def test_sums_of_halves_accumulate_in_single():
    """In any order: a mean whose sum, and a mean of squares whose terms, are beyond binary16."""
    device = Device()
    x = device.from_host([[2048.0]] * 64, BINARY16)
    assert device.reduce_sum(x, axis=0, scale=1 / 64).values.tolist() == [[2048.0]]
    assert device.reduce_squares(x, (0,), scale=1 / 64).values.tolist() == [[2.0**22]]
    assert device.status == FpSts()
    assert device.reduce_sum(x, axis=0).values.tolist() == [[65504.0]]
    assert device.status == FpSts(oflo=True)
    ones = device.from_host([[1.0]] * 4096, BINARY16)
    assert device.reduce_sum(ones, axis=0).values.tolist() == [[4096.0]]


def test_reduce_max_of_nan_raises_inv():
    device = Device()
    x = device.from_host([[1.0, math.nan, 3.0]], BINARY32)
    assert device.reduce_max(x, axis=1).values.tolist() == [[3.0]]
    assert device.status == FpSts(inv=True)


@pytest.mark.source("S4-39")
def test_a_trap_names_the_first_guilty_element_and_publishes_nothing():
    device = Device(control=FpCtl(oflo=True), count=True)
    x = device.from_host([[1.0, 300.0], [400.0, 2.0]], BINARY16)
    out = device.zeros((2, 2), BINARY16)
    with device.naming("layer/update"), pytest.raises(FloatingPointTrap) as caught:
        device.multiply(x, x, out=out)
    trap = caught.value
    assert (trap.index, trap.operands) == ((0, 1), (300.0, 300.0))
    assert "OFLO 0x1" in trap.dump.splitlines()[1]
    assert trap.dump.splitlines()[2] == "in layer/update"
    assert not out.values.any()
    assert device.counts == {}
    assert device.status == FpSts(oflo=True)


def test_status_is_sticky_until_cleared():
    device = Device()
    device.divide(half(device, 1.0), half(device, 0.0))
    device.add(half(device, 1.0), half(device, 1.0))
    assert device.status == FpSts(div0=True)
    device.clear_status()
    assert device.status == FpSts()


def test_stochastic_operations_are_numbered_over_the_whole_device():
    device = Device(MK2_FP8, FpCtl(esr=True), seed=7)
    x = device.from_host(np.linspace(0, 1, 50), BINARY16)
    device.add(x, 1e-3)
    device.add(device.cast(x, BINARY32), 1e-3)
    assert device.clock.operation == 1
    device.cast(x, F143)
    result = device.add(x, 1e-3)
    assert device.clock.operation == 3
    alone = Context(BINARY16, rounding=STOCHASTIC[BINARY16], seed=7, overflow="saturate")
    alone.operation = 2
    assert (result.codes() == alone.add(alone.wrap(x.values), 1e-3).codes()).all()


def test_a_trap_leaves_the_number_alone():
    device = Device(control=ALL_ON)
    with pytest.raises(FloatingPointTrap):
        device.multiply(half(device, 60000.0), 2.0)
    assert device.clock.operation == 0


def test_operators_and_conversions_of_device_arrays_are_the_device_s():
    device = Device(control=FpCtl(nanoo=True))
    x = half(device, 60000.0)
    assert math.isnan((x + x).values[0])
    assert device.status == FpSts(inv=True, oflo=True)
    assert x.to(BINARY32).context is device.context(BINARY32)


@pytest.mark.source("S4-28")
def test_counters_tell_tensors_and_operations_apart():
    device = Device(count=True)
    gradient = half(device, 2.0**-24, 1.0)
    with device.naming("dense/gradient"):
        device.multiply(gradient, 0.25)
    device.add(gradient, 1.0)
    row = device.counts["dense/gradient", "multiply"]
    assert (row["results"], row["zeros"], row["UNDERFLOW"]) == (2, 1, 1)
    assert device.counts["", "add"]["zeros"] == 0


def test_what_is_computed_again_counts_apart():
    device = Device(count=True)
    x = half(device, 1.0)
    with device.naming("dense"), device.recomputing():
        device.add(x, 1.0)
        with device.naming("bias"):
            device.add(x, 1.0)
    device.add(x, 1.0)
    names = ["dense/recompute", "bias/recompute", ""]
    assert [device.counts[name, "add"]["results"] for name in names] == [1, 1, 1]
    assert device.tensor == device.counts.tensor == ""


def test_counting_changes_no_bit():
    x = np.linspace(-3, 3, 200)
    results = []
    for count in (False, True):
        device = Device(control=FpCtl(esr=True), count=count, seed=3)
        a = device.from_host(x, BINARY16)
        results.append(device.divide(device.multiply(a, a), 3.0).codes())
    assert (results[0] == results[1]).all()


def test_unknown_switches_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="preset='fast' is not known; use one of window"):
        Device(preset="fast")
    with pytest.raises(ValueError, match="max_nan='first' is not known"):
        Device(max_nan="first")


def test_flags_of_operations_are_ieee_s_underneath():
    device = Device()
    device.multiply(half(device, 2.0**-24), 0.5)
    assert device.context(BINARY16).flags == Flags.UNDERFLOW | Flags.INEXACT
    assert device.status == FpSts()


def test_rounding_is_switched_for_what_is_inside_and_back():
    device = Device(control=FpCtl(nanoo=True), seed=4)
    x = half(device, *[1.0] * 64)
    with device.rounding(True):
        assert device.control == FpCtl(nanoo=True, esr=True)
        assert len(set(device.add(x, 1e-3).values.tolist())) == 2
        with device.rounding(False):
            assert len(set((x + 1e-3).values.tolist())) == 1
        assert len(set((x + 1e-3).values.tolist())) == 2
    assert device.control == FpCtl(nanoo=True)
    assert len(set(device.add(x, 1e-3).values.tolist())) == 1
    assert device.clock.operation == 2
    with pytest.raises(RuntimeError), device.rounding(True):
        raise RuntimeError
    assert not device.control.esr


def test_a_written_control_register_arms_the_contexts_that_are_there():
    device = Device()
    big = half(device, 60000.0)
    assert (big + big).values.tolist() == [65504.0]
    device.control = FpCtl(oflo=True)
    with pytest.raises(FloatingPointTrap, match="OVERFLOW"):
        big + big


def test_status_is_a_record_that_a_written_control_register_does_not_change():
    device = Device(control=FpCtl(nanoo=True))
    device.multiply(half(device, 1e4), half(device, 1e4))
    assert device.status == FpSts(inv=True, oflo=True)
    device.control = FpCtl()
    assert device.status == FpSts(inv=True, oflo=True)
    device.clear_status()
    device.multiply(half(device, 1e4), half(device, 1e4))
    assert device.status == FpSts(oflo=True)
    device.control = FpCtl(nanoo=True)
    assert device.status == FpSts(oflo=True)


def test_an_operation_adds_its_bits_also_where_the_flag_is_up_already():
    device = Device()
    device.multiply(half(device, 1e4), half(device, 1e4))
    assert device.status == FpSts(oflo=True)
    device.control = FpCtl(nanoo=True)
    device.multiply(half(device, 1e4), half(device, 1e4))
    assert device.status == FpSts(inv=True, oflo=True)


def test_a_trap_is_in_the_status_and_only_clearing_lowers_it():
    device = Device(control=FpCtl(oflo=True))
    with pytest.raises(FloatingPointTrap):
        device.multiply(half(device, 1e4), half(device, 1e4))
    device.control = FpCtl()
    device.context(BINARY16).clear_flags()
    assert device.status == FpSts(oflo=True)
    assert "OFLO 0x1" in device.registers().splitlines()[1]
    device.clear_status()
    assert device.status == FpSts()
    assert device.context(BINARY16).flags == 0
