"""Launches of both TensorFlows: once each, variables back, the reference (law, differential)."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ipu.feed.counters import record_launches
from ipu.frontends.tensorflow.engine.errors import MachineError
from ipu.frontends.tensorflow.engine.launch import failure_of, reporting
from tests.ipu.frontends.tensorflow.framework import (
    configured,
    ipu,
    launch,
    machine,
    session,
    tf,
)

from tensorflow.python.eager.polymorphic_function import (  # isort: skip
    atomic_function, concrete_function,
)

v1 = tf.compat.v1


def test_a_function_is_one_launch_and_writes_its_variables():
    w = tf.Variable([1.0, 2.0])

    @tf.function(jit_compile=True)
    def program(x):
        w.assign_add(x)
        return {"sum": tf.reduce_sum(w), "n": 3}

    with machine() as used, record_launches() as record:
        result = launch(program, tf.constant([1.0, 1.0]))
    assert used.launches == record.counters.launches == 1
    assert float(result["sum"]) == 5
    assert w.numpy().tolist() == [2, 3]


def test_variables_are_made_and_initialised_by_tensorflow():
    class Model(tf.Module):
        w = None

        @tf.function
        def __call__(self, x):
            if self.w is None:
                self.w = tf.Variable(tf.random.normal([3], seed=1))
            return x * self.w

    model = Model()
    with machine() as used:
        result = launch(model.__call__, tf.ones(3))
        assert used.launches == 1
    assert np.array_equal(result.numpy(), model.w.numpy())


def test_launches_of_several_threads_lose_no_update():
    w = tf.Variable(0.0)

    @tf.function
    def program():
        for _ in tf.range(30):
            w.assign_add(1.0)

    with machine() as used:
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        threads = [threading.Thread(target=strategy.run, args=(program,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert used.launches == 4
    assert w.numpy() == 120


def test_a_session_gets_the_error_of_its_own_nodes():
    ours, other = ValueError("a trap of ours"), RuntimeError("of another thread")
    with pytest.raises(ValueError, match="ours"), reporting():
        raise ours
    with pytest.raises(RuntimeError, match="another"), reporting():
        raise other
    assert failure_of("UnknownError: ValueError: a trap of ours\nTraceback …") is ours
    assert failure_of("of TensorFlow's own") is None


def test_functions_outside_run_as_ever():
    with machine() as used:
        launch(tf.function(lambda x: x + 1), tf.constant(1.0))
        tf.function(lambda x: tf.linalg.inv(x))(tf.eye(2))
    assert used.launches == 1


def test_a_session_launches_for_each_run():
    with machine() as used, session() as run:
        x = v1.placeholder(tf.float16, [2])
        w = v1.get_variable("w", [2], tf.float16, initializer=v1.ones_initializer())

        def program(x):
            return [x * w, w.assign_add(x, read_value=False)]

        (result,) = ipu.ipu_compiler.compile(program, [x])
        run.run(v1.global_variables_initializer())
        assert run.run(result, {x: [1, 2]}).tolist() == [1, 2]
        assert run.run(result, {x: [1, 2]}).tolist() == [2, 6]
        assert run.run(w).tolist() == [3, 5]
    assert used.launches == 2


@pytest.mark.parametrize("reference", [False, True])
def test_tensorflow_runs_the_same_program_as_reference(reference):
    with machine(reference=reference) as used, session() as run:
        x = v1.placeholder(tf.float32, [2])
        w = v1.get_variable("w", [2], initializer=v1.ones_initializer())

        def program(x):
            return ipu.loops.repeat(3, lambda v: (v * 2, w.assign_add(v, read_value=False)), [x])

        (result,) = ipu.ipu_compiler.compile(program, [x])
        run.run(v1.global_variables_initializer())
        assert run.run(result, {x: [1, 2]}).tolist() == [8, 16]
        assert run.run(w).tolist() == [8, 15]
    assert used.launches == (0 if reference else 1)
    w = tf.Variable(1.0)
    with machine(reference=reference) as used:
        assert float(launch(tf.function(lambda: w.assign_add(1.0), jit_compile=True))) == 2
    assert used.launches == (0 if reference else 1)


def test_the_reference_is_of_one_replica():
    refused = pytest.raises(NotImplementedError, match=r"one replica, and .* 2; set .* = 1 for it")
    with machine(reference=True), session() as run:
        (result,) = ipu.ipu_compiler.compile(lambda: tf.constant(1.0) + 1)
        assert run.run(result) == 2
        configured(2)  # after the program was traced
        with refused:
            run.run(result)
    with machine(reference=True):
        configured(2)
        with refused:
            launch(tf.function(lambda: tf.constant(1.0) + 1))


def test_the_reference_tells_errors_of_queues_as_the_machine_does():
    for reference in (False, True):
        with machine(reference=reference), session() as run:
            infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0))
            result = ipu.ipu_compiler.compile(
                lambda feed=infeed: ipu.loops.repeat(2, lambda s, x: s + x, [0.0], feed)
            )
            run.run(infeed.initializer)
            with pytest.raises(RuntimeError, match="the data set of the infeed ends after 1"):
                run.run(result)


def test_an_error_writes_no_variable():
    w = tf.Variable(1.0)

    @tf.function
    def program(x):
        w.assign_add(1.0)
        return tf.numpy_function(lambda v: 1 / 0, [x], tf.float32)

    with machine(), pytest.raises(ZeroDivisionError):
        launch(program, tf.constant(1.0))
    assert w.numpy() == 1


@pytest.mark.parametrize(
    ("owner", "name"),
    [(concrete_function.ConcreteFunction, "_call_flat"), (atomic_function, "from_func_graph"),
     (concrete_function.ConcreteFunction, "from_func_graph")],
)
def test_private_names_are_there(owner, name):
    assert hasattr(owner, name)


def test_a_program_that_is_traced_before_the_machine_is_configured_obeys_the_configuration():
    with machine(), session() as sess:
        x = v1.placeholder(tf.float16, [1000])
        (total,) = ipu.ipu_compiler.compile(lambda x: x + tf.constant(1 / 3, tf.half), [x])
        used = configured(esr=ipu.config.StochasticRoundingBehaviour.ON)
        values = sess.run(total, {x: np.full(1000, 100, np.float16)})
        assert used.launches == 1
    assert len(np.unique(values)) == 2


def test_traps_that_are_set_after_tracing_stop_the_program():
    with machine(), session() as sess:
        x = v1.placeholder(tf.float16, [1])
        (total,) = ipu.ipu_compiler.compile(lambda x: x + x, [x])
        configured(oflo=True)
        with pytest.raises(MachineError, match="OFLO"):
            sess.run(total, {x: [60000]})


def test_ipus_that_a_program_takes_are_known_to_a_machine_configured_later():
    def program():
        with ipu.scopes.ipu_shard(1):
            return tf.constant(1.0, tf.half) + 1

    with machine(), session() as sess:
        result = ipu.ipu_compiler.compile(program)
        used = configured(ipus=4)
        sess.run(result)
        assert used.replicas == 2


@pytest.mark.source("S0-14")
def test_a_program_that_configures_nothing_is_refused():
    double = tf.function(lambda a: a * 2)
    with machine(unconfigured=False):
        with pytest.raises(RuntimeError, match=r"configure_ipu_system\(\), so it has no IPU"):
            launch(double, tf.constant(3.0))
        configured()
        assert launch(double, tf.constant(3.0)) == 6


@pytest.mark.source("S0-14")
def test_a_session_of_a_program_that_configures_nothing_is_refused():
    with machine(unconfigured=False), session() as opened:
        x = v1.placeholder(tf.float32, [1])
        (total,) = ipu.ipu_compiler.compile(lambda x: x + x, [x])
        with pytest.raises(RuntimeError, match="so it has no IPU"):
            opened.run(total, {x: [3.0]})
        configured()
        assert opened.run(total, {x: [3.0]}) == 6


# Evaluations --------------------------------------------------------------------------------------


def network():
    """A step of a training and a launch that trains nothing, of one layer with dropout's bits."""
    w = tf.Variable(np.float32(np.linspace(0.1, 0.9, 6).reshape(3, 2)), name="dense/kernel")
    counter = tf.Variable(0, dtype=tf.int64, name="counter")  # trainable, as integers are too

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    @tf.function
    def evaluation(x):
        counter.assign_add(1)
        return tf.matmul(x, w) * 0.7

    return w, step, evaluation


def test_a_launch_that_trains_nothing_is_an_evaluation():
    _, step, evaluation = network()
    x = tf.constant(np.full((1, 3), 600.0, np.float32))
    with machine(policy="f16", count=True) as used:
        for _ in range(3):
            launch(evaluation, 100.0 * x)
        launch(step, x / 600.0)
        launch(evaluation, x)
        told = used.run.report()
    assert (used.step, used.iteration, used.launches, used.iterations) == (1, 1, 5, 5)
    assert told["steps"] == 1
    directions = {d for row in told["layers"].values() for d in row}
    assert directions == {"forward", "backward", "optimizer", "evaluation"}
    assert sum(r.get("evaluation", {}).get("OVERFLOW", 0) for r in told["layers"].values()) == 6
    assert sum(r.get("optimizer", {}).get("OVERFLOW", 0) for r in told["layers"].values()) == 0
    assert told["first"][0]["direction"] == "evaluation"
    assert "Compute" in str(used.run.advice(told))


def test_no_evaluation_moves_a_bit_of_a_training():
    """And two evaluations in a step draw different bits."""
    x = tf.constant(np.float32([[0.3, 0.7, 0.11]] * 64))
    weights = []
    for evaluates in (False, True):
        w, step, evaluation = network()
        with machine(policy="f16", sr=True, seed=5):
            results = []
            for _ in range(3):
                if evaluates:
                    results += [launch(evaluation, x).numpy() for _ in range(2)]
                launch(step, x)
                if evaluates:
                    results.append(launch(evaluation, x).numpy())
        weights.append(w.numpy())
    assert np.array_equal(*weights)
    assert not np.array_equal(results[0], results[1])


def test_the_status_of_an_evaluation_is_no_steps():
    *_, evaluation = network()
    with machine(policy="f16") as used:
        launch(evaluation, tf.constant(np.full((1, 3), 6e4, np.float32)))
        assert used.status.oflo
        assert not used.has_overflown
