"""Constants, casts and bit casts (differential, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, launch, machine, tf
from tests.ipu.frontends.tensorflow.kernels.nodes import agree, half, numbers, on_machine

x = numbers(5, 3)
raw = tf.raw_ops
CASES = {
    "Identity": (tf.identity, x),
    "StopGradient": (lambda a: a + tf.stop_gradient(a), x),
    "PreventGradient": (lambda a: raw.PreventGradient(input=a), x),
    "Snapshot": (lambda a: raw.Snapshot(input=a), x),
    "CheckNumerics": (lambda a: tf.debugging.check_numerics(a, ""), x),
    "IdentityN": (lambda a: tf.identity_n([a, a])[1], x),
    "Const": (lambda a: a + tf.constant([0.1, 0.2, 0.3]), x),
    "Cast": (lambda a: tf.cast(tf.cast(a, tf.float16), tf.float32), x),
    "Bitcast": (lambda a: tf.bitcast(a, tf.int32), x),
}


@pytest.mark.parametrize("node", CASES)
def test_float32_is_as_on_tensorflow(node):
    function, *arguments = CASES[node]
    agree(node, function, *arguments, gradients=node not in ("Snapshot", "PreventGradient"))


@pytest.mark.parametrize("kind", [tf.int32, tf.bool, tf.float32, tf.int8])
def test_halves_become_other_types(kind):
    agree("Cast", lambda a: tf.cast(a, kind), half(20), gradients=False)


def test_integers_become_halves_to_nearest():
    agree("Cast", lambda a: tf.cast(a, tf.float16), np.arange(2040, 2060), gradients=False)


def test_a_nan_becomes_the_smallest_integer():
    (result,), used = on_machine(lambda a: tf.cast(a, tf.int32), np.float16([np.nan, 2.5]))
    assert result.tolist() == [-2147483648, 2]
    assert used.status.inv


def test_codes_of_halves_come_back():
    a = half(8)
    (codes,), _ = on_machine(lambda v: tf.bitcast(v, tf.uint16), a)
    np.testing.assert_array_equal(codes, a.view(np.uint16))


def test_a_constant_that_does_not_fit_is_noted():
    with machine(policy="f16") as used:
        launch(tf.function(lambda a: a + 1e-9), tf.constant(x))
    (row,) = used.account.summary()["constants"]
    assert (row["value"], row["becomes"]) == (pytest.approx(1e-9), "zero")


def test_float32_holds_the_format_of_the_policy():
    with machine(policy="f16"):
        configured()
        result = launch(tf.function(lambda a: a / 3.0), tf.constant(x))
    expected = np.float16(x) / np.float16(3)
    np.testing.assert_array_equal(result.numpy(), expected.astype(np.float32))
