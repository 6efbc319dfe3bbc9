"""Public convolutions: law (gradients are adjoint), shapes, refusals, traps and outputs."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from tests.fpsim.in_partials import conv2d, conv2d_input_gradient, conv2d_weight_gradient
from tests.tiers import pick

UNIT = "V100_F16_F32"
HALF = fp.Context(fp.BINARY16)


def whole(*shape, seed=0):
    """Small whole numbers: every sum is exact."""
    return HALF.array(np.random.default_rng(seed).integers(-3, 4, shape).astype(float))


#: In the quick tier groups have the unit whose kernels for short passes other tests run.
UNITS = [(1, UNIT), (2, "AMP_F16_F32"), (1, "AMP_F16_F32"), (2, UNIT)]


@pytest.mark.parametrize(("groups", "unit"), pick(UNITS[:2], UNITS, UNITS))
@pytest.mark.parametrize(
    ("stride", "padding"), [(1, "SAME"), ((2, 1), "VALID"), (2, ((1, 0), (2, 1)))]
)
def test_gradients_are_adjoint_to_the_convolution(stride, padding, groups, unit):
    choices = {"stride": stride, "padding": padding, "groups": groups}
    x, w = whole(2, 5, 6, 4), whole(3, 2, 4 // groups, 8, seed=1)
    y = conv2d(x, w, unit, **choices)
    g = whole(*y.shape, seed=2)
    to_x = conv2d_input_gradient(g, w, unit, x.shape, **choices)
    to_w = conv2d_weight_gradient(x, g, unit, w.shape, **choices)
    assert (to_x.shape, to_w.shape) == (x.shape, w.shape)
    inner = float((y.values * g.values).sum())
    assert inner == float((to_x.values * x.values).sum()) == float((to_w.values * w.values).sum())
    assert inner != 0


def spread(w, down, across):
    """Kernels with zeros between their elements, written out."""
    kh, kw, *rest = w.shape
    wide = np.zeros(((kh - 1) * down + 1, (kw - 1) * across + 1, *rest))
    wide[::down, ::across] = w.values
    return HALF.array(wide)


@pytest.mark.parametrize(
    ("dilation", "stride", "padding"),
    [((2, 3), 1, "SAME"), (2, (1, 2), "VALID"), ((3, 1), (2, 1), ((4, 0), (1, 2)))],
)
def test_a_dilated_kernel_is_one_spread_by_zeros(dilation, stride, padding):
    choices = {"stride": stride, "padding": padding}
    down, across = (dilation, dilation) if isinstance(dilation, int) else dilation
    x, w = whole(2, 9, 8, 4), whole(3, 2, 4, 8, seed=1)
    wide = spread(w, down, across)
    y = conv2d(x, w, UNIT, dilation=dilation, **choices)
    np.testing.assert_array_equal(y.values, conv2d(x, wide, UNIT, **choices).values)
    g = whole(*y.shape, seed=2)
    to_x = conv2d_input_gradient(g, w, UNIT, x.shape, dilation=dilation, **choices)
    expected = conv2d_input_gradient(g, wide, UNIT, x.shape, **choices)
    np.testing.assert_array_equal(to_x.values, expected.values)
    to_w = conv2d_weight_gradient(x, g, UNIT, w.shape, dilation=dilation, **choices)
    expected = conv2d_weight_gradient(x, g, UNIT, wide.shape, **choices)
    np.testing.assert_array_equal(to_w.values, expected.values[::down, ::across])
    assert to_w.values.any()


def test_the_gaps_of_a_dilated_kernel_are_no_terms():
    """An infinity there would make a NaN with a zero of the kernel."""
    x = np.ones((1, 3, 3, 1))
    x[0, 1, 1, 0] = np.inf
    images, w = HALF.wrap(np.float32(x)), HALF.array(np.ones((2, 2, 1, 1)))
    y = conv2d(images, w, UNIT, padding="VALID", dilation=2)
    assert y.values.ravel().tolist() == [4.0]


@pytest.mark.parametrize("unit", [UNIT, "AMP_F16_F32"])
@pytest.mark.parametrize(
    ("images", "channels", "outputs", "groups"),
    [(0, 2, 5, 1), (0, 6, 6, 6), (2, 2, 0, 1), (2, 0, 2, 1), (0, 0, 0, 1)],
)
def test_convolutions_of_nothing(images, channels, outputs, groups, unit):
    """No images, no channels, no outputs: results of no numbers, and sums of no terms."""
    x, w = (images, 4, 4, channels), (3, 3, channels // groups, outputs)
    y = (images, 4, 4, outputs)
    options = {"padding": "SAME", "groups": groups}
    results = [
        conv2d(HALF.zeros(x), HALF.zeros(w), unit, **options),
        conv2d_input_gradient(HALF.zeros(y), HALF.zeros(w), unit, x, **options),
        conv2d_weight_gradient(HALF.zeros(x), HALF.zeros(y), unit, w, **options),
    ]
    assert [r.shape for r in results] == [y, x, w]
    assert not any(r.values.any() for r in results)


@pytest.mark.parametrize("name", ["padding", "dilation"])
def test_a_frame_that_no_memory_holds_is_refused_by_its_cause(name):
    x, w = whole(1, 4, 4, 8), whole(3, 3, 8, 8)
    padding = ((10**7, 10**7),) * 2
    choices = {"padding": padding} if name == "padding" else {"dilation": 10**7}
    with pytest.raises(ValueError, match=rf"{name}=.* makes \d+ elements of 4 bytes, \d+ GiB"):
        conv2d(x, w, UNIT, **choices)


def test_what_is_no_dilation_is_refused():
    x, w = whole(1, 4, 4, 2), whole(3, 3, 2, 5)
    for wrong in (0, True, 1.5, (2, 0), (1, 2, 3), None):
        with pytest.raises(ValueError, match="dilation="):
            conv2d(x, w, UNIT, dilation=wrong)
    with pytest.raises(ValueError, match=r"3x3, 7x7 with dilation=3, does not fit into 4x4"):
        conv2d(x, w, UNIT, padding="VALID", dilation=3)
    with pytest.raises(ValueError, match="gradient"):
        conv2d_input_gradient(whole(1, 2, 2, 5), w, UNIT, x.shape, dilation=2)


def test_what_does_not_fit_is_refused():
    x, w = whole(1, 4, 4, 2), whole(3, 3, 2, 5)
    for wrong in ({"stride": 0}, {"padding": "FULL"}, {"groups": 3}):
        with pytest.raises((ValueError, TypeError)):
            conv2d(x, w, UNIT, **wrong)
    with pytest.raises(ValueError, match="channels"):
        conv2d(x, whole(3, 3, 3, 5), UNIT)
    with pytest.raises(TypeError, match="w is ndarray"):
        conv2d(x, w.values, UNIT)
    with pytest.raises(TypeError, match="gradient is ndarray"):
        conv2d_input_gradient(np.ones((1, 4, 4, 5)), w, UNIT, x.shape)
    for call in (
        lambda g: conv2d_input_gradient(g, w, UNIT, x.shape),
        lambda g: conv2d_weight_gradient(x, g, UNIT, w.shape),
    ):
        with pytest.raises(ValueError, match="gradient"):
            call(whole(1, 3, 4, 5))


def test_a_trap_shows_the_window_and_the_kernel_of_the_first_output():
    x, w = np.zeros((1, 3, 3, 2)), np.zeros((1, 2, 2, 1))
    x[0, 1, 1, 0], x[0, 0, 0, 0], w[0, 1, 0] = np.inf, 7.0, 2.0
    context = fp.Context(fp.BINARY16, traps=fp.Flags.INVALID, rounding=fp.SR(3))
    out = context.zeros((1, 3, 2, 1))
    with pytest.raises(fp.FloatingPointTrap) as caught:
        conv2d(HALF.array(x), HALF.array(w), UNIT, padding="VALID", context=context, out=out)
    trap = caught.value
    assert (trap.operation, trap.index) == ("conv2d", (0, 1, 1, 0))
    window, kernel = (np.ravel(o)[::4].tolist() for o in trap.operands)  # passes of 4 channels
    assert (window, kernel) == ([np.inf, 0.0], [0.0, 2.0])
    assert (context.operation, context.flags) == (0, fp.Flags.INVALID)
    assert not out.values.any()


def test_an_output_is_filled_or_refused():
    x, w = whole(1, 4, 4, 2), whole(3, 3, 2, 5)
    wanted = conv2d(x, w, UNIT, context=HALF).values
    out = HALF.zeros(wanted.shape)
    assert conv2d(x, w, UNIT, context=HALF, out=out) is out
    np.testing.assert_array_equal(out.values, wanted)
    with pytest.raises(ValueError, match="out has shape"):
        conv2d(x, w, UNIT, context=HALF, out=HALF.zeros(3))
    with pytest.raises(TypeError, match="out is binary16"):
        conv2d(x, w, UNIT, out=out)
