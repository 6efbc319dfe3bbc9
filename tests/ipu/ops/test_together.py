"""Updates in one call against the same one after the other (differential), and what stays apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, Array, Flags
from fpsim.state.tallies import tally_of
from ipu.learn.optim import SGD, AdamW, RMSProp, base
from ipu.learn.variables import Variable
from ipu.machine import Device
from ipu.machine.control import FpCtl
from ipu.ops.updates import UPDATES, Around, UpdateRow
from ipu.ops.updates.observed import Observed
from ipu.ops.updates.together import UpdateRequest, together_on
from tests.ipu.ops.states import counted, state
from tests.tiers import pick

SINGLE = {"step": None, "mu_product": 0.5, "mu": 0.5, "eta": 0.1}
#: Sizes with a vector that is not full, blocks of 8192 and a rest, and one element.
SIZES = (33, 20011, 1, 8192)
HARD = (0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -3e-5, 65504.0)
SWITCHES = {
    "nesterov", "maximize", "amsgrad", "decoupled_weight_decay", "centered", "in_root", "grows",
    "use_tf_variant", "use_combined_accum", "bias_correction", "decoupled", "by_rate",
}
NUMBERS = {
    "weight_decay": (0.0, 0.01), "dampening": (0.0, 0.25), "momentum": (0.0, 0.9),
    "betas": ((0.5, 0.75),), "step_size_min": (1e-6,), "step_size_max": (50.0,), "etaplus": (1.2,),
    "eps": (1e-8, 1e-4), "epsilon": (1e-8, 1e-4), "lr": (0.1, 1e-3), "rate": (0.1, 1e-3),
    "max_weight_norm": (10.0,), "power": (-0.5,),
}


def numbers_of(
    row: UpdateRow, rng: np.random.Generator, single: Callable[[float], Array] | None = None
) -> dict[str, object]:
    """Numbers of a row at random; `single` makes arrays of those that may be some."""
    numbers: dict[str, object] = {}
    for name in row.numbers:
        if name in SWITCHES:
            numbers[name] = bool(rng.integers(2))
        else:
            choices = NUMBERS.get(name, (0.5, 0.9, 0.999))
            number = choices[rng.integers(len(choices))]
            is_array = single is not None and isinstance(number, float) and rng.integers(3)
            numbers[name] = single(number) if is_array else number
    return numbers


def tensor(device: Device, rng: np.random.Generator, fmt, n: int, *, hard: bool) -> Array:
    values = rng.standard_normal(n)
    if hard:
        values *= 10.0 ** rng.integers(-7, 5, n)
        values[rng.integers(0, n, len(HARD))] = HARD
    with np.errstate(all="ignore"):
        return device.from_host(values, fmt)


def single(device: Device, name: str, step: float) -> Array:
    value = SINGLE[name]
    return device.from_host(np.float32(step if value is None else value), BINARY32)


def moved(device: Device, array: Array | None) -> Array | None:
    """A copy on another device."""
    return None if array is None else Array(array.carrier.copy(), device.context(array.format))


def check(row: UpdateRow, seed: int, *, count: bool = False) -> bool:
    """Whether all updates of a random kind ran in one call; they are those of the row."""
    rng = np.random.default_rng(seed)
    fmt, hard, in_place = (BINARY16, BINARY32)[rng.integers(2)], *rng.integers(2, size=2)
    control = FpCtl(esr=bool(rng.integers(2)), nanoo=bool(rng.integers(2)))
    how = {"control": control, "seed": 5, "f32_denormals": ("flush", "ieee")[rng.integers(2)]}
    alone, joint = (Device(**how, count=count) for _ in range(2))
    for device in (alone, joint) if count else ():
        device.counts.raised = Counter()
    takes_arrays = row.name.startswith("tensorflow")

    def single_number(x: float) -> Array:
        return alone.from_host(np.float32(x), fmt)

    step = float(rng.integers(4))
    tensors = [
        [tensor(alone, rng, fmt, n, hard=bool(hard)) for _ in range(2)] + [
            single(alone, s, step) if s in SINGLE else
            tensor(alone, rng, fmt, n, hard=bool(hard)) for s in row.slots
        ] for n in SIZES
    ]
    together, expected, results, n_joined = together_on(joint), [], [], 0
    numbers = [numbers_of(row, rng, single_number if takes_arrays else None)] * 2
    numbers += [numbers[0] | {
        # arrays of other values, in the same program
        name: single_number(rng.uniform(0.1, 1)) for name, x in numbers[0].items()
        if isinstance(x, Array)
    }] * (len(SIZES) - 2)
    for (w, g, *slots), of_tensor in zip(tensors, numbers, strict=True):
        w, g, *slots = (moved(alone, x) for x in (w, g, *slots))
        expected.append(row(alone, w, g, slots, **of_tensor))
    for (w, g, *slots), of_tensor in zip(tensors, numbers, strict=True):
        w, g, *slots = (moved(joint, x) for x in (w, g, *slots))
        places = [x.carrier for x in (w, *slots)] if in_place else ()
        request = UpdateRequest(row, w, g, slots, of_tensor)
        result = together.add(request, places)
        n_joined += result is not None
        results.append(result[0] if result else row(joint, w, g, slots, **of_tensor))
    assert together.run()
    for a, b in zip(expected, results, strict=True):
        for x, y in zip((a.value, *a.slots), (b.value, *b.slots), strict=True):
            assert (x is None) == (y is None)
            if x is not None:
                assert x.format == y.format
                assert x.carrier.tobytes() == y.carrier.tobytes()
    assert state(alone) == state(joint)
    return n_joined == len(SIZES)


@pytest.mark.parametrize("name", UPDATES)
def test_updates_in_one_call_are_those_one_after_the_other(name):
    row = UPDATES[name]
    for seed in range(pick(2, 40, 400)):
        check(row, seed)


@pytest.mark.parametrize("name", UPDATES)
def test_they_count_what_the_operations_count(name):
    row = UPDATES[name]
    for seed in range(pick(2, 40, 400)):
        check(row, seed, count=True)


@pytest.mark.parametrize(
    "name", ["native sgd", "native adamw", "tensorflow momentum", "tensorflow adam",
             "tensorflow centred rms prop", "popart sgd", "torch radam"]
)
def test_these_rows_run_in_one_call(name):
    for count in (False, True):
        assert any(check(UPDATES[name], seed, count=count) for seed in range(6))


class Log:
    """What an observer is told, in plain data."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.moves: list[object] = []

    def watch(self, result, operands, tally=None) -> None:
        tally = tally_of(result.carrier) if tally is None else tally
        exponents = tally.exponents.tolist()
        formats = [(x.format.name, x.shape) for x in (result, *operands)]
        self.events.append((tally.zeros, tally.largest, exponents, formats))

    def constant(self, fmt, value, change, rounded) -> None:
        self.events.append((fmt.name, value, change, rounded.carrier.tobytes()))

    def moved(self, verb, before, operands, factor, after) -> None:
        arrays = [x.carrier.tobytes() for x in (before, *operands, after)]
        self.moves.append((verb, factor, arrays))


#: Numbers of torch's rows with which they are programs.
OBSERVED = {
    "torch sgd": {"lr": 0.1, "momentum": 0.9, "dampening": 0.25, "weight_decay": 1e-9},
    "torch adam": {
        "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-4, "weight_decay": 0.01,
        "decoupled_weight_decay": True,
    },
    "torch rmsprop": {"lr": 1e-3, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.0, "momentum": 0.0},
    "torch adagrad": {"lr": 1e-3, "lr_decay": 0.0, "eps": 1e-8, "weight_decay": 0.0},
}


def constants(device, log):
    """Makes constants as a front end, which tells of those that are zero; the same with a log."""
    def constant(value, fmt):
        rounded = device.context(fmt).constant(value)
        return rounded, "" if rounded.carrier or not value else "zero"

    def constant_alone(value, fmt):
        rounded, change = constant(value, fmt)
        if change:
            log.constant(fmt, value, change, rounded)
        return rounded

    return constant, constant_alone


@pytest.mark.parametrize("n", [1, 700, 40_000])
@pytest.mark.parametrize("name", OBSERVED)
def test_an_observer_is_told_what_the_operations_would_tell(name, n):
    row, rng = UPDATES[name], np.random.default_rng(n)
    numbers = dict.fromkeys(row.numbers, False) | OBSERVED[name]
    alone, joint = (Device(control=FpCtl(esr=True), count=True) for _ in range(2))
    arrays = [alone.from_host(rng.uniform(-1.5, 1.5, n), BINARY16) for _ in range(2)] + [
        single(alone, s, 2.0) if s in SINGLE else
        alone.from_host(rng.uniform(0.5, 1.5, n), BINARY16) for s in row.slots
    ]
    told, expected = Log(), Log()
    constant, constant_alone = constants(alone, expected)
    w, g, *slots = (moved(alone, x) for x in arrays)
    updated = row(
        alone, w, g, slots, Around(constant_alone, expected.watch, expected.moved), **numbers
    )
    w, g, *slots = (moved(joint, x) for x in arrays)
    together = together_on(joint)
    joined, changed = together.add(UpdateRequest(
        row, w, g, slots, numbers, constant=constant,
        observed=Observed(told.watch, constant=told.constant, moved=told.moved),
    ))
    assert together.run()
    assert not changed
    assert joined.value.carrier.tobytes() == updated.value.carrier.tobytes()
    assert (told.events, told.moves) == (expected.events, expected.moves)
    assert counted(joint) == counted(alone)


@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_of_results_without_a_past_exponents_are_told(size):
    """Of small gradients squares underflow: from there on each result is told."""
    rng, row = np.random.default_rng(5), UPDATES["torch adam"]
    numbers = dict.fromkeys(row.numbers, False) | OBSERVED["torch adam"]
    alone, joint = (Device(control=FpCtl(esr=True), count=True) for _ in range(2))
    told, expected, sums = Log(), Log(), Counter[str]()
    together = together_on(joint)
    for n in (70, 30_000):
        w, g, mean, square = (alone.from_host(size * rng.standard_normal(n), BINARY16)
                              for _ in range(4))
        arrays = w, g, mean, Array(np.abs(square.carrier), w.context), None, single(
            alone, "step", 2.0
        )
        row(alone, *arrays[:2], arrays[2:], Around(None, expected.watch), **numbers)
        w, g, *slots = (moved(joint, x) for x in arrays)

        def exponents(fmt, counts):
            sums[fmt.name] += counts

        together.add(UpdateRequest(row, w, g, slots, numbers, observed=Observed(
            told.watch, exponents, lambda array: False,
        )))
    assert together.run()
    every = Counter[str]()
    for _, _, counts, formats in expected.events:
        every[formats[0][0]] += np.array(counts)
    for _, _, counts, formats in told.events:
        sums[formats[0][0]] += np.array(counts)
    assert {k: v.tolist() for k, v in sums.items()} == {k: v.tolist() for k, v in every.items()}
    assert len(told.events) < len(expected.events)
    assert bool(told.events) == (size < 1)
    assert counted(joint) == counted(alone)


def test_an_observer_who_has_to_look_closer_sees_the_operations_themselves():
    """An overflow: nothing has happened, and no number is taken."""
    device, told = Device(control=FpCtl(esr=True), count=True), Log()
    w, g, v = (device.from_host(np.full(9, 6e4), BINARY16) for _ in range(3))
    numbers = {"lr": 2.0, "momentum": 0.5, "dampening": 0.0, "weight_decay": 0.0,
               "nesterov": False, "maximize": False}
    before = state(device)
    request = UpdateRequest(
        UPDATES["torch sgd"], w, g, (v,), numbers, observed=Observed(told.watch)
    )
    together = together_on(device)
    assert together.add(request) is not None
    assert not together.run()
    assert state(device) == before
    assert not told.events


def test_an_observer_looks_closer_where_a_single_number_overflows():
    """The rate over 1 - p1 saturates, and all results of tensors are usual numbers."""
    device, told = Device(count=True), Log()
    w, g, m, v = (device.from_host(np.full(9, x), BINARY16) for x in (1.0, 1e-4, 1e-4, 0.25))
    power = device.from_host(0.5, BINARY16)
    numbers = {"power1": power, "power2": power, "rate": 6e4, "beta1": 0.5, "beta2": 0.5,
               "epsilon": 1.0}
    joined = UpdateRequest(
        UPDATES["tensorflow adam"], w, g, (m, v), numbers, observed=Observed(told.watch)
    )
    alone = Device(count=True)
    row = UPDATES["tensorflow adam"]
    updated = row(alone, *(moved(alone, x) for x in (w, g)), [moved(alone, x) for x in (m, v)],
                  **numbers)
    assert np.abs(updated.value.values).max() < BINARY16.max
    assert Flags.OVERFLOW in alone.context(BINARY16).flags
    together = together_on(device)
    assert together.add(joined) is not None
    assert not together.run()
    assert not told.events


class Shown:
    """What is shown where nothing is counted: the numbers of results and operands."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def watch(self, result, operands, tally=None) -> None:
        assert tally is None
        self.events.append([
            (x.format.name, x.shape, x.carrier.tobytes()) for x in (result, *operands)
        ])

    def constant(self, fmt, value, change, rounded) -> None:
        self.events.append((fmt.name, value, change, rounded.carrier.tobytes()))


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("name", OBSERVED)
def test_all_results_are_shown_where_nothing_is_counted(name, hard):
    """Numbers and order are those of operations that run, also where they are not finite."""
    row, rng = UPDATES[name], np.random.default_rng(11)
    numbers = dict.fromkeys(row.numbers, False) | OBSERVED[name]
    alone, joint = (Device(control=FpCtl(esr=True)) for _ in range(2))
    shown, expected, together = Shown(), Shown(), together_on(joint)
    constant, constant_alone = constants(alone, expected)
    for n in SIZES:
        arrays = [tensor(alone, rng, BINARY16, n, hard=hard) for _ in range(2)] + [
            single(alone, s, 2.0) if s in SINGLE else tensor(alone, rng, BINARY16, n, hard=hard)
            for s in row.slots
        ]
        w, g, *slots = (moved(alone, x) for x in arrays)
        row(alone, w, g, slots, Around(constant_alone, expected.watch), **numbers)
        w, g, *slots = (moved(joint, x) for x in arrays)
        assert together.add(UpdateRequest(
            row, w, g, slots, numbers, constant=constant,
            observed=Observed(shown.watch, constant=shown.constant),
        ), [w.carrier, *(x.carrier for x in slots)])
    assert not shown.events
    assert together.run()
    assert shown.events == expected.events
    assert len(shown.events) > 4 * len(SIZES)
    assert state(joint) == state(alone)


def test_results_that_are_shown_have_bounded_room(monkeypatch):
    """A large update is left to its caller, and many are told of before more are added."""
    monkeypatch.setattr("ipu.ops.updates.together._SHOWN", 1000)
    device, shown = Device(), Shown()
    together, row, n_added = together_on(device), UPDATES["torch sgd"], 0
    numbers = dict.fromkeys(row.numbers, False) | OBSERVED["torch sgd"]

    def add(n):
        w, g, v = arrays(device, n)
        return together.add(UpdateRequest(
            row, w, g, (v,), numbers, observed=Observed(shown.watch),
        ))

    assert add(400) is None
    while not together.is_full:
        assert add(100) is not None
        n_added += 1
    assert 2 <= n_added < 8
    assert not shown.events
    assert together.run()
    assert len(shown.events) % n_added == 0 < len(shown.events)
    assert not together.is_full


ROW = UPDATES["tensorflow momentum"]
OPTIONS = {"rate": 0.1, "momentum": 0.9}


def arrays(device: Device, n: int = 100) -> list[Array]:
    rng = np.random.default_rng(3)
    return [tensor(device, rng, BINARY16, n, hard=False) for _ in range(3)]


@pytest.mark.parametrize("how", [
    {"control": FpCtl(inv=True)}, {"control": FpCtl(oflo=True)}, {"control": FpCtl(div0=True)},
    {"random": "xoroshiro"},
])
def test_what_is_looked_at_while_it_runs_is_not_put_off(how):
    assert together_on(Device(**how)) is None


def test_memory_that_is_shared_or_does_not_lie_whole_stays_apart():
    device = Device()
    together, (w, g, v) = together_on(device), arrays(device)
    strided = Array(np.repeat(w.carrier, 2)[::2], w.context)
    assert together.add(UpdateRequest(ROW, strided, g, (v,), OPTIONS)) is None
    assert together.add(UpdateRequest(ROW, w, w, (v,), OPTIONS)) is None
    beside = Array(np.concatenate([v.carrier, v.carrier])[50:150], v.context)
    shifted = Array(beside.carrier.base[:100], v.context)
    overlapping = UpdateRequest(ROW, w, g, (beside,), OPTIONS)
    assert together.add(overlapping, [shifted.carrier, None]) is None
    one = Array(np.float32(1), w.context)
    assert together.add(UpdateRequest(ROW, one, one, (one,), OPTIONS)) is None
    assert device.clock.operation == 0
    assert together.add(UpdateRequest(ROW, w, g, (v,), OPTIONS)) is not None


@pytest.mark.parametrize("part", [slice(None), slice(50, None), slice(0, 1)])
def test_memory_that_an_update_before_writes_is_left_to_the_caller(part):
    """Variables may share memory; of programs that are not alike the later one might run first."""
    device = Device()
    together, (w, g, v) = together_on(device), arrays(device)
    first = UpdateRequest(ROW, w, g, (v,), OPTIONS)
    assert together.add(first, [w.carrier, v.carrier]) is not None
    for written in (w, v):
        shared = Array(written.carrier[part], w.context)
        other, gradient, slot = (x[part] for x in arrays(device))
        for variable, velocity in ((shared, slot), (other, shared)):
            request = UpdateRequest(ROW, variable, gradient, (velocity,), OPTIONS)
            assert together.add(request, [variable.carrier, velocity.carrier]) is None
        apart = UpdateRequest(ROW, other, gradient, (slot,), OPTIONS)
        assert together.add(apart, [other.carrier, slot.carrier]) is not None
    assert together.run()
    shared = UpdateRequest(ROW, w[part], g[part], (v[part],), OPTIONS)
    assert together.add(shared, [w.carrier[part], v.carrier[part]]) is not None


def test_other_control_bits_are_another_program():
    device, twin = Device(), Device()
    together, (w, g, v) = together_on(device), arrays(device)
    for esr in (False, True, False):
        device.control = twin.control = FpCtl(esr=esr)
        result, _ = together.add(UpdateRequest(ROW, w, g, (v,), OPTIONS))
        together.run()
        expected = ROW(twin, *(moved(twin, x) for x in (w, g)), (moved(twin, v),), **OPTIONS)
        assert result.value.carrier.tobytes() == expected.value.carrier.tobytes()
    assert state(device) == state(twin)


def test_a_number_that_is_rounded_by_chance_is_computed_for_each_tensor():
    """Adam's corrections of the rate draw bits of their own for each variable."""
    row, numbers = UPDATES["tensorflow adam"], {
        "power1": 0.9, "power2": 0.999, "rate": 0.1, "beta1": 0.9, "beta2": 0.999,
        "epsilon": 1e-4, "nesterov": False,
    }
    alone, joint = (Device(control=FpCtl(esr=True), seed=7) for _ in range(2))
    together, results, expected = together_on(joint), [], []
    for _ in range(20):
        w, g, m = arrays(joint)
        joined = together.add(UpdateRequest(row, w, g, (m, m.copy()), numbers))
        assert joined is not None
        results.append(joined[0].value)
        w, g, m = (moved(alone, x) for x in (w, g, m))
        expected.append(row(alone, w, g, (m, m.copy()), **numbers).value)
    assert together.run()
    values = [x.carrier.tobytes() for x in results]
    assert values == [x.carrier.tobytes() for x in expected]
    assert len(set(values)) > 10
    assert state(alone) == state(joint)


@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("name", ["tensorflow adam", "tensorflow rms prop", "native adamw"])
def test_single_arrays_are_inputs_of_one_program(name, esr):
    """Powers change in each step, and may be one array in one of them."""
    row, rng = UPDATES[name], np.random.default_rng(3)
    alone, joint = (Device(control=FpCtl(esr=esr), seed=7) for _ in range(2))
    together, programs = together_on(joint), set()
    names = ("left1", "left2") if name == "native adamw" else row.numbers
    plain = dict.fromkeys(row.numbers, 0.5) | {"nesterov": False, "in_root": True}
    for step in range(12):
        one = joint.from_host(np.float32(0.9 ** (step + 1)), BINARY16)
        numbers = {n: plain[n] for n in row.numbers} | {
            n: one if step % 3 == 0 else joint.from_host(
                np.float32(rng.uniform(0.1, 0.9)), BINARY16
            ) for n in names if plain[n] == 0.5
        }
        w, g, m, v = (tensor(joint, rng, BINARY16, 70 * step + 1, hard=False) for _ in range(4))
        request = UpdateRequest(row, w, g, (m, Array(np.abs(v.carrier), v.context)), numbers)
        programs.add(id(together.equation(joint, request)))
        joined = together.add(request)
        assert joined is not None
        assert together.run()
        w, g, *slots = (moved(alone, x) for x in (w, g, *request.slots))
        expected = row(alone, w, g, slots, **numbers)
        for x, y in zip((joined[0].value, *joined[0].slots), (expected.value, *expected.slots),
                        strict=True):
            assert x.carrier.tobytes() == y.carrier.tobytes()
        assert state(alone) == state(joint)
    assert len(programs) == 1


@pytest.mark.parametrize("esr", [False, True])
@pytest.mark.parametrize("optimiser", [
    SGD(0.1), SGD(0.1, 0.9), SGD(0.1, 0.9, nesterov=True, weight_decay=0.01),
    AdamW(0.1, epsilon=1e-4),
    RMSProp(0.1, epsilon=1e-4), SGD(0.1, 0.9, format=BINARY32),
])
def test_steps_of_optimisers_are_the_same_with_and_without(monkeypatch, optimiser, esr):
    def train() -> tuple[object, ...]:
        device = Device(control=FpCtl(esr=esr), seed=2)
        rng = np.random.default_rng(0)
        variables = [
            Variable(tensor(device, rng, BINARY16, n, hard=False), device, f"layer{n}/w")
            for n in (5, 900, 16)
        ]
        slots: dict[str, tuple[Array, ...]] = {}
        for _ in range(3):
            pairs = [(tensor(device, rng, BINARY16, v.shape[0], hard=False), v) for v in variables]
            slots = optimiser.apply_gradients(pairs, slots)
        values = [v.array.carrier.tobytes() for v in variables]
        slot_bytes = {k: [x.carrier.tobytes() for x in row] for k, row in slots.items()}
        return values, slot_bytes, state(device)

    together = train()
    monkeypatch.setattr(base, "together_on", lambda device: None)
    assert together == train()
