"""Rules in one call against the same one operation after the other (differential), and what stays
apart."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, Array
from fpsim.products.row_program import RowProgram
from fpsim.state.threads import get_threads, set_threads
from ipu import ops
from ipu.machine import Device
from ipu.machine.control import FpCtl
from ipu.ops.in_one_call import in_one_call, programs_on
from ipu.ops.probabilities import shifted
from ipu.ops.saved import Reading, packed, packing
from ipu.run.places import Place, PlaceClock
from tests.ipu.ops.states import state
from tests.tiers import pick

#: Shapes with one row, one column, rows that fill no vector, and more rows than pass together.
SHAPES = ((5, 7), (1, 130), (6, 1), (300, 64), (2, 3, 33), (3, 9000))
HARD = (0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -3e-5, 65504.0, 1e-39, -700.0)


class MarkedRow(NamedTuple):
    """A row with options, and the shapes of its arguments for one of the first."""

    row: ops.Primitive
    options: dict[str, Any]
    shapes: Any


def beside(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape, shape[-1:], shape[-1:]]


def alone(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape]


CASES = {
    "layer norm": MarkedRow(ops.layer_norm, {"epsilon": 1e-5, "stable": True}, beside),
    "layer norm of squares": MarkedRow(ops.layer_norm, {"unbiased": True}, beside),
    "group norm": MarkedRow(
        ops.group_norm, {"groups": 1, "strided": False, "stable": True}, beside
    ),
    "softmax": MarkedRow(ops.softmax, {}, alone),
    "log_softmax": MarkedRow(ops.log_softmax, {}, alone),
    "gelu": MarkedRow(ops.gelu, {}, alone),
    "gelu by erf": MarkedRow(ops.gelu_erf, {}, alone),
    "silu": MarkedRow(ops.silu, {}, alone),
}
LAYOUTS = ("whole", "turned", "apart", "repeated")


def laid(x: Array, how: str) -> Array:
    """The same values in other places of memory; repeated: its first row."""
    c = x.carrier
    if how == "turned":
        c = np.ascontiguousarray(c.T).T
    elif how == "apart":
        c = np.repeat(c, 2, axis=-1)[..., ::2]
    elif how == "repeated":
        c = np.broadcast_to(c[:1], c.shape)
    return x.like(c)


def tensor(device: Device, rng: np.random.Generator, fmt, shape, *, hard: bool) -> Array:
    values = rng.standard_normal(shape)
    if hard:
        values *= 10.0 ** rng.integers(-7, 5, shape)
        flat = values.reshape(-1)
        flat[rng.integers(0, flat.size, 1 + rng.integers(3))] = HARD[rng.integers(len(HARD))]
    with np.errstate(all="ignore"):
        return device.from_host(values, fmt)


def told(value: Any) -> Any:
    """All of a structure, arrays by their bits."""
    if isinstance(value, Array):
        return value.format.name, value.shape, value.carrier.tobytes()
    return [told(x) for x in value] if isinstance(value, tuple) else repr(value)


@pytest.fixture
def runs(monkeypatch):
    """Outcomes of programs, as they run."""
    outcomes = []
    run = RowProgram.run

    def noted(self, *arguments):
        outcomes.append(run(self, *arguments))
        return outcomes[-1]

    monkeypatch.setattr(RowProgram, "run", noted)
    return outcomes


def results(device: Device, case: MarkedRow, shape, fmt, seed: int, *, hard: bool) -> list[Any]:
    """Of three calls, the first on ordinary data."""
    rng = np.random.default_rng(seed)
    everything = []
    for k in range(3):
        layout, (x, *rest) = LAYOUTS[rng.integers(4)], [
            tensor(device, rng, fmt, s, hard=hard and k > 0) for s in case.shapes(shape)
        ]
        y, saved = case.row.forward(device, laid(x, layout), *rest, **case.options)
        gradient = laid(tensor(device, rng, fmt, y.shape, hard=hard and k > 1), layout)
        slopes = [
            case.row.pull(a, device, gradient, saved, **case.options)
            for a in range(len(case.row.vjps))
        ]
        everything.append(told((y, saved, *slopes, state(device))))
    return everything


def check(name: str, seed: int, *, count: bool = False) -> None:
    rng = np.random.default_rng(seed)
    target = ("mk2", "hypothetical")[rng.integers(2)]
    formats = (BINARY16, BINARY32) + (BFLOAT16,) * (target == "hypothetical")
    how = {
        "target": target, "seed": 5, "f32_denormals": ("flush", "ieee")[rng.integers(2)],
        "control": FpCtl(esr=bool(rng.integers(2)), nanoo=bool(rng.integers(2))),
        "max_nan": ("number", "propagate")[rng.integers(2)],
        "sums": ("spread", "spread", "chain")[rng.integers(3)],
    }
    fmt, shape = formats[rng.integers(len(formats))], SHAPES[rng.integers(len(SHAPES))]
    hard = bool(rng.integers(2))
    one_by_one, together = (Device(**how, count=count) for _ in range(2))
    one_by_one.in_one_call = False
    for device in (one_by_one, together) if count else ():
        device.counts.raised, device.tensor = Counter(), "net"
    expected, joined = [
        results(device, CASES[name], shape, fmt, seed, hard=hard)
        for device in (one_by_one, together)
    ]
    assert expected == joined, (how, fmt.name, shape, hard)


@pytest.mark.parametrize("name", CASES)
def test_calls_of_rules_are_those_one_after_the_other(name):
    for seed in range(pick(10, 80, 800)):
        check(name, seed)


@pytest.mark.parametrize("name", CASES)
def test_they_count_what_the_operations_count(name):
    for seed in range(pick(10, 80, 800)):
        check(name, seed, count=True)


@pytest.mark.parametrize("count", [False, True])
@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("fmt", [BINARY16, BINARY32])
@pytest.mark.parametrize("name", CASES)
def test_these_rules_run_in_one_call(runs, name, fmt, esr, count):
    case, device = CASES[name], Device(control=FpCtl(esr=esr), count=count)
    results(device, case, (30, 64), fmt, 1, hard=False)
    assert len(runs) >= 4
    assert None not in runs


@in_one_call
def rectified(device: Device, x: Array) -> Array:
    return device.add(device.relu(device.multiply(x, 0.5)), x)


@pytest.mark.parametrize("count", [False, True])
@pytest.mark.parametrize("denormals", ["flush", "ieee"])
@pytest.mark.parametrize("fmt", [BINARY16, BINARY32])
def test_a_rectifier_is_a_step(runs, fmt, denormals, count):
    """Zeros of both signs, subnormal numbers and infinities; a NaN is left to the rule."""
    everything = []
    for joins in (False, True):
        device = Device(control=FpCtl(esr=True), f32_denormals=denormals, count=count)
        device.in_one_call = joins
        outcomes = []
        for values in ([1.0, -1.0], [x for x in HARD if x == x], [*HARD, 1.0]):
            x = device.from_host(np.resize(values, (3, 33)), fmt)
            outcomes.append(told(rectified(device, x)))
        everything.append((outcomes, state(device)))
    assert everything[0] == everything[1]
    assert [outcome is None for outcome in runs] == [False, True]


@pytest.mark.parametrize("name", ["layer norm", "softmax", "gelu"])
def test_backward_rules_of_a_tape_run_in_one_call(runs, name):
    """What a training has packed is read as arrays."""
    case, shapes = CASES[name], CASES[name].shapes((30, 64))
    expected, joined = [], []
    for outcomes, joins in ((expected, False), (joined, True)):
        device, rng = Device(control=FpCtl(esr=True)), np.random.default_rng(2)
        device.in_one_call = joins
        for _ in range(3):
            x, *rest = [tensor(device, rng, BINARY16, s, hard=False) for s in shapes]
            with packing():
                _, saved = case.row.forward(device, x, *rest, **case.options)
                tape = Reading([packed(item) for item in saved])
            slope = case.row.pull(0, device, x, tape, **case.options)
            outcomes.append(told((slope, state(device))))
    assert expected == joined
    assert len(runs) >= 4
    assert None not in runs


@pytest.mark.parametrize("how", [
    {"control": FpCtl(inv=True)}, {"control": FpCtl(oflo=True)}, {"control": FpCtl(div0=True)},
    {"random": "xoroshiro"},
])
def test_rules_whose_operations_are_looked_at_run_as_they_are(how):
    assert programs_on(Device(**how)) is None


def test_the_switch_is_the_devices(runs):
    device = Device()
    device.in_one_call = False
    results(device, CASES["softmax"], (5, 7), BINARY16, 0, hard=False)
    assert programs_on(device) is None
    assert not runs


def halves(device: Device, *values: float) -> Array:
    return device.from_host([values], BINARY16)


@pytest.mark.parametrize("clock", ["plain", "places"])
def test_what_a_kernel_leaves_to_others_happens_once(runs, clock):
    """A NaN ends the call: numbers, flags and cycles are those of the rule that runs then."""
    devices = [Device(control=FpCtl(esr=True)) for _ in range(2)]
    devices[0].in_one_call = False
    for device in devices:
        if clock == "places":
            device.clock = PlaceClock()
            device.clock.place = Place(0, 0, 0, "net", "forward")
        assert told(ops.softmax.value(device, halves(device, 1.0, 0.3)))
    for values in ((np.nan, 1.0), (0.1, 0.7), (np.inf, 1.0)):
        expected, joined = (ops.softmax.value(d, halves(d, *values)) for d in devices)
        assert told(expected) == told(joined)
        assert state(devices[0]) == state(devices[1])
    assert [outcome is None for outcome in runs] == [True, False, True]


def test_a_rule_that_is_left_to_others_every_time_is_given_up(runs):
    device = Device()
    ops.softmax.value(device, halves(device, 0.5, 1.0))
    for _ in range(20):
        ops.softmax.value(device, halves(device, np.nan, 1.0))
    assert 0 < len(runs) < 12


def test_a_first_call_on_a_nan_decides_nothing(runs):
    device = Device()
    for values in ((np.nan, 1.0), (0.5, 1.0), (0.5, 1.0)):
        ops.softmax.value(device, halves(device, *values))
    assert len(runs) == 1


def test_a_masked_row_of_attention_is_no_such_case(runs):
    device, x = Device(), [[0.5, -np.inf, 1.0], [2.0, -np.inf, -np.inf]]
    masked = device.from_host(x, BINARY16)
    first, second = (ops.softmax.value(device, masked).values.tolist() for _ in range(2))
    assert first == second
    assert second[1] == [1.0, 0.0, 0.0]
    assert None not in runs
    assert len(runs) == 1


def test_other_control_bits_are_another_program(runs):
    device, alone_ = Device(), Device()
    alone_.in_one_call = False
    for esr in (False, True, False, True):
        for d in (device, alone_):
            d.control = FpCtl(esr=esr)
        outcomes = [told(ops.log_softmax.value(d, halves(d, 1.0, 0.3))) for d in (device, alone_)]
        assert outcomes[0] == outcomes[1]
    assert len(runs) == 2
    assert state(device) == state(alone_)


def test_elements_of_a_shard_are_numbered_by_the_rule():
    device, alone_ = (Device(control=FpCtl(esr=True)) for _ in range(2))
    alone_.in_one_call = False
    for _ in range(3):
        outcomes = []
        for d in (device, alone_):
            with d.shard(5):
                outcomes.append(told(ops.gelu.value(d, halves(d, 1.0, 0.3))))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_nothing(threads):
    before = get_threads()
    set_threads(threads)
    try:
        outcomes = []
        for joined in (True, False):
            device = Device(control=FpCtl(esr=True))
            device.in_one_call = joined
            outcomes.append(results(
                device, CASES["layer norm"], (2000, 64), BINARY16, 4, hard=False
            ))
    finally:
        set_threads(before)
    assert outcomes[0] == outcomes[1]


@in_one_call
def _scaled(device: Device, x: Array, factor: Array | float) -> tuple[Array, Array]:
    return device.multiply(device.add(x, 1.0), factor), x


def test_single_numbers_are_part_of_a_program():
    device = Device()
    x = halves(device, 1.0, 3.0)
    for factor in (2.0, 2.0, -0.0, 0.0, 0.0):
        for number in (factor, device.from_host(factor, BINARY16)):
            y, same = _scaled(device, x, number)
            assert same is x
            assert y.carrier.tobytes() == (np.float32([[2, 4]]) * np.float32(factor)).tobytes()


def test_results_have_memory_of_their_own():
    device = Device()
    x = halves(device, 1.0, 3.0)
    first, second = [shifted(device, x) for _ in range(3)][1:]
    assert not any(np.shares_memory(a.carrier, b.carrier) for a in first for b in second)


def both_ways(rule, data, **how) -> None:
    """Two calls on these arrays, given as values and formats, are those of the rule alone."""
    outcomes = []
    for joined in (False, True):
        device = Device(**how)
        device.in_one_call = joined
        told_of = []
        for values, fmt in data:
            y = rule(device, *(device.from_host(x, fmt) for x in values))
            told_of.append(told((y, state(device))))
            device.clear_status()
        outcomes.append(told_of)
    assert outcomes[0] == outcomes[1]


@in_one_call
def _largest_and_rest(device: Device, x: Array) -> tuple[Array, Array]:
    largest = device.reduce_max(x, -1)
    return largest, device.subtract(largest, x)


@pytest.mark.parametrize("f32_denormals", ["flush", "ieee"])
def test_the_largest_number_is_read_as_the_device_reads(runs, f32_denormals):
    ordinary, tiny = [[1.0, 2.0], [3.0, 0.5]], [[1e-40, -1e-40], [-2e-40, -1e-39]]
    both_ways(
        _largest_and_rest, [((x,), BINARY32) for x in (ordinary, tiny)],
        f32_denormals=f32_denormals,
    )
    assert len(runs) == 1
    assert runs[0] is not None


@in_one_call
def _sum_of(device: Device, x: Array, y: Array) -> Array:
    return device.add(device.multiply(x, 2.0), y)


def test_one_array_in_two_places_is_another_signature():
    device = Device()
    x, y = halves(device, 1.0, 3.0), halves(device, 5.0, 7.0)
    assert [
        _sum_of(device, *pair).values.tolist() for pair in ((x, x), (x, y), (y, x), (x, x))
    ] == [[[3, 9]], [[7, 13]], [[11, 17]], [[3, 9]]]


@in_one_call
def _log_plus_one(device: Device, x: Array) -> Array:
    return device.add(device.log(x), 1.0)


@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("fmt", [BINARY16, BINARY32])
@pytest.mark.parametrize("number", [0.0, -1.0, np.inf, np.nan])
def test_poles_and_what_lies_beyond_them_are_those_of_the_function(fmt, esr, number):
    ordinary = np.linspace(0.1, 9, 9000)
    special = ordinary.copy()
    special[8999] = number
    both_ways(
        _log_plus_one, [((x,), fmt) for x in (ordinary, special, ordinary)],
        control=FpCtl(esr=esr),
    )


def test_flags_of_all_rows_are_raised():
    """The first rows overflow, the last ones are exact."""
    ordinary = np.full((40, 1000), 0.5)
    large = ordinary.copy()
    large[0] = 60000.0
    both_ways(_sum_of, [((x, x), BINARY16) for x in (ordinary, large, ordinary)])
