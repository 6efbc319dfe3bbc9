"""Functions of the host: as TensorFlow in float32; binary64 rounded once in half (differential)."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.special

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

x, y = numbers(4, 3), numbers(4, 3, seed=1, low=0.1)
positive, share = np.abs(y), 0.8 * np.tanh(x)
raw = tf.raw_ops


def case(name, values=x):
    return lambda a: getattr(raw, name)(x=a), values


CASES = {
    **{name: case(name) for name in (
        "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Erfc", "BesselI0e", "BesselI1e",
        "BesselI0", "BesselI1", "Dawsn",
    )},
    **{name: case(name, share) for name in ("Asin", "Acos", "Atanh", "Erfinv")},
    "Acosh": case("Acosh", positive + 1),
    **{name: case(name, positive) for name in (
        "Lgamma", "Digamma", "BesselJ0", "BesselJ1", "BesselK0", "BesselK0e", "BesselK1",
        "BesselK1e", "BesselY0", "BesselY1", "Expint", "FresnelCos", "FresnelSin", "Spence",
    )},
    "Ndtri": case("Ndtri", np.abs(share) + np.float32(0.1)),
    "Atan2": (tf.atan2, x, y),
    "Polygamma": (lambda a: tf.math.polygamma(2.0, a), positive),
    "Zeta": (lambda a: tf.math.zeta(a + 1.5, 2.0), positive),
    "Igamma": (tf.math.igamma, positive, positive[::-1].copy()),
    "Igammac": (tf.math.igammac, positive, positive[::-1].copy()),
    "IgammaGradA": (lambda a, b: raw.IgammaGradA(a=a, x=b), positive, positive + 1),
    "Betainc": (lambda a, b: tf.math.betainc(a, b, tf.fill(a.shape, 0.3)), positive, positive + 1),
    "CumulativeLogsumexp": (lambda a: tf.math.cumulative_logsumexp(a, 1), x),
    "FloorMod": (tf.math.floormod, x, y),
    "TruncateMod": (lambda a, b: raw.TruncateMod(x=a, y=b), x, y),
    "Mod": (lambda a, b: raw.Mod(x=a, y=b), x, y),
    "Range": (lambda a: tf.range(0.0, 1.0 + tf.reduce_max(a) * 0, 0.125), x),
}
#: With gradients; those of the others are made of these.
GRADIENTS = {
    "Sin",
    "Tan",
    "Atan2",
    "Acosh",
    "Erfc",
    "Lgamma",
    "Igamma",
    "FloorMod",
    "MatrixInverse",
}
#: Nodes whose float32 on TensorFlow is further from binary64 than the bar.
LOOSE = ("Spence", "Igamma", "Igammac", "IgammaGradA", "Betainc")


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    function, *arguments = CASES[node]
    tolerance = 2e-5 if node in LOOSE else 2e-6
    agree(node, function, *arguments, gradients=node in GRADIENTS, tolerance=tolerance)


def regularised(a, x):
    return mpmath.gammainc(a, 0, x, regularized=True)


#: By 30 digits.
EXACT = {
    "Spence": lambda x: mpmath.polylog(2, 1 - x).real,
    "Igamma": regularised,
    "Igammac": lambda a, x: mpmath.gammainc(a, x, mpmath.inf, regularized=True),
    "IgammaGradA": lambda a, x: mpmath.diff(lambda t: regularised(t, x), a),
    "Betainc": lambda a, b: mpmath.betainc(a, b, 0, np.float64(np.float32(0.3)), regularized=True),
}


@pytest.mark.parametrize("node", LOOSE)
def test_where_tensorflow_is_further_off_the_exact_number_is_rounded_once(node):
    """Half an ulp of binary32 is 6e-8 of a number at most; TensorFlow's float32 is 2e-5 off."""
    function, *arguments = CASES[node]
    compute, tensors = tf.function(function), [tf.constant(a) for a in arguments]
    with machine():
        ours = launch(compute, *tensors).numpy().astype(float)
    with mpmath.workdps(30):
        rows = zip(*(a.ravel().astype(float) for a in arguments), strict=True)
        exact = np.array([float(EXACT[node](*map(mpmath.mpf, row))) for row in rows])
    np.testing.assert_allclose(ours.ravel(), exact, rtol=6.1e-8, atol=0)
    theirs = compute(*tensors).numpy().astype(float).ravel()
    assert np.max(abs(theirs - exact) / np.maximum(1, abs(exact))) < 2e-5


@pytest.mark.parametrize(
    ("function", "wide"),
    [(tf.sin, np.sin), (tf.cos, np.cos), (tf.math.erfc, scipy.special.erfc)],
)
def test_halves_are_binary64_rounded_once(function, wide):
    a = half(40)
    (result,), _ = on_machine(function, a)
    np.testing.assert_array_equal(result, wide(np.float64(a)).astype(np.float16))


def test_the_report_lists_them_as_host():
    with machine(count=True) as used:
        launch(tf.function(tf.sin), tf.constant(x))
    assert used.account.summary()["host"]["operations"] == {"Sin": {"calls": 1, "elements": 12}}


def test_they_round_as_the_machine_does():
    """Stochastically: both neighbours of one number come."""
    with machine(sr=True):
        result = launch(tf.function(tf.sin), tf.fill([200], tf.constant(0.3, tf.float16)))
    below = np.float16(np.sin(np.float64(np.float16(0.3))))
    assert len(np.unique(result.numpy())) == 2
    assert np.abs(result.numpy() - below).max() <= np.spacing(below)
