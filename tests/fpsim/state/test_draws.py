"""Which operations take a number, and which bits each draws (law).

The rule is that of docs/semantics.md §2: a call counts by its name and the settings of its result,
never by shapes, data or what the unit stores.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.linalg import dot
from fpsim.operations import divide_by
from fpsim.state.bits import Replay
from fpsim.state.draws import draw, draw_places
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from tests.fpsim.in_partials import (
    conv2d,
    conv2d_input_gradient,
    conv2d_weight_gradient,
    k_split,
    matmul,
)
from tests.tiers import pick

SHAPES = [(0,), (1,), (3,), (0, 3), (1, 1), ()]
UNITS = ["V100_F16_F32", "V100_F16_F16", *pick([], *[["H100_F16_F16"]] * 2)]


def context(fmt=fp.BINARY16, **choices):
    return fp.Context(fmt, rounding=fp.SR(8), **choices)


def array(shape, fmt=fp.BINARY16):
    return fp.Context(fmt).array(np.ones(shape))


ELEMENTWISE = {
    "add": lambda c, x: c.add(x, x),
    "subtract": lambda c, x: c.subtract(x, 1.0),
    "multiply": lambda c, x: c.multiply(x, x),
    "divide": lambda c, x: c.divide(x, 3.0),
    "divide_by": lambda c, x: divide_by(c.core, x, 3.0),
    "sqrt": lambda c, x: c.sqrt(x),
    "fma": lambda c, x: c.fma(x, x, x),
    "round_to_integral": lambda c, x: c.round_to_integral(x),
    "to_integers": lambda c, x: c.to_integers(x, "int32"),
    "exp": lambda c, x: c.exp(x),
    "log": lambda c, x: c.log(x),
    "tanh": lambda c, x: c.tanh(x),
    "sigmoid": lambda c, x: c.sigmoid(x),
    "rsqrt": lambda c, x: c.rsqrt(x),
    "erf": lambda c, x: c.erf(x),
    "convert within the format": lambda c, x: c.array(x),
    "convert": lambda c, x: c.array(fp.Context(fp.BINARY32).array(np.ones(x.shape))),
    "array": lambda c, x: c.array(np.ones(x.shape)),
    "sum": lambda c, x: c.sum(x),
    "sum over the last axis": lambda c, x: c.sum(x, -1 if x.ndim else None),
    "exact sum": lambda c, x: c.sum(x, order="exact"),
    "kahan sum": lambda c, x: c.sum(x, order="kahan"),
    "mean": lambda c, x: c.mean(x),
}

UNCOUNTED = {
    "negative": lambda c, x: c.negative(x),
    "absolute": lambda c, x: c.absolute(x),
    "maximum": lambda c, x: c.maximum(x, x),
    "fmin": lambda c, x: c.fmin(x, 0.5),
    "ieee_remainder": lambda c, x: c.ieee_remainder(x, 3.0),
    "fmod": lambda c, x: c.fmod(x, 3.0),
    "equal": lambda c, x: c.equal(x, x),
    "less": lambda c, x: c.less(x, 2.0),
    "constant": lambda c, x: c.constant(0.1),
    "wrap": lambda c, x: c.wrap(x.values),
    "zeros": lambda c, x: c.zeros(x.shape),
    "views": lambda c, x: x.reshape(-1)[:1].T,
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("verb", ELEMENTWISE)
def test_every_call_that_rounds_takes_one_number(verb, shape):
    stochastic, nearest = context(), fp.Context(fp.BINARY16)
    for _ in range(2):
        ELEMENTWISE[verb](stochastic, array(shape))
        ELEMENTWISE[verb](nearest, array(shape))
    assert (stochastic.operation, nearest.operation) == (2, 0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("verb", UNCOUNTED)
def test_what_rounds_nothing_takes_no_number(verb, shape):
    stochastic = context()
    UNCOUNTED[verb](stochastic, array(shape))
    assert stochastic.operation == 0


def test_decimal_texts_and_inner_products_count():
    stochastic = context()
    stochastic.decimal("0.1")
    stochastic.decimal([])
    dot(array(0), array(0), context=stochastic)
    dot(array(1), array(1), context=stochastic)
    assert stochastic.operation == 4


@pytest.mark.parametrize("unit", [None, *UNITS])
@pytest.mark.parametrize(("m", "k", "n"), [(2, 3, 2), (1, 1, 1), (2, 0, 2), (0, 3, 2), (2, 3, 0)])
def test_products_count_whatever_the_unit_stores(unit, m, k, n):
    for fmt in (fp.BINARY16, fp.BINARY32):
        if unit in ("V100_F16_F16", "H100_F16_F16") and fmt == fp.BINARY32:
            continue
        stochastic = context(fmt)
        inputs = fmt if unit is None else fp.BINARY16
        stochastic.matmul(array((m, k), inputs), array((k, n), inputs), unit)
        assert stochastic.operation == 1


@pytest.mark.parametrize("unit", UNITS)
def test_split_products_and_convolutions_count(unit):
    stochastic = context()
    k_split(array((2, 64)), array((64, 2)), unit, 2, context=stochastic)
    # As many channels as a pass of the V100 has: others are kernels of their own.
    x, w, g = array((1, 3, 3, 4)), array((2, 2, 4, 4)), array((1, 3, 3, 4))
    conv2d(x, w, unit, context=stochastic)
    conv2d_input_gradient(g, w, unit, x.shape, context=stochastic)
    conv2d_weight_gradient(x, g, unit, w.shape, context=stochastic)
    conv2d(array((0, 3, 3, 4)), w, unit, context=stochastic)
    assert stochastic.operation == 5


@pytest.mark.parametrize("traps", [fp.Flags.NONE, fp.Flags.INVALID])
def test_a_call_that_ends_in_an_error_or_a_trap_takes_none(traps):
    stochastic = context(traps=traps)
    with pytest.raises(ValueError, match="do not broadcast"):
        stochastic.add(array(2), array(3))
    with pytest.raises(ValueError, match="out has shape"):
        stochastic.sum(array((2, 3)), 0, out=np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="last dimension"):
        stochastic.matmul(array((2, 3)), array((2, 3)), "V100_F16_F16")
    assert stochastic.operation == 0
    if traps:
        infinity = array(2) * np.inf
        for call in (
            lambda: stochastic.subtract(infinity, infinity),
            lambda: stochastic.sum(fp.Context(fp.BINARY16).array([np.inf, -np.inf])),
            lambda: stochastic.matmul(infinity.reshape(1, 2), array((2, 1)) * 0.0),
            lambda: matmul(
                infinity.reshape(1, 2), array((2, 1)) * 0.0, "V100_F16_F16", context=stochastic
            ),
        ):
            with pytest.raises(fp.FloatingPointTrap):
                call()
        assert stochastic.operation == 0


def test_integers_handed_over_have_the_shape_of_the_layout_also_where_nothing_rounds():
    layouts = [
        (lambda c: c.sum(array(1)), (0,)),
        (lambda c: c.sum(array((3, 0)), 1), (0, 3)),
        (lambda c: c.sum(array((3, 1)), 1, order="exact"), (1, 3)),
        (lambda c: c.mean(array((3, 1)), 1), (1, 3)),
        (lambda c: c.matmul(array((2, 0)), array((0, 3))), (0, 2, 3)),
        (lambda c: c.matmul(array((2, 3)), array((3, 2)), "V100_F16_F16"), (0, 2, 2)),
        (lambda c: c.matmul(array((2, 3)), array((3, 2)), "V100_F16_F32"), (1, 2, 2)),
        (lambda c: c.add(array((0, 2)), 1.0), (0, 2)),
    ]
    for call, shape in layouts:
        replayed = context(bits=Replay([np.zeros(shape, np.uint32)]))
        call(replayed)
        assert replayed.operation == 1
        with pytest.raises(ValueError, match="random bits"):
            call(context(bits=Replay([np.zeros((7, 7), np.uint32)])))


def test_xoroshiro_advances_by_what_it_draws():
    for call, drawn in (
        (lambda c: c.sum(array(1)), 0),
        (lambda c: c.add(array((0, 2)), 1.0), 0),
        (lambda c: c.add(array(5), 1.0), 2),
        (lambda c: c.sum(array(9)), 2),
    ):
        one = context(bits=fp.Xoroshiro128aox(7))
        before = one.core.source.state
        call(one)
        assert one.operation == 1
        assert (one.core.source.state == before) == (drawn == 0)


@pytest.mark.parametrize("quiet", [False, True])
def test_a_device_counts_products_also_where_its_stores_are_to_nearest(quiet):
    device = Device(control=FpCtl(esr=True), disable_sr_for_amp_vertices=quiet)
    x = device.from_host(np.ones((2, 16)), fp.BINARY16)
    y = device.from_host(np.ones((16, 2)), fp.BINARY16)
    device.matmul(x, y)
    device.matmul(x, y, partials=fp.BINARY16)
    device.random_mask((3,), 0.5)
    device.cast(x, fp.BINARY16)
    assert device.clock.operation == 3


def test_elements_of_a_shard_are_numbered_in_the_whole_and_a_number_is_not_in_it():
    context = fp.Context(fp.BINARY16, rounding=fp.SR(13), seed=3)
    context.core.clock.first = 40
    assert draw(context.core, (5,)).first == 40
    assert draw(context.core, ()).first == 0
    with pytest.raises(ValueError, match="first=40: a sum or product of a shard rounds stochastic"):
        draw_places(context.core, range(2), (3,))
