"""fpsim diagnose of programs of TensorFlow (golden)."""

from __future__ import annotations

from ipu.experiments.cli import main
from tests.ipu.frontends.tensorflow import framework  # noqa: F401  it comes before TensorFlow

GRAPH_PROGRAM = """
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
w = tf.Variable(tf.ones([4, 2]), name="net/w")
optimiser = tf.keras.optimizers.Adam(0.01, epsilon=1e-9)


def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ w - 1.0) ** 2)
    optimiser.apply_gradients([(tape.gradient(loss, w), w)])
    return loss


step = tf.function(step)
strategy = ipu.ipu_strategy.IPUStrategyV1()
optimiser.build([w])
for _ in range(9):
    x = np.random.randn(8, 4) * [1.0, 1.0, 1.0, 0.0]
    print("the program's own output", strategy.run(step, [x.astype("float32")]))
"""


def test_a_program_of_tensorflow_is_known_by_what_it_imports(tmp_path, capsys):
    program = tmp_path / "train.py"
    program.write_text(GRAPH_PROGRAM)
    assert main(["diagnose", "--steps", "3", "--seconds", "300", str(program)]) == 3
    printed = capsys.readouterr().out
    assert "the program's own output" not in printed
    assert "the constant 1e-09 is zero in binary16" in printed
    assert "+optimiser = tf.keras.optimizers.Adam(0.01, epsilon=0.0001)" in printed


def test_a_format_that_no_ipu_has_runs_on_the_target_that_is_asked_for(tmp_path, capsys):
    program = tmp_path / "train.py"
    program.write_text(GRAPH_PROGRAM.replace("1e-9", "1e-3"))
    assert main(["diagnose", "--policy", "bf16", "--target", "hypothetical", "--steps", "3",
                 "--seconds", "300", str(program)]) == 0
    assert "beside binary32: healthy" in capsys.readouterr().out
