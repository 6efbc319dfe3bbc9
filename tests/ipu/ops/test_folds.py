"""Running results and rows into which many are folded: law (one operation after the other)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.folding import processor_fold
from fpsim.records.flags import Flags, FloatingPointTrap
from fpsim.records.formats import BINARY16, BINARY32, BINARY64
from fpsim.records.rounding import RNE, RTN, RTP, RTZ, SR
from fpsim.records.settings import Settings
from ipu.machine.control import ROUNDINGS, FpCtl
from ipu.machine.device import Device
from ipu.ops import cumulative_product, cumulative_sum, scatter_add, scatter_multiply
from ipu.ops.folds import folded, running

_VERBS = ("add", "multiply")
_NAN = np.float32(np.nan)
_SIGNALLING = np.uint32(0x7F800001).view(np.float32)


def _numbers(shape, seed):
    """Ordinary numbers among those that overflow, underflow, and are none."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(shape).astype(np.float32)
    rare = np.float32([3e38, -3e38, 1e-38, -1e-38, 1e-45, 0.0, -0.0, 1.0, np.inf, -np.inf, _NAN])
    spots = generator.random(shape) < 0.2
    x[spots] = generator.choice(rare, int(spots.sum()))
    return x


def _devices(**options):
    return Device(**options), Device(**options)


def _outcome(device):
    """All that operations leave behind."""
    context = device.context(BINARY32)
    counts = None if device.counts is None else {k: dict(v) for k, v in device.counts.items()}
    return context.flags, device.status, device.vector_cycles, counts


def _codes(x):
    return x.carrier.view(np.uint32).tolist()


def _one_after_the_other(device, verb, x, axis, exclusive, reverse):
    """Along an axis, each result by an operation of the device."""
    rows = list(np.moveaxis(x.carrier, axis, 0))
    rows = rows[::-1] if reverse else rows
    start = np.full(rows[0].shape, 0.0 if verb == "add" else 1.0, np.float32)
    results = [x.like(np.array(rows[0]))]
    for row in rows[1 : len(rows) - exclusive]:
        results.append(getattr(device, verb)(results[-1], x.like(np.array(row))))
    carriers = ([start] if exclusive else []) + [r.carrier for r in results]
    carriers = carriers[: len(rows)]
    return np.stack(carriers[::-1] if reverse else carriers, axis)


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize("shape", [(1,), (9,), (3, 7), (7, 4), (4, 5, 3), (2, 6, 40), (11, 19)])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [False, True])
def test_running_results_are_operations_in_index_order(verb, shape, exclusive, reverse, count):
    for axis in range(len(shape)):
        for seed in range(2):
            device, other = _devices(count=count)
            x = _numbers(shape, seed)
            result = running(
                device, verb, device.from_host(x, BINARY32), axis, exclusive=exclusive,
                reverse=reverse,
            )
            expected = _one_after_the_other(
                other, verb, other.from_host(x, BINARY32), axis, exclusive, reverse
            )
            assert _codes(result) == expected.view(np.uint32).tolist()
            assert _outcome(device) == _outcome(other)


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize("width", [(), (1,), (3,), (2, 20)])
@pytest.mark.parametrize("count", [False, True])
def test_folded_rows_are_operations_in_order_of_the_values(verb, width, count):
    for seed in range(4):
        device, other = _devices(count=count)
        rows = np.random.default_rng(seed).integers(0, 5, 12)
        base, values = _numbers((6, *width), seed), _numbers((12, *width), seed + 100)
        result = folded(
            device, verb, device.from_host(base, BINARY32), rows, device.from_host(values, BINARY32)
        )
        total = other.from_host(base, BINARY32)
        cycles, loops = 0, other.context(BINARY32).core.loops[verb]
        for row, value in zip(rows, values, strict=True):
            at = total.like(total.carrier[row : row + 1].copy())
            step = getattr(other, verb)(at, other.from_host(value[None], BINARY32))
            total.carrier[row] = step.carrier[0]
        # Rows that differ are operations of one call: turns, in which a row stands once.
        sizes = np.bincount(rows)
        for turn in range(sizes.max()):
            elements = int((sizes > turn).sum()) * int(np.prod(width))
            cycles += loops[0] * -(-elements // loops[1])
        assert _codes(result) == _codes(total)
        flags, status, _, counts = _outcome(other)
        assert _outcome(device) == (flags, status, cycles, counts)


@pytest.mark.parametrize("rnd", list(ROUNDINGS))
@pytest.mark.parametrize("denormals", ["flush", "ieee"])
def test_every_control_register_rounds_running_results(rnd, denormals):
    for verb in _VERBS:
        device, other = _devices(control=FpCtl(rnd=rnd, esr=True), f32_denormals=denormals)
        x = _numbers((5, 30), 3)
        result = running(device, verb, device.from_host(x, BINARY32), 1)
        expected = _one_after_the_other(other, verb, other.from_host(x, BINARY32), 1, False, False)
        assert _codes(result) == expected.view(np.uint32).tolist()
        assert _outcome(device) == _outcome(other)


def test_a_signalling_nan_raises_where_it_is_added_and_not_where_it_begins():
    for place, raised in ((0, 1), (1, 1), (2, 1)):
        x = np.float32([1.0, 2.0, 3.0])
        x[place] = _SIGNALLING
        fold = processor_fold("add", Settings(BINARY32))
        values, flags = fold.running(x, 0, start=0.0)
        assert flags == raised * Flags.INVALID
        assert np.isnan(values[place:]).all()
        assert not np.isnan(values[:place]).any()
    alone, flags = fold.running(np.array([_SIGNALLING]), 0, start=0.0)
    assert flags == 0
    assert alone.view(np.uint32).tolist() == [0x7F800001]


@pytest.mark.parametrize("n", [1, 2, 8, 9, 17])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_signalling_nan_in_one_of_many_chains_raises_where_it_is_added(n, reverse, exclusive):
    fold = processor_fold("add", Settings(BINARY32))
    for place in range(n):
        x = np.ones((13, n), np.float32)
        x[9, place] = _SIGNALLING
        values, flags = fold.running(x, 1, start=0.0, reverse=reverse, exclusive=exclusive)
        # By what has one chain alone, of which each number is a step of its own.
        alone = [
            fold.running(row, 0, start=0.0, reverse=reverse, exclusive=exclusive) for row in x
        ]
        assert values.view(np.uint32).tolist() == [y.view(np.uint32).tolist() for y, _ in alone]
        assert flags == np.bitwise_or.reduce([f for _, f in alone])


def test_an_operation_that_traps_is_told_as_if_alone():
    device = Device(control=FpCtl(oflo=True))
    x = device.from_host([[1.0, 1.0], [3e38, 1.0], [3e38, 1.0]], BINARY32)
    with pytest.raises(FloatingPointTrap) as trap:
        cumulative_sum.value(device, x, axis=0)
    assert trap.value.index == (0,)
    assert trap.value.operands[1] == np.float32(3e38)


def test_rows_that_are_none_are_refused():
    fold = processor_fold("add", Settings(BINARY32))
    total, values = np.zeros((3, 2), np.float32), np.ones((1, 2), np.float32)
    for row in (-1, 3):
        with pytest.raises(IndexError, match="there are 3"):
            fold.fold(total, np.array([row]), values)
    assert (total == 0).all()


def test_other_roundings_have_no_fold():
    for settings in (
        Settings(BINARY16), Settings(BINARY32, rounding=SR(bits=16)), Settings(BINARY64),
        Settings(BINARY32, nan="propagate_first"), Settings(BINARY32, overflow="saturate"),
    ):
        assert processor_fold("add", settings) is None
    for rounding in (RNE, RTZ, RTP, RTN):
        assert processor_fold("multiply", Settings(BINARY32, rounding=rounding)) is not None


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing_has_no_results(shape):
    device = Device()
    x = device.zeros(shape, BINARY32)
    for row in (cumulative_sum, cumulative_product):
        assert row.value(device, x, axis=0).shape == shape
    assert device.vector_cycles == 0


def test_no_values_leave_the_base():
    device = Device()
    base = device.from_host([1.0, -0.0], BINARY32)
    for row in (scatter_add, scatter_multiply):
        result = row.value(device, base, device.zeros((0,), BINARY32), rows=np.zeros(0, np.int64))
        assert _codes(result) == _codes(base)
        assert result.carrier is not base.carrier
