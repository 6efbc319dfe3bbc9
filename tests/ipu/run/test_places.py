"""Named addresses (golden, law)."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.machine import Device, FpCtl
from ipu.run.places import Place, PlaceClock, number

HERE = Place(0, 0, 0, "net.conv1", "forward")


def test_the_known_answer():
    assert HERE.text == "0/0/0/net.conv1/forward"
    assert number(HERE, 0) == 15385820920640642868


def test_numbers_have_the_top_bit_and_differ():
    numbers = {number(HERE._replace(step=s), k) for s in range(10) for k in range(10)}
    assert len(numbers) == 100
    assert all(n >> 63 == 1 for n in numbers)


def test_a_device_counts_the_operations_of_each_place():
    device, clock = Device(control=FpCtl(esr=True)), PlaceClock()
    device.clock = clock
    x = device.from_host(np.linspace(0, 1, 50), BINARY16)
    clock.place = HERE
    first = device.multiply(x, 0.3)
    clock.place = HERE._replace(layer="net.conv2")
    device.multiply(x, 0.3)
    assert clock.k == 1
    clock.place = HERE
    assert clock.k == 1
    second = device.multiply(x, 0.3)
    assert not np.array_equal(first.carrier, second.carrier)
    device.negative(x)  # rounds nothing
    assert clock.k == 2


def test_replaying_draws_the_same_and_leaves_k_alone():
    device, clock = Device(control=FpCtl(esr=True)), PlaceClock()
    device.clock = clock
    x = device.from_host(np.linspace(0, 1, 50), BINARY16)
    clock.place = HERE
    device.multiply(x, 0.3)
    start = clock.mark()
    first = [device.multiply(x, 0.3), device.multiply(x, 0.7)]
    clock.place = HERE._replace(direction="backward")
    with clock.replaying(start):
        again = [device.multiply(x, 0.3), device.multiply(x, 0.7)]
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.carrier, b.carrier)
    assert (clock.place.direction, clock.k) == ("backward", 0)
    clock.place = HERE
    assert clock.k == 3


def test_the_optimiser_has_no_micro_batch_and_no_replica():
    clock = PlaceClock()
    clock.place = Place(3, 2, 1, "optimizer", "optimizer")
    assert clock.place == Place(3, 0, 0, "optimizer", "optimizer")


def test_a_step_begins_with_no_operations():
    clock = PlaceClock()
    clock.place = HERE
    clock.operation += 1
    clock.forget()
    assert clock.k == 0


def test_wrong_uses_are_refused():
    clock = PlaceClock()
    with pytest.raises(ValueError, match=re.escape("direction='up' is not known; use one of")):
        clock.place = Place(0, 0, 0, "", "up")
    with pytest.raises(RuntimeError, match=r"assign clock\.place instead"):
        clock.operation = 7


def test_an_evaluation_that_ends_forgets_its_own_places_alone():
    clock = PlaceClock()
    training, evaluation = Place(0, 0, 0, "a", "forward"), Place(0, 0, 0, "a", "evaluation")
    for place in (training, evaluation):
        clock.place = place
        clock.operation += 1
    clock.forget_direction("evaluation")
    assert clock.k == 0
    clock.place = training
    assert clock.k == 1


def test_numbers_of_several_places_are_those_of_one_after_the_other():
    places = [(HERE, 2), (HERE._replace(layer="b", direction="optimizer", micro_batch=3), 1)]
    one, other = PlaceClock(), PlaceClock()
    for clock in (one, other):
        clock.place = HERE
        clock.take(1)
    expected = []
    for place, n in places:
        other.place = place
        expected += other.take(n)
    assert one.take_each(places).tolist() == expected
    assert one.place == HERE
    assert one.drawn() == other.drawn()
    one.give_each_back(places)
    assert one.take_each(places).tolist() == expected
