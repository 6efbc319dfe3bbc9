"""IPUStrategyV1: functions on the machine, in and out of a scope (law)."""

from __future__ import annotations

import gc

import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, machine, tf

Strategy = ipu.ipu_strategy.IPUStrategyV1


def test_the_strategy_is_that_of_tensorflow_inside_its_scope():
    strategy = Strategy()
    with strategy.scope():
        assert tf.distribute.get_strategy() is strategy
    assert ipu.ipu_strategy.IPUStrategy is Strategy


def test_a_python_function_is_one_launch_each_time():
    traces = []

    def program(x, *, factor=1):
        traces.append(1)
        return x * factor

    strategy = Strategy()
    with machine() as used, strategy.scope():
        for x in (1.0, 2.0):
            result = strategy.run(program, [tf.constant(x)], {"factor": 3})
    assert float(result) == 6
    assert used.launches == 2
    assert len(traces) == 1


@pytest.mark.source("S0-15")
def test_variables_of_the_scope_and_results_show_their_device(tmp_path):
    """They are used as before: read, assigned, saved, and beside values of the host."""
    strategy = Strategy()
    with machine():
        with strategy.scope():
            variable = tf.Variable([1.0, 2.0])
        outside = tf.Variable([3.0, 4.0])
        result = strategy.run(tf.function(lambda x: (x + variable, {"twice": 2 * x})), [outside])
        on_ipu = "/job:localhost/replica:0/task:0/device:IPU:0"
        assert [x.device for x in (variable, *tf.nest.flatten(result))] == [on_ipu] * 3
        assert outside.device.endswith("CPU:0")
        saved = tf.train.Checkpoint(v=variable).save(str(tmp_path / "point"))
        with tf.device(variable.device):
            variable.assign_add(result[0] - outside)
        tf.train.Checkpoint(v=variable).restore(saved).assert_consumed()
        assert (tf.identity(result[1]["twice"]) + variable).numpy().tolist() == [7.0, 10.0]


@pytest.mark.source("S0-16")
def test_a_compiled_function_is_traced_once_for_a_signature():
    traces = []

    @tf.function(jit_compile=True)
    def program(x):
        traces.append(x.shape)
        return x * 2

    strategy = Strategy()
    with machine() as used, strategy.scope():
        for x in ([1.0], [2.0], [1.0, 2.0], [3.0]):
            strategy.run(program, [tf.constant(x)])
    assert traces == [(1,), (2,)]
    assert used.launches == 4


def test_a_run_inside_of_a_program_is_part_of_it():
    strategy = Strategy()

    @tf.function
    def program(x):
        return strategy.run(lambda y: y * 2, [x]) + 1

    with machine() as used:
        assert float(strategy.run(program, [tf.constant(3.0)])) == 7
    assert used.launches == 1


def test_a_keras_optimiser_updates_its_variables():
    strategy = Strategy()
    with machine() as used, strategy.scope():
        w = tf.Variable(2.0)
        optimiser = tf.keras.optimizers.SGD(0.5)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = w * w
            optimiser.apply_gradients([(tape.gradient(loss, w), w)])
            return loss

        assert float(strategy.run(step)) == 4
        assert float(w) == 0
        assert float(strategy.run(step)) == 0
    assert used.launches == 2


def test_a_new_function_at_an_old_address_is_traced():
    strategy = Strategy()
    with machine():
        for factor in range(1, 6):
            w = tf.Variable(float(factor))
            traced = tf.function(lambda w=w: w * 1.0)
            assert float(strategy.run(traced)) == factor
            del traced
            gc.collect()


def test_an_error_of_a_program_is_the_users():
    with machine(), pytest.raises(KeyError, match="missing"):
        Strategy().run(lambda: {}["missing"])


def test_a_run_takes_a_function_and_a_list():
    with machine():
        with pytest.raises(TypeError, match="fn=5 is not a function"):
            Strategy().run(5)
        with pytest.raises(TypeError, match=r"args=.* is not a list of arguments; use args="):
            Strategy().run(lambda x: x, tf.constant(1.0))
