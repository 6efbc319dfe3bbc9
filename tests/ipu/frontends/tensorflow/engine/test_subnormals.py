"""Subnormal numbers: sessions compute as functions do; a host call says what it flushes (law)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from ipu.frontends.tensorflow.engine.subnormals import keeping_subnormals, noted_on_host
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.framework import ipu, launch, machine, session, tf

v1 = tf.compat.v1
SMALL = np.float32([1e-40, 2e-39, -1e-38, 1.5])


def program(x):
    return [x * 1.0, tf.nn.relu(x), tf.cast(x > 0, tf.float32), tf.reduce_sum(x), tf.round(x) + x]


def codes(values):
    return [np.asarray(v).view(np.uint32).tolist() for v in values]


@pytest.mark.parametrize(
    "choices",
    [{"f32_denormals": "ieee"}, {"f32_denormals": "flush"},
     {"target": "hypothetical", "policy": "bf16"}],
)
def test_a_session_computes_what_a_function_computes(choices):
    with machine(**choices):
        expected = codes(launch(tf.function(program), tf.constant(SMALL)))
    with machine(**choices), session() as run:
        x = v1.placeholder(tf.float32, [4])
        assert codes(run.run(ipu.ipu_compiler.compile(program, [x]), {x: SMALL})) == expected


def test_the_mode_of_the_thread_comes_back():
    modes = []

    def look(x):
        modes.append(float(x[0] * x.dtype.type(1)))
        with keeping_subnormals():
            modes.append(float(x[0] * x.dtype.type(1)))
        modes.append(float(x[0] * x.dtype.type(1)))
        return x

    with session() as run:
        run.run(tf.numpy_function(look, [tf.constant(SMALL)], tf.float32))
    assert modes == [0, SMALL[0], 0]


@pytest.mark.parametrize(("kind", "is_flushed"), [
    (tf.float32, True), (tf.bfloat16, True), (tf.float16, False),
])
def test_the_host_says_once_what_it_flushes(kind, is_flushed):
    """TensorFlow keeps subnormal halves: it computes with them in binary32."""
    forget()
    smallest = 1e-40 if is_flushed else 6e-8
    with session() as run, warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", RuntimeWarning)
        x = v1.placeholder(kind, [2])
        (noted,) = noted_on_host([x])
        assert noted.shape == [2]
        result = noted * tf.constant(1.0, kind)
        run.run(result, {x: [0.0, 1.0]})
        assert not notes
        for _ in range(2):
            assert (run.run(result, {x: [smallest, 1.0]})[0] == 0) == is_flushed
    sentences = [str(n.message) for n in notes if "subnormal" in str(n.message)]
    assert len(sentences) == is_flushed
