"""Jobs of products: bounds and memory of operands (laws), numbers of outputs (differential)."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import fpsim as fp
import ipu.machine.units  # noqa: F401  (registers the units of the IPU)
from fpsim.elementwise.codes import to_codes
from fpsim.products.by_unit import dispatch
from fpsim.products.by_unit.dispatch import FAST
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job, Reach, around_specials, matrices, run, to_read
from fpsim.products.jobs.rows import Rows
from fpsim.records.units import find_unit
from fpsim.state.draws import NO_PLACES, draw_places
from tests.fpsim.in_partials import matmul

#: Its partials are rounded by the context where they are stored.
UNIT = find_unit("AMP_F16_F16")


def plain(a, b, values=None, **choices):
    values = np.zeros((len(a), b.shape[1]), np.float32) if values is None else values
    return Job(None, a, b, values, np.zeros(values.shape, np.uint8), **choices)


def test_the_reach_is_of_numbers_that_are_not_zero():
    a = np.float32([[0.0, -3.0], [2.0**-149, -0.0]])
    b, start = np.float32([[0.5], [-8.0]]), np.float32([[0.0], [-0.25]])
    assert plain(a, b, start).reach() == (2.0**-149, 3.0, 0.5, 8.0, 0.25, 0.25)
    zeros = np.zeros((2, 2), np.float32)
    assert plain(zeros, zeros).reach() == (math.inf, 0.0, math.inf, 0.0, math.inf, 0.0)
    # Fresh values are not looked at.
    assert plain(a, b, start, fresh=True).reach()[4:] == (math.inf, 0.0)
    rows = Rows(np.float32([4.0, 1.0, 2.0]), np.array([0, 1]), np.array([0, 1]))
    assert plain(rows.matrix(), b).reach() == Job(None, rows, b, start * 0, None).reach()


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_a_special_operand_is_not_finite(special, operand):
    arrays = [np.ones((2, 2), np.float32) for _ in range(3)]
    assert plain(*arrays).reach().finite
    arrays[operand][1, 0] = special
    assert not plain(*arrays).reach().finite


def test_exponents_are_those_of_products_and_none_below_emin():
    reach = Reach(2.0**-20, 3.0, 0.75, 8.0, math.inf, 0.0)
    assert reach.exponents(-14, -14, 0) == (-14 - 1, 1 + 3, 1, 3)
    assert reach.exponents(-126, -126, 5) == (-20 - 1 + 5, 1 + 3 + 5, 1, 3)
    nothing = Reach(math.inf, 0.0, math.inf, 0.0, math.inf, 0.0)
    assert nothing.exponents(-14, -14, 0) == (0, -2, -1, -1)


def test_the_first_engine_that_can_runs_alone():
    calls = []

    def engine(name, answer, job):
        calls.append(name)
        return answer

    engines = [
        partial(engine, n, answer) for n, answer in (("no", False), ("yes", True), ("x", True))
    ]
    ones = np.ones((2, 2), np.float32)
    run(engines, plain(ones, ones))
    assert calls == ["no", "yes"]
    for m, k, n in ((0, 2, 2), (2, 2, 0), (2, 0, 2)):
        run(engines, plain(np.ones((m, k), np.float32), np.ones((k, n), np.float32)))
    assert calls == ["no", "yes"]


def stochastic(shape, k, seed=5):
    context = fp.Context(fp.BINARY16, rounding=fp.SR(7), seed=seed)
    settings = UnitSettings(UNIT, fp.BINARY16, fp.BINARY16, context.core.settings)
    return settings, draw_places(context.core, settings.rounding_places(k), shape)


def halves(rng, *shape):
    return fp.Context(fp.BINARY16).array(rng.standard_normal(shape)).values.copy()


def test_matrices_of_a_batch_have_the_numbers_of_the_whole():
    rng = np.random.default_rng(2)
    a, b = halves(rng, 3, 2, 9), halves(rng, 9, 5)
    outcomes = []
    for right in (b, np.broadcast_to(b, (3, 9, 5))):
        settings, places = stochastic((3, 2, 5), 9)
        values, flags = np.zeros((3, 2, 5), np.float32), np.zeros((3, 2, 5), np.uint8)
        jobs = list(matrices(settings, a, right, values, flags, places, fresh=True))
        assert len(jobs) == (1 if right is b else 3)
        for job in jobs:
            assert run_general(job)
        outcomes.append(to_codes(values, fp.BINARY16).tolist())
    assert outcomes[0] == outcomes[1]
    # Operand and result share memory with the batch: all of it was written.
    assert np.count_nonzero(outcomes[0]) == 30


def test_a_batch_broadcasts_both_operands():
    a, b = np.ones((4, 1, 2, 3), np.float32), np.ones((5, 3, 7), np.float32)
    values = np.zeros((4, 5, 2, 7), np.float32)
    jobs = list(matrices(None, a, b, values, None, NO_PLACES, fresh=False))
    assert len(jobs) == 20
    for number, job in enumerate(jobs):
        job.values[...] = number
        assert (job.a.shape, job.b.shape, job.fresh) == ((2, 3), (3, 7), False)
    assert values[:, :, 0, 0].tolist() == np.arange(20).reshape(4, 5).tolist()
    empty = list(matrices(None, a[:0], b[0], values[:0, 0], None, NO_PLACES, fresh=True))
    assert [job.a.shape for job in empty] == [(0, 3)]


@pytest.mark.parametrize("row", [slice(0, 2), slice(3, 6)])
@pytest.mark.parametrize("column", [slice(0, 9), slice(4, 5)])
def test_a_part_has_the_random_bits_of_the_whole(row, column):
    rng = np.random.default_rng(3)
    a, b = halves(rng, 6, 21), halves(rng, 21, 9)
    settings, places = stochastic((6, 9), 21)
    complete = Job(settings, a, b, np.zeros((6, 9), np.float32), np.zeros((6, 9), np.uint8), places)
    part = complete.part(row, column, np.zeros((6, 9), np.float32)[row, column].copy())
    assert run_general(complete)
    assert run_general(part)
    assert part.values.tobytes() == complete.values[row, column].tobytes()
    assert part.element_flags.tolist() == complete.element_flags[row, column].tolist()


@pytest.mark.parametrize("special", [np.inf, np.nan])
@pytest.mark.parametrize("where", ["row", "column", "start", "corner"])
def test_around_specials_nothing_changes_under_stochastic_rounding(where, special):
    rng = np.random.default_rng(4)
    a, b, start = halves(rng, 8, 21), halves(rng, 21, 9), halves(rng, 8, 9)
    if where in ("row", "corner"):
        a[[2, 3], 5] = special
    if where in ("column", "corner"):
        b[7, 4] = -special
    if where == "start":
        start[6, 1] = special
    outcomes = []
    for engine in (run_general, lambda job: around_specials(job, FAST, run_general)):
        settings, places = stochastic((8, 9), 21)
        job = Job(settings, a.copy(), b.copy(), start.copy(), np.zeros((8, 9), np.uint8), places)
        assert engine(job)
        np.testing.assert_array_equal(job.a, a)
        outcomes.append((to_codes(job.values, fp.BINARY16).tolist(), job.element_flags.tolist()))
    assert outcomes[0] == outcomes[1]


def test_without_a_gain_the_specials_are_left_to_the_general_engine():
    rng = np.random.default_rng(6)
    a, b, start = halves(rng, 8, 21), halves(rng, 21, 8), halves(rng, 8, 8)
    settings, places = stochastic((8, 8), 21)

    def answer(rows, fast=FAST):
        left = a.copy()
        left[:rows, 0] = np.inf
        job = Job(settings, left, b, start.copy(), np.zeros((8, 8), np.uint8), places)
        taken = around_specials(job, fast, run_general)
        assert taken or job.values.tobytes() == start.tobytes()
        return taken

    assert [answer(rows) for rows in (0, 1, 4, 5)] == [False, True, True, False]
    assert not answer(1, [lambda job: False])


def test_the_memory_stays_the_same_as_long_as_it_is_read():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)[:, 1:]
    assert to_read(values) is values
    values.flags.writeable = False
    address, strides, others = values.ctypes.data, values.strides, values.copy()
    result = to_read(values)
    del values
    assert (result.ctypes.data, result.strides, result.dtype) == (address, strides, np.float32)
    assert np.array_equal(result, others)
    assert to_read(result) is result


@pytest.mark.parametrize("engine", ["AMP_F16_F32", "general", "separate", "fused", "kahan", "sum"])
@pytest.mark.parametrize("rows", [3, 400])
def test_operands_that_cannot_be_written_meet_the_same_kernels(engine, rows, monkeypatch):
    if engine == "general":
        monkeypatch.setattr(dispatch, "ENGINES", (run_general,))
    half = fp.Context(fp.BINARY16)
    rounded = engine in ("separate", "fused", "kahan")
    context = half if rounded else fp.Context(fp.BINARY32)

    def compute(prepared):
        a, b = (
            fp.Array(prepared(np.ones(shape, np.float32)), half) for shape in ((rows, 80), (80, 17))
        )
        if engine == "sum":
            return context.sum(fp.Array(a.carrier, context), 0).carrier.tobytes()
        if rounded:
            choices = {} if engine == "separate" else {engine: True}
            return context.matmul(a, b, **choices).carrier.tobytes()
        return matmul(a, b, "AMP_F16_F32", context=context).carrier.tobytes()

    def refuse(dispatcher, *arguments):
        raise AssertionError(f"{dispatcher.py_func.__qualname__} has no kernel for these types")

    def frozen(values):
        values.flags.writeable = False
        return values

    expected = compute(np.copy)
    monkeypatch.setattr(Dispatcher, "_compile_for_args", refuse)
    assert compute(frozen) == expected
