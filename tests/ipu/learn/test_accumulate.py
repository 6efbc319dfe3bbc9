"""Accumulated gradients: differential against numpy's arithmetic, golden values, formats."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, F143
from ipu import ops
from ipu.learn.accumulate import Accumulation, Accumulator, Reduction
from ipu.learn.nn import dense
from ipu.learn.optim import SGD, CastGradientsSGD
from ipu.learn.policy import FP16, FP32, MIXED, Policy
from ipu.learn.tensor import contributions, gradients
from ipu.learn.train import Trainer
from ipu.learn.variables import AUTO_REUSE, Variable, get_variable, variable_scope
from ipu.machine import Device, FpCtl
from tests.ipu.learn.small import LABELS, X, codes, trained, trainer

NATIVE = {BINARY16: np.float16, BINARY32: np.float32}
single = np.float32


def variable(fmt, n, device=None):
    device = device or Device(f32_denormals="ieee")
    return Variable(device.zeros((n,), fmt), device, "layer/w")


def accumulated(how, w, gradients):
    total = how.start([w])
    for g in gradients:
        total = total.add([(g, w)])
    ((value, same),) = total.pairs
    assert total.is_full
    assert same is w
    return value


# Arithmetic -------------------------------------------------------------------------------------


def equation(reduction, G, A, gradients):
    """Accumulator of type A from numpy gradients, operation by operation."""
    total = np.zeros_like(gradients[0], A)
    for n, g in enumerate(gradients):
        T = g.dtype.type
        if reduction == "mean":
            g = g * T(1 / G)
        if reduction == "running_mean":
            g = g * T(single(1) / (single(n) + single(1)))
            total = total * A(single(n) / (single(n) + single(1)))
        total = total + g.astype(A)
    return total


@pytest.mark.source("S0-60")
@pytest.mark.source("S0-61")
@pytest.mark.parametrize("reduction", ["sum", "mean", "running_mean"])
@pytest.mark.parametrize("inputs", NATIVE)
@pytest.mark.parametrize("accumulators", NATIVE)
def test_accumulation_is_numpy_s_arithmetic_bit_for_bit(reduction, inputs, accumulators):
    rng = np.random.default_rng(4)
    gradients = rng.normal(size=(7, 60)) * 2.0 ** rng.integers(-12, 4, 60)
    w = variable(inputs, 60)
    result = accumulated(
        Accumulation(7, reduction, accumulators), w,
        [w.device.from_host(g, inputs) for g in gradients],
    )
    halves = gradients.astype(NATIVE[inputs])
    assert (result.to_numpy() == equation(reduction, 7, NATIVE[accumulators], halves)).all()


@pytest.mark.source("Graphcore TensorFlow: gradient_accumulation_test.py")
@pytest.mark.parametrize(("reduction", "value"), [("sum", 55), ("mean", 14.5),
                                                  ("running_mean", 4.5)])
def test_the_numbers_of_zero_to_nine_on_top_of_ten(reduction, value):
    w = variable(BINARY32, 1)
    total = Accumulator(Accumulation(10, reduction), (w,), (w.device.from_host([10.0], BINARY32),))
    for n in range(10):
        total = total.add([(w.device.from_host([float(n)], BINARY32), w)])
    assert total.values[0].values.tolist() == pytest.approx([value], rel=1e-6)


@pytest.mark.source("S0-60")
def test_a_sum_that_overflows_in_half_is_right_in_single():
    w = variable(BINARY16, 1, Device())
    big = [w.device.from_host([60000.0], BINARY16)] * 4
    assert accumulated(Accumulation(4), w, big).values.tolist() == [65504.0]
    assert w.device.status.oflo
    assert accumulated(Accumulation(4, dtype=BINARY32), w, big).values.tolist() == [240000.0]
    assert accumulated(Accumulation(4, "mean"), w, big).values.tolist() == [60000.0]
    assert accumulated(Accumulation(4, "running_mean"), w, big).values.tolist() == [60000.0]


def test_one_over_g_is_rounded_in_half():
    """fl(1/3) = 1365/4096 in binary16: the mean of three sevens is 6.99609375."""
    w = variable(BINARY16, 1)
    sevens = [w.device.from_host([7.0], BINARY16)] * 3
    assert accumulated(Accumulation(3, "mean"), w, sevens).values.tolist() == [6.99609375]


@pytest.mark.source("S0-61")
def test_the_accumulator_s_format_in_three_forms():
    half, full = variable(BINARY16, 1), variable(BINARY32, 1)

    def wide(v):
        return BINARY32

    for dtype, formats in (
        (None, (BINARY16, BINARY32)),
        (lambda v: v.dtype, (BINARY16, BINARY32)),
        (BINARY32, (BINARY32, BINARY32)),
        (wide, (BINARY32, BINARY32)),
    ):
        how = Accumulation(2, dtype=dtype)
        assert tuple(map(how.format_for, (half, full))) == formats
        assert tuple(a.format for a in how.start([half, full]).values) == formats


def test_one_more_mini_batch_than_there_are_is_refused():
    w = variable(BINARY32, 1)
    total = Accumulation(1).start([w]).add([(w.array, w)])
    with pytest.raises(RuntimeError, match="all 1 mini-batches have been accumulated"):
        total.add([(w.array, w)])


def test_gradients_of_other_variables_or_in_another_order_are_refused():
    device = Device()
    a, b = (Variable(device.zeros((2,), BINARY32), device, f"layer/{n}") for n in "ab")
    total = Accumulation(1).start([a, b])
    for wrong in ([(b.array, b), (a.array, a)], [(a.array, a)]):
        with pytest.raises(ValueError, match="pass those of layer/a, layer/b, in order"):
            total.add(wrong)


def test_sums_round_stochastically_with_the_device():
    device = Device(control=FpCtl(esr=True))
    w = variable(BINARY16, 64, device)
    parts = [device.from_host(np.full(64, v), BINARY16) for v in (1.0, 1e-3)]
    assert len(set(accumulated(Accumulation(2), w, parts).values.tolist())) == 2


def test_each_summand_of_a_gradient_is_scaled_before_they_are_added():
    """Two uses of w give 7 and 2: in binary16 7·fl(1/3) + 2·fl(1/3) is not 9·fl(1/3)."""
    w = variable(BINARY16, 1)
    y = ops.add(ops.scale(w, factor=2.0), ops.scale(w, factor=7.0))
    one = w.device.from_host([1.0], BINARY16)
    (parts,) = contributions(y, [w], one)
    (complete,) = gradients(y, [w], one)
    assert [p.values.tolist() for p in parts] == [[7.0], [2.0]]
    third = np.float16(1 / 3)
    results = [
        Accumulation(3, "mean").start([w]).add([(g, w)]).values[0].to_numpy()[0]
        for g in (parts, complete)
    ]
    assert results == [np.float16(7) * third + np.float16(2) * third, np.float16(9) * third]
    assert results[0] != results[1]


def test_a_variable_used_twice_trains_in_mini_batches():
    """One mini-batch: the summands add up to the whole gradient, bit for bit."""

    def tied(x):
        with variable_scope("tied", use_resource=True, reuse=AUTO_REUSE):
            w = get_variable("w", [8, 8], x.dtype)
        return dense(ops.matmul(ops.relu(ops.matmul(x, w)), w), 3, "output")

    complete, parts = (
        Trainer(tied, SGD(0.1), accumulation=how) for how in (None, Accumulation(1, "mean"))
    )
    assert complete.step(X, LABELS) == parts.step(X, LABELS)
    assert codes(complete) == codes(parts)


# In training ------------------------------------------------------------------------------------


@pytest.mark.source("S0-54")
def test_g_mini_batches_of_b_are_one_batch_of_b_times_g():
    """In binary32 and by powers of two the mean gradient is the whole batch's but for rounding."""
    assert Accumulation(8).effective_batch(32) == 256
    training, _ = trained(4, optimizer=SGD(0.1))
    parts, losses = trained(4, optimizer=SGD(0.1), accumulation=Accumulation(8, "mean"))
    summed, _ = trained(4, optimizer=SGD(0.1 / 8), accumulation=Accumulation(8))
    for name, variable in training.variables.items():
        for other in (parts, summed):
            values = other.variables[name].array.values
            np.testing.assert_allclose(values, variable.array.values, atol=2e-6)
    assert losses == pytest.approx(trained(4, optimizer=SGD(0.1))[1], rel=1e-5)


def test_variables_change_once_for_all_mini_batches():
    updates = []
    training = trainer(accumulation=Accumulation(4, "mean"), observe=updates.append)
    training.step(X, LABELS)
    assert len(updates) == len(training.variables)


@pytest.mark.source("S0-61")
def test_a_function_that_gives_the_variable_s_format_is_no_different():
    first, second = (
        trained(2, policy=FP16, accumulation=Accumulation(4, "mean", dtype))[0]
        for dtype in (None, lambda v: v.dtype)
    )
    assert codes(first) == codes(second)


@pytest.mark.source("S0-62")
@pytest.mark.source("S0-63")
def test_wide_accumulators_need_an_optimiser_that_casts():
    """The policy's accumulator is taken where the accumulation leaves it open."""
    wide = {"policy": Policy.parse("p=f16,c=f16,part=f32,acc=f32"), "accumulation": Accumulation(4)}
    with pytest.raises(TypeError, match="is binary32, the variable binary16; cast it in apply_gr"):
        trained(1, optimizer=SGD(0.05), **wide)
    for optimizer in (CastGradientsSGD(0.05), SGD(0.05, format=BINARY32)):
        training, _ = trained(1, optimizer=optimizer, **wide)
        assert {v.dtype for v in training.variables.values()} == {BINARY16}


def test_layers_have_their_own_accumulators():
    policy = MIXED.override({"output": Policy.parse("p=f32,c=f16,acc=f16")})
    training = trainer(policy=policy, accumulation=Accumulation(2))
    training.forward(X)
    results = {v.layer: training.accumulation.format_for(v) for v in training.variables.values()}
    assert results == {"all_vars/hidden": BINARY32, "all_vars/output": BINARY16}


def test_a_batch_that_cannot_be_cut_is_refused_and_nothing_changes():
    training = trainer(policy=FP32, accumulation=Accumulation(5))
    training.forward(X)
    before = codes(training)
    with pytest.raises(ValueError, match="a batch of 24 does not make 5 equal mini-batches"):
        training.step(X, LABELS)
    assert codes(training) == before


# What is wrong ----------------------------------------------------------------------------------


def test_reductions_are_members_or_names():
    assert [r.value for r in Reduction] == [0, 1, 2]
    assert Accumulation(2).reduction is Reduction.SUM
    for name in ("Running_Mean", "RUNNING_MEAN", Reduction.RUNNING_MEAN):
        assert Accumulation(2, name).reduction is Reduction.RUNNING_MEAN
    for bad in ("average", 1):
        with pytest.raises(ValueError, match="Cannot parse"):
            Accumulation(2, bad)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [((0,), ValueError, "count=0 is not a number of mini-batches; use 1 or more"),
     ((1.5,), TypeError, "count=1.5"), ((True,), TypeError, "count=True"),
     ((2, "sum", 16), TypeError, "dtype=16 is not an accumulator's format"),
     ((2, "sum", "float17"), ValueError, "dtype='float17' is not known")],
)
def test_impossible_accumulations_are_refused(arguments, error, sentence):
    with pytest.raises(error, match=sentence):
        Accumulation(*arguments)


def test_a_function_must_give_a_format():
    with pytest.raises(TypeError, match=r"dtype\(layer/w\) returned 16; return a Format"):
        Accumulation(2, dtype=lambda v: 16).format_for(variable(BINARY16, 1))


def test_accumulations_say_what_they_are():
    assert str(Accumulation(4, "mean", BINARY32)) == "MEAN of 4 in binary32"
    assert str(Accumulation(4)) == "SUM of 4 in the variable's"
    assert str(Accumulation(4, dtype=lambda v: F143)) == "SUM of 4 in by variable"
