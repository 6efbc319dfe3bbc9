"""TensorFlow 1 in a process of its own: names, graph mode, errors of sessions (golden)."""

from __future__ import annotations

from tests.ipu.frontends.tensorflow.framework import tf  # noqa: F401  skips without TensorFlow
from tests.ipu.frontends.tensorflow.test_install import python

START = """
import ipu.frontends.tensorflow
from ipu.frontends.tensorflow.facade import install_facade
install_facade(); install_facade()
import tensorflow as tf
from tensorflow.python import ipu
"""


PROGRAM = (
    START
    + """
import tensorflow.compat.v2 as two
from tensorflow.python.framework import ops
print(tf.placeholder is two.compat.v1.placeholder, tf.executing_eagerly(), tf.Session.__name__,
      tf.keras.Model.__module__[:8], tf.__name__, tf.get_variable("w", [1]).__class__.__name__)
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.floating_point_behaviour.oflo = True
config.configure_ipu_system()
x = tf.placeholder(tf.float16, [1])
(y,) = ipu.ipu_compiler.compile(lambda x: x * x, [x])
with tf.Session() as run:
    try:
        run.run(y, {x: [1000]})
    except tf.errors.InternalError as error:
        print(type(error).__name__, len(str(error).splitlines()) <= 10, "in node mul" in str(error))
    try:
        run.run(tf.constant(1), {x: "text"})
    except ValueError as error:
        print("of its own")
"""
)


def test_programs_of_tensorflow_1_find_its_names_and_short_errors():
    status, output, errors = python(PROGRAM)
    assert status == 0, errors
    assert output.splitlines() == [
        "True False Session tf_keras tensorflow ResourceVariable",
        "MachineError True True",
        "of its own",
    ]
