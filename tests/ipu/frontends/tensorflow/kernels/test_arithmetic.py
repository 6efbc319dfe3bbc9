"""Element by element: as TensorFlow in float32, as numpy's binary16 in half (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

x, y = numbers(5, 3), numbers(5, 3, seed=1, low=0.1)
positive = np.abs(y)
raw = tf.raw_ops

CASES = {
    "AddV2": (lambda a, b: a + b, x, y[:, :1]),
    "Add": (lambda a, b: raw.Add(x=a, y=b), x, y),
    "Sub": (lambda a, b: a - b, x, y[0]),
    "Mul": (lambda a, b: a * b, x, y),
    "RealDiv": (lambda a, b: a / b, x, y),
    "Div": (lambda a, b: raw.Div(x=a, y=b), x, y),
    "Maximum": (tf.maximum, x, y),
    "Minimum": (tf.minimum, x, y),
    "Sqrt": (tf.sqrt, positive),
    "SqrtGrad": (tf.sqrt, positive),
    "Rsqrt": (tf.math.rsqrt, positive),
    "RsqrtGrad": (tf.math.rsqrt, positive),
    "Exp": (tf.exp, x),
    "Log": (tf.math.log, positive),
    "Tanh": (tf.tanh, x),
    "TanhGrad": (tf.tanh, x),
    "Sigmoid": (tf.sigmoid, x),
    "SigmoidGrad": (tf.sigmoid, x),
    "Erf": (tf.math.erf, x),
    "Neg": (lambda a: -a, x),
    "Abs": (lambda a: a * tf.abs(a), y),
    "Sign": (lambda a: a * tf.sign(a), y),
    "Floor": (lambda a: a * tf.floor(a), x),
    "Ceil": (lambda a: a * tf.math.ceil(a), x),
    "Rint": (lambda a: a * tf.math.rint(2 * a), x),
    "Round": (lambda a: a * tf.round(2 * a), x),
    "FloorDiv": (lambda a, b: a * tf.math.floordiv(a, b), x, y),
    "ClipByValue": (lambda a: tf.saturate_cast(a * 100, tf.int8), x),
    "Xdivy": (tf.math.xdivy, np.where(x > 0, x, 0).astype(np.float32), y),
    "Xlogy": (tf.math.xlogy, np.where(x > 0, x, 0).astype(np.float32), positive),
    "Xlog1py": (tf.math.xlog1py, np.where(x > 0, x, 0).astype(np.float32), positive),
    "ReciprocalGrad": (lambda a: raw.ReciprocalGrad(y=a, dy=a), y),
    "InvGrad": (lambda a: raw.InvGrad(y=a, dy=a), y),
    "Square": (tf.square, x),
    "SquaredDifference": (tf.math.squared_difference, x, y),
    "Reciprocal": (lambda a: raw.Reciprocal(x=a), y),
    "DivNoNan": (tf.math.divide_no_nan, x, np.where(x > 0, y, 0).astype(np.float32)),
    "MulNoNan": (tf.math.multiply_no_nan, x, np.where(x > 0, y, 0).astype(np.float32)),
    "AddN": (lambda a, b: tf.add_n([a, b, a]), x, y),
    "Pow": (lambda a: a**3 + a**0.5 + tf.constant(0.9) ** a, positive),
    "Relu": (tf.nn.relu, x),
    "ReluGrad": (tf.nn.relu, x),
    "Less": (lambda a, b: a < b, x, y),
    "LessEqual": (lambda a, b: a <= b, x, x),
    "Greater": (lambda a, b: a > b, x, y),
    "GreaterEqual": (lambda a, b: a >= b, x, x),
    "Equal": (lambda a, b: raw.Equal(x=a, y=b), x, x),
    "NotEqual": (lambda a, b: raw.NotEqual(x=a, y=b), x, y),
    "IsNan": (tf.math.is_nan, x),
    "IsInf": (tf.math.is_inf, x),
    "IsFinite": (tf.math.is_finite, x),
}

#: TensorFlow has none, or it is made of nodes that have their own cases.
NO_GRADIENT = {"ClipByValue"}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    function, *arguments = CASES[node]
    agree(node, function, *arguments, gradients=node not in NO_GRADIENT)


@pytest.mark.parametrize(
    ("function", "expected"),
    [(lambda a, b: a + b, np.add), (lambda a, b: a * b, np.multiply),
     (lambda a, b: a / b, np.divide), (lambda a, b: a - b, np.subtract)],
)
def test_halves_are_rounded_once(function, expected):
    a, b = half(40), half(40, seed=1, low=0.1)
    (result,), _ = on_machine(function, a, b)
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result.view(np.uint16), expected(a, b).view(np.uint16))


def test_a_test_for_infinities_of_gradients_is_refused_where_overflow_saturates():
    def looks(a):
        with tf.GradientTape() as tape:
            tape.watch(a)
            loss = tf.reduce_sum(a * a)
        return tf.reduce_all(tf.math.is_finite(tape.gradient(loss, a)))

    big = tf.constant(half(3) + np.float16(60000))
    with machine(), pytest.raises(RuntimeError, match="looks for infinities in gradients, and"):
        launch(tf.function(looks), big)
    with machine():
        configured(nanoo=True)
        assert not launch(tf.function(looks), big)
    with machine(found_inf="status"):
        assert not launch(tf.function(looks), big)
        assert launch(tf.function(looks), tf.constant(half(3)))


def scaled(kind):
    """A loss scaler's test of the gradient of a weight in float32, computed in another format."""
    w = tf.Variable([3.0, 0.5])

    def slope(x):
        with tf.GradientTape() as tape:
            y = tf.cast(w, kind) * tf.cast(x, kind)
            loss = tf.reduce_sum(tf.cast(y, tf.float32)) * 16384.0
        return tape.gradient(loss, w)

    def alone(x):
        return tf.reduce_all(tf.math.is_finite(slope(x)))

    def any_infinite(x):
        return not tf.reduce_any(tf.math.is_inf(slope(x)))

    def in_a_loop(x):
        total = tf.zeros_like(w)
        for _ in tf.range(2):
            total += slope(x)
        return tf.reduce_all(tf.math.is_finite(total))

    return alone, any_infinite, in_a_loop


@pytest.mark.parametrize("form", range(3))
def test_the_formats_that_count_are_those_of_the_backward_pass(form):
    """The weight's gradient is float32, and the overflow happened in binary16."""
    small, large = tf.constant([1e-3, 1e-3]), tf.constant([8.0, 9.0])
    looks = tf.function(scaled(tf.half)[form])
    with machine(), pytest.raises(RuntimeError, match="overflow in binary16 saturates"):
        launch(looks, small)
    with machine():
        configured(nanoo=True)
        assert launch(looks, small)
        assert bool(launch(looks, large)) == (form == 1)  # overflow is NaN, and no infinity
    with machine(found_inf="status"):
        assert launch(looks, small)
        assert not launch(looks, large)
    plain = tf.function(scaled(tf.float32)[form])
    with machine():  # binary32 does not saturate
        assert launch(plain, large)
        assert not launch(plain, 1e38 * large)
    with machine(policy="f16"), pytest.raises(RuntimeError, match="overflow in binary16 saturates"):
        launch(plain, small)


@pytest.mark.parametrize(("f32_denormals", "expected"), [("flush", 0), ("ieee", 1)])
def test_a_subnormal_number_is_read_as_the_machine_does(f32_denormals, expected):
    """In comparisons, and where a divisor or a factor is compared with 0."""
    tiny = tf.constant([1e-40], tf.float32)

    def compute(a):
        one, zero = tf.ones_like(a), tf.zeros_like(a)
        return [
            a > zero, -a < zero, a != zero, raw.ReluGrad(gradients=one, features=a),
            tf.math.divide_no_nan(one, a) > zero, tf.math.xlogy(a, zero) < zero,
        ]

    with machine(f32_denormals=f32_denormals):
        results = launch(tf.function(compute), tiny)
    assert [int(result[0]) for result in results] == 6 * [expected]
