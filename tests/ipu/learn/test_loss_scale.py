"""Loss scales: traces with known answers, laws of powers of two, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, FloatingPointTrap
from ipu.learn import ops
from ipu.learn.accumulate import Accumulation
from ipu.learn.automatic_loss_scale import (
    PRODUCTS,
    AutomaticLossScale,
    Histogram,
    KerasLossScale,
)
from ipu.learn.loss_scale import (
    EPSILON,
    LEARNING_RATE,
    DynamicLossScale,
    NoLossScale,
    StaticLossScale,
    Statistic,
    find_loss_scale,
)
from ipu.learn.optim import SGD, Adam, AdamW, RMSProp
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.tensor import gradients
from ipu.learn.variables import Variable
from ipu.machine import POPLAR_STRUCT_DEFAULT, Device, FpCtl
from tests.ipu.learn.small import LABELS, X, codes, trained, trainer

NANOO = FpCtl(nanoo=True)


# Static -----------------------------------------------------------------------------------------


@pytest.mark.source("S4-29")
def test_gradients_are_linear_in_powers_of_two():
    found = []
    for scale in (NoLossScale(), StaticLossScale(4096.0)):
        made = trainer(loss_scale=scale)
        found.append([g.values for g, _ in made.scaled_gradients(made.loss(X, LABELS))])
    for plain, scaled in zip(*found, strict=True):
        assert (scaled == 4096 * plain).all()


@pytest.mark.source("S4-31")
@pytest.mark.source("S4-34")
def test_both_ways_back_give_the_weights_of_no_scaling():
    """In binary32 a power of two only moves exponents: not one bit differs."""
    scales = (NoLossScale(), StaticLossScale(256.0), StaticLossScale(256.0, LEARNING_RATE))
    plain, divided, slower = (trained(loss_scale=s)[0] for s in scales)
    assert codes(plain) == codes(divided) == codes(slower)
    for name, (momentum,) in plain.slots.items():
        assert (divided.slots[name][0].values == momentum.values).all()
        assert (slower.slots[name][0].values == 256 * momentum.values).all()


@pytest.mark.source("S4-32")
@pytest.mark.parametrize("optimizer", [SGD(0.05, 0.9), Adam(0.01, epsilon=1e-4)], ids=str)
def test_the_mixed_training_loop_reports_the_unscaled_loss(optimizer):
    plain, scaled = (
        trained(optimizer=optimizer, policy=MIXED, loss_scale=s)
        for s in (NoLossScale(), StaticLossScale(256.0))
    )
    assert scaled[1][0] == plain[1][0]
    assert scaled[1] == pytest.approx(plain[1], rel=1e-3)
    assert {v.dtype for v in scaled[0].variables.values()} == {BINARY32}


@pytest.mark.source("S4-33")
def test_dividing_half_gradients_underflows_again_and_single_ones_do_not():
    scale = StaticLossScale(256.0)
    device = Device()
    half = device.from_host([2.0**-18], BINARY16)
    w = Variable(device.zeros((1,), BINARY16), device, "w")
    assert [g.values.tolist() for g, _ in scale.unscale(device, [(half, w)])] == [[0.0]]
    single = device.cast(half, BINARY32)
    assert [g.values.tolist() for g, _ in scale.unscale(device, [(single, w)])] == [[2.0**-26]]


@pytest.mark.source("S4-35")
def test_the_divided_rate_of_the_tutorial_rounds_as_published():
    rate = Device().from_host(0.01 / 256, BINARY16)
    assert float(rate) == pytest.approx(3.9041e-5, abs=5e-10)


@pytest.mark.source("S4-30")
def test_the_highest_loss_scale_is_found_with_the_traps_armed():
    def step(scale):
        made = trainer(
            policy=FP16, loss_scale=StaticLossScale(scale), control=POPLAR_STRUCT_DEFAULT
        )
        made.scaled_gradients(made.loss(X, LABELS))

    best = find_loss_scale(step)
    step(best)
    with pytest.raises(FloatingPointTrap, match="OVERFLOW"):
        step(2 * best)
    assert find_loss_scale(step, range(24, 25)) is None


@pytest.mark.source("S4-30")
def test_wide_accumulators_let_the_loss_scale_be_higher():
    def highest(dtype):
        def step(scale):
            made = trainer(
                policy=FP16, loss_scale=StaticLossScale(scale), control=POPLAR_STRUCT_DEFAULT,
                accumulation=Accumulation(8, dtype=dtype), optimizer=SGD(1e-3, format=BINARY32),
            )  # fmt: skip
            made.step(X, LABELS)

        return find_loss_scale(step, range(13, 20))

    assert highest(BINARY32) > highest(None)


def test_other_exceptions_are_not_taken_for_a_scale_too_high():
    def step(scale):
        device = Device(control=POPLAR_STRUCT_DEFAULT)
        device.divide(device.from_host([1.0], BINARY16), device.zeros((1,), BINARY16))

    with pytest.raises(FloatingPointTrap, match="DIVBYZERO"):
        find_loss_scale(step)


SCALES = (StaticLossScale, DynamicLossScale, AutomaticLossScale, KerasLossScale)


@pytest.mark.parametrize("bad", [0, -1.0, float("inf"), float("nan"), 1e39])
@pytest.mark.parametrize("kind", SCALES)
def test_impossible_loss_scales_are_refused(kind, bad):
    with pytest.raises(ValueError, match="is no loss scale; use a finite positive number"):
        kind(bad)


def test_what_is_no_number_and_unknown_routes_are_refused():
    with pytest.raises(TypeError, match="factor='256' is not a number"):
        StaticLossScale("256")
    with pytest.raises(ValueError, match="route='momentum' is not known"):
        StaticLossScale(2.0, "momentum")


@pytest.mark.source("S4-34")
@pytest.mark.source("S4-36")
def test_a_route_fits_the_optimiser():
    with pytest.raises(ValueError, match=r"does not undo a loss scale for Adam\(.*use route='eps"):
        trainer(optimizer=Adam(), loss_scale=StaticLossScale(2.0, LEARNING_RATE))
    with pytest.raises(ValueError, match=r"does not undo .* for SGD\(.*use route='learning_rate'"):
        trainer(loss_scale=StaticLossScale(2.0, EPSILON))


# Dynamic ----------------------------------------------------------------------------------------


class Gradients:
    """Scaled gradients as a loss scale gets them."""

    def __init__(self, *values):
        device = Device(control=NANOO)
        w = Variable(device.zeros((len(values),), BINARY16), device, "layer/w")
        array = Device(control=NANOO).context(BINARY16).wrap(np.array(values, np.float32))
        self.pairs = [(array, w)]


CLEAN, SPOILT = Gradients(1.0).pairs, Gradients(1.0, np.inf).pairs


def after(scale, *steps):
    """The values that follow steps with these gradients."""
    values = []
    for pairs in steps:
        scale = scale.successor(pairs, Statistic())
        values.append(scale.value)
    return values


@pytest.mark.source("published P4: torch.amp.GradScaler")
def test_the_dynamic_scale_s_published_trace():
    values = after(DynamicLossScale(), *[CLEAN] * 2000, SPOILT, *[CLEAN] * 2000)
    assert values[1998] == 65536
    assert values[1999] == 131072
    assert values[2000] == 65536
    assert set(values[2001:4000]) == {65536}
    assert values[4000] == 131072


@pytest.mark.source("published P4: torch.amp.GradScaler")
def test_a_spoilt_step_starts_the_count_of_clean_ones_again():
    values = after(DynamicLossScale(8.0, interval=3), CLEAN, CLEAN, SPOILT, CLEAN, CLEAN, CLEAN)
    assert values == [8, 8, 4, 4, 4, 8]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_steps_with_gradients_that_are_not_finite_are_not_applied(bad):
    scale = DynamicLossScale()
    assert scale.applies(CLEAN)
    assert not scale.applies([*CLEAN, *Gradients(bad).pairs])


def test_the_scale_stays_in_binary32_and_a_hopeless_model_is_told():
    assert after(DynamicLossScale(2.0**127, interval=1), CLEAN, CLEAN) == [2.0**127] * 2
    with pytest.raises(RuntimeError, match="the model itself overflows: look at its counters"):
        after(DynamicLossScale(2.0**-126), SPOILT)


def test_a_skipped_step_changes_the_scale_alone():
    made = trainer(policy=FP16, control=NANOO, loss_scale=DynamicLossScale(2.0**24))
    made.forward(X)
    before = codes(made)
    made.step(X, LABELS)
    assert codes(made) == before
    assert (made.applied, made.slots, made.loss_scale.value) == (False, {}, 2.0**23)
    while not made.applied:
        made.step(X, LABELS)
    assert codes(made) != before
    assert made.loss_scale.value < 2.0**23


@pytest.mark.parametrize("policy", [FP16, MIXED])
def test_dynamic_scaling_refuses_a_machine_that_saturates(policy):
    with pytest.raises(ValueError, match=r"with nanoo=False an overflow saturates; use FpCtl\(nan"):
        trainer(policy=policy, loss_scale=DynamicLossScale())
    trainer(policy=FP32, loss_scale=DynamicLossScale())


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [({"growth": 1.0}, "growth=1.0 is no growth"), ({"backoff": 1.0}, "backoff=1.0 is out of"),
     ({"interval": 0}, "interval=0 is out of range; use 1 or more")],
)  # fmt: skip
def test_impossible_dynamic_scales_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        DynamicLossScale(**choices)


# Slots of scaled gradients ----------------------------------------------------------------------


@pytest.mark.source("S4-34")
@pytest.mark.source("S4-36")
@pytest.mark.parametrize(
    ("optimizer", "route"),
    [(SGD(0.05, 0.9), LEARNING_RATE), (SGD(0.05, 0.9, nesterov=True), LEARNING_RATE),
     (Adam(0.01), EPSILON), (AdamW(0.01), EPSILON), (RMSProp(0.01, momentum=0.5), EPSILON)],
    ids=str,
)  # fmt: skip
def test_slots_follow_a_changing_scale(optimizer, route):
    """Doubled after every step; in binary32 not a bit of the weights differs from no scaling."""
    growing = DynamicLossScale(1024.0, route, interval=1)
    plain, scaled = (
        trained(4, optimizer=optimizer, loss_scale=s, f32_denormals="ieee")[0]
        for s in (NoLossScale(), growing)
    )
    assert scaled.loss_scale.value == 16384
    assert codes(plain) == codes(scaled)


@pytest.mark.source("Graphcore Keras: optimizers/gradient_descent.py, ALSOptimizerSGD")
def test_momentum_of_scaled_gradients_is_the_keras_specialisation_s():
    """m = alpha · (sigma / sigma before) · m + g, w = w - (eta / sigma) · m, all in binary32."""
    single, rng = np.float32, np.random.default_rng(6)
    device = Device(f32_denormals="ieee")
    start = rng.normal(size=20).astype(single)
    w = Variable(device.from_host(start, BINARY32), device, "layer/w")
    optimizer, slots, before = SGD(0.03, 0.9), {}, 64.0
    expected, m = start, np.zeros(20, single)
    for sigma in (64.0, 64.0, 128.0, 32.0, 1024.0):
        g = (rng.normal(size=20) * sigma).astype(single)
        slots = optimizer.rescaled(device, slots, sigma / before)
        pairs = [(device.from_host(g, BINARY32), w)]
        slots = optimizer.for_scaled(sigma).apply_gradients(pairs, slots)
        m = single(0.9) * single(sigma / before) * m + g
        expected = expected - single(0.03) / single(sigma) * m
        before = sigma
        assert (w.array.values == expected).all()


# PopART's rule ----------------------------------------------------------------------------------


def seen(lower, upper):
    statistic = Histogram(8188.0)
    statistic.lower, statistic.upper = lower, upper
    return statistic


@pytest.mark.source("PopART: lossscaleupdatex.cpp")
def test_the_scale_is_halved_above_the_threshold_and_else_doubled():
    scale = AutomaticLossScale(64.0, threshold=0.25)
    for lower, upper, value in ((3, 1, 128), (2, 1, 32), (0, 5, 32), (9, 0, 128), (75, 26, 32)):
        assert scale.successor([], seen(lower, upper)).value == value
    usual = AutomaticLossScale(64.0)
    assert usual.successor([], seen(9_999_900, 1)).value == 32
    assert usual.successor([], seen(10_000_100, 1)).value == 128


@pytest.mark.source("PopART: automaticlossscaling.cpp")
def test_the_edge_is_an_eighth_of_the_largest_half():
    statistic = AutomaticLossScale().statistic()
    assert statistic.edge == 8188
    values = [8184.0, -8184.0, 8188.0, -65504.0, 0.0, np.nan, np.inf]
    statistic.add(Gradients(*values).pairs[0][0])
    statistic.add(Device().from_host([1e30], BINARY32))
    assert (statistic.lower, statistic.upper) == (3, 4)


@pytest.mark.source("PopART: automaticlossscaling.cpp")
def test_the_scale_changes_once_in_a_period_by_the_first_step_s_statistic():
    scale, values = AutomaticLossScale(1.0, period=3), []
    for _ in range(7):
        due = isinstance(scale.statistic(), Histogram)
        scale = scale.successor([], seen(1, 0) if due else Statistic())
        values.append(scale.value)
    assert values == [2, 2, 2, 4, 4, 4, 8]


@pytest.mark.parametrize("tracked", ["all", PRODUCTS, ("all_vars/output",), ("nowhere",)])
def test_gradients_of_the_backward_pass_are_counted(tracked):
    """Against a list of all of them: dense layers give bias, input and weights; then relu, loss."""
    made = trainer(policy=MIXED, loss_scale=AutomaticLossScale(2.0**20, tracked=tracked))
    statistic, every = made.loss_scale.statistic(), []
    loss = made.loss(X, LABELS)

    def both(node, gradient):
        every.append((node, gradient))
        Histogram.watch(statistic, node, gradient)

    wanted = {
        "all": lambda node: True, PRODUCTS: lambda node: node.primitive.name == "matmul",
        ("all_vars/output",): lambda node: node.layer == "all_vars/output",
        ("nowhere",): lambda node: False,
    }[tracked]  # fmt: skip
    made.scaled_gradients(loss, statistic)
    watched = trainer(policy=MIXED, loss_scale=made.loss_scale)
    other = Statistic()
    other.watch = lambda node, gradient: every.append((node, gradient))
    watched.scaled_gradients(watched.loss(X, LABELS), other)
    halves = [g.values for node, g in every if g.format == BINARY16 and wanted(node)]
    large = sum(int((np.abs(g) >= 8188).sum()) for g in halves)
    assert (statistic.upper, statistic.lower) == (large, sum(g.size for g in halves) - large)
    assert bool(large) == bool(halves)


def test_views_are_not_counted_again():
    device = Device()
    x = Variable(device.zeros((4,), BINARY16), device, "layer/x")
    y = ops.reshape(ops.relu(x), shape=(2, 2))
    statistic = AutomaticLossScale().statistic()
    gradients(y, [x], device.zeros((2, 2), BINARY16), statistic.watch)
    assert (statistic.lower, statistic.upper) == (4, 0)


@pytest.mark.parametrize("control", [FpCtl(), NANOO])
def test_automatic_rules_run_with_either_overflow_and_apply_every_step(control):
    keras = KerasLossScale(2.0**18, frequency=1, largest=2.0**20)
    for policy, scale in ((MIXED, AutomaticLossScale(2.0**24)), (FP16, keras)):
        made = trainer(policy=policy, control=control, loss_scale=scale)
        made.forward(X)
        before = codes(made)
        made.step(X, LABELS)
        assert made.applied
        assert codes(made) != before
        assert made.loss_scale.value == scale.value / 2


@pytest.mark.source("PopTorch: tests/als_test.py")
def test_weights_do_not_depend_on_the_rule_that_moves_the_scale():
    fixed, moved = (
        trained(3, policy=MIXED, loss_scale=s)[0]
        for s in (StaticLossScale(1024.0), AutomaticLossScale(1024.0))
    )
    assert moved.loss_scale.value == 1024 * 8
    assert codes(fixed) == codes(moved)


def test_training_without_binary16_gradients_is_refused_and_nothing_changes():
    made = trainer(policy=FP32, loss_scale=AutomaticLossScale())
    made.forward(X)
    before = codes(made)
    with pytest.raises(ValueError, match="found no binary16 gradients"):
        made.step(X, LABELS)
    assert codes(made) == before


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [({"bin_edge": 0.0}, "bin_edge=0.0 is out of range"),
     ({"threshold": 1.0}, "threshold=1.0 is out of range"),
     ({"period": 0}, "period=0 is out of range"),
     ({"tracked": "weights"}, "tracked='weights' is not known")],
)  # fmt: skip
def test_impossible_automatic_scales_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        AutomaticLossScale(**choices)


# The Keras optimiser's rule ---------------------------------------------------------------------


def followed(scale, *statistics):
    values = []
    for statistic in statistics:
        scale = scale.successor([], statistic)
        values.append(scale.value)
    return scale, values


@pytest.mark.source("Graphcore Keras: als_optimizer_test.py")
def test_the_first_change_comes_with_the_call_after_the_frequency():
    fine = seen(1, 0)
    scale, values = followed(KerasLossScale(), *[fine] * 8)
    assert set(values) == {1}
    assert scale.histogram == (8, 0)
    scale, values = followed(scale, fine)
    assert (values, scale.histogram, scale.count) == ([2], (0, 0), 0)
    assert followed(scale, *[fine] * 9)[1] == [2] * 8 + [4]
    assert followed(KerasLossScale(frequency=1), *[fine] * 3)[1] == [2, 4, 8]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_the_share_of_large_gradients_over_the_whole_period_decides():
    spoilt, fine = seen(0, 1), seen(1000, 0)
    start = KerasLossScale(64.0, frequency=2)
    assert followed(start, spoilt, fine, fine)[1] == [64, 64, 32]
    assert followed(KerasLossScale(64.0, frequency=2, accumulate=False),
                    *(Statistic(), Statistic(), fine))[1] == [64, 64, 128]  # fmt: skip
    few = KerasLossScale(64.0, frequency=1, threshold=0.01)
    assert followed(few, seen(99, 1))[1] == [128]
    assert followed(few, seen(98, 2))[1] == [32]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_statistics_are_taken_when_they_are_used():
    at_all = KerasLossScale(frequency=2)
    at_last = KerasLossScale(frequency=2, accumulate=False)
    taken = []
    for scale in (at_all, at_last):
        for _ in range(3):
            statistic = scale.statistic()
            taken.append(isinstance(statistic, Histogram))
            scale = scale.successor([], statistic)
    assert taken == [True, True, True, False, False, True]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_the_scale_stays_from_one_to_below_the_largest():
    fine, spoilt = seen(1, 0), seen(0, 1)
    assert followed(KerasLossScale(8192.0, frequency=1), fine, fine)[1] == [16384, 16384]
    assert followed(KerasLossScale(2.0, frequency=1), spoilt, spoilt)[1] == [1, 1]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_the_filter_keeps_a_share_of_the_old_counts():
    scale = KerasLossScale(frequency=4, filter=0.75)
    scale, _ = followed(scale, seen(16, 8))
    assert scale.histogram == (4, 2)
    scale, _ = followed(scale, seen(16, 0))
    assert scale.histogram == (0.75 * 4 + 0.25 * 20, 2)


def test_gradients_of_variables_are_counted():
    made = trainer(policy=FP16, loss_scale=KerasLossScale(2.0**17, largest=2.0**20))
    statistic = made.loss_scale.statistic()
    pairs = made.scaled_gradients(made.loss(X, LABELS), statistic)
    large = sum(int((np.abs(g.values) >= 8192).sum()) for g, _ in pairs)
    assert (statistic.upper, statistic.lower) == (large, sum(g.size for g, _ in pairs) - large)


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [({"factor": 3.0}, "initial=3.0 is no power of two"),
     ({"increase": 3.0}, "increase=3.0 is no power of two"),
     ({"largest": 1000.0}, "largest=1000.0 is no power of two"),
     ({"factor": 16384.0, "increase": 2.0}, "leaves no room below largest=32768"),
     ({"increase": 1.0}, "increase must be above 1"),
     ({"frequency": 0}, "frequency=0 is out of range"),
     ({"threshold": 0.0}, "threshold=0.0 is out of range"),
     ({"filter": 1.5}, "filter=1.5 is out of range")],
)  # fmt: skip
def test_impossible_keras_scales_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        KerasLossScale(**choices)
