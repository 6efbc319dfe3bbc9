"""Plans whose nodes run below their kernels: bits, flags, numbers and accounts stay (law)."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

from ipu.frontends.tensorflow.engine.native import rules  # isort: skip

#: Launches: the third one notes calls, those behind it run them.
LAUNCHES = 6
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(LAUNCHES, 4, 6, 6, 2)).astype(np.float32)
LABELS = RNG.integers(3, size=(LAUNCHES, 4)).astype(np.int32)


@contextmanager
def running(monkeypatch, *, below, **choices):
    """A machine whose nodes run below their kernels, or do not."""
    if not below:
        monkeypatch.setattr(rules, "_may_run_below", lambda machine: False)
    with machine(seed=3, **choices) as used:
        yield used
    monkeypatch.undo()


def native_nodes(used):
    """Nodes below their kernels, and runs that fell back to kernels, of all plans."""
    plans = [
        native for plan in used.plans.values() if plan._natives is not None
        for native in plan._natives._plans.values()
    ]
    return sum(plan.n_native for plan in plans), sum(plan.n_falls for plan in plans)


def account_of(used):
    """What a machine has done beside values."""
    rows = {name: (row.products, row.macs, row.cycles)
            for name, row in used.device.ledger.rows.items()}
    return used.status, used.device.vector_cycles, rows, dict(used.clock._counts)


def trainer():
    """A step of a small network, with many kinds of nodes, and its variables."""
    shapes = ((3, 3, 2, 4), (4,), (36, 8), (8, 3), (3,))
    start = np.random.default_rng(1)
    weights = [tf.Variable(start.normal(size=s, scale=0.3).astype(np.float32)) for s in shapes]
    slots = [tf.Variable(tf.zeros_like(w)) for w in weights]

    def logits(x):
        kernel, bias, dense, last, shift = weights
        y = tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias)
        y = tf.reshape(tf.nn.max_pool2d(tf.nn.relu(y), 2, 2, "VALID"), (-1, 36))
        y = tf.sigmoid(tf.matmul(y, dense)) * tf.tanh(tf.matmul(y, dense))
        a, b = tf.split(y, 2, axis=1)
        return tf.matmul(tf.concat([b, tf.sqrt(tf.square(a) + 1.0)], 1), last) + shift

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits(x)))
        for w, m, g in zip(weights, slots, tape.gradient(loss, weights), strict=True):
            m.assign(0.9 * m + g)
            w.assign_sub(0.05 * m)
        return loss

    return step, [*weights, *slots]


def trained(used, batches=range(LAUNCHES)):
    """Losses and variables after each launch, and what the machine did."""
    step, variables = trainer()
    rows = []
    for i in batches:
        loss = launch(step, IMAGES[i], LABELS[i])
        rows.append((loss.numpy().tobytes(), *[v.numpy().tobytes() for v in variables]))
    return rows, account_of(used)


@pytest.mark.parametrize(("policy", "sr"), [
    ("fp16", True), ("fp16", False), ("mixed", True), ("fp32", False),
])
def test_steps_below_their_kernels_are_those_of_kernels(monkeypatch, policy, sr):
    with running(monkeypatch, below=False, policy=policy, sr=sr) as used:
        expected = trained(used)
        assert native_nodes(used) == (0, 0)
    with running(monkeypatch, below=True, policy=policy, sr=sr) as used:
        assert trained(used) == expected
        n_native, n_falls = native_nodes(used)
    assert n_native > 20
    assert n_falls == 0


def test_numbers_that_calls_have_no_result_for_go_to_the_kernels(monkeypatch):
    """A NaN is looked at where it is cast into binary32."""
    batches = IMAGES.copy()
    batches[4, 0, 0, 0, 0] = np.nan

    def losses(used):
        mean = tf.function(lambda x: tf.reduce_mean(tf.cast(x * 1.5, tf.float32) / 3.0))
        return [
            launch(mean, tf.constant(x, tf.half)).numpy().tobytes() for x in batches
        ], account_of(used)

    with running(monkeypatch, below=False, sr=True) as used:
        expected = losses(used)
    with running(monkeypatch, below=True, sr=True) as used:
        assert losses(used) == expected
        assert native_nodes(used)[1] == 1


def test_inputs_of_other_shapes_are_another_plan(monkeypatch):
    def sums(used):
        step = tf.function(
            lambda x: tf.reduce_sum(x / 3.0 + 1.0, 0) * tf.cast(tf.shape(x)[0], tf.float32),
            input_signature=[tf.TensorSpec((None, 2), tf.float32)])
        results = [
            launch(step, tf.constant(IMAGES[i].reshape(-1, 2)[: 5 + i % 2])) for i in range(6)
        ] + [launch(step, tf.constant(IMAGES[i].reshape(-1, 2)[: 5 + i % 2])) for i in range(6)]
        return [r.numpy().tobytes() for r in results], account_of(used)

    with running(monkeypatch, below=False, policy="fp16", sr=True) as used:
        expected = sums(used)
    with running(monkeypatch, below=True, policy="fp16", sr=True) as used:
        assert sums(used) == expected
        assert native_nodes(used)[0] > 0


def test_loops_of_steps_keep_no_memory_of_the_plan(monkeypatch):
    """A variable that a loop writes holds its value while later iterations compute."""
    def looped(used):
        total, last = tf.Variable(tf.zeros(64)), tf.Variable(tf.zeros(64))
        x = tf.constant(IMAGES.reshape(-1)[:64])

        def body(i, y, history):
            y = y * 0.9 + x / 3.0
            history = history.write(i, y)
            before = last.read_value()
            last.assign(y * 2.0)
            total.assign_add(before * 0.5)
            return i + 1, y, history

        @tf.function
        def program():
            history = tf.TensorArray(tf.float32, 8, element_shape=(64,))
            _, y, history = tf.while_loop(lambda i, *_: i < 8, body, (0, x, history))
            return y, history.stack()

        return [
            [v.numpy().tobytes() for v in (*launch(program), total, last)] for _ in range(2)
        ], account_of(used)

    with running(monkeypatch, below=False, policy="fp16", sr=True) as used:
        expected = looped(used)
    with running(monkeypatch, below=True, policy="fp16", sr=True) as used:
        assert looped(used) == expected


def test_a_launch_that_is_stopped_has_drawn_what_ran(monkeypatch):
    def attempts(used):
        fails = [False, False, False, False, True, False]

        def check(x):
            if fails.pop(0):
                raise RuntimeError("stopped")
            return x

        def program(x):
            y = tf.numpy_function(check, [x / 3.0], tf.float32)
            y.set_shape(x.shape)
            return y / 7.0 + x

        step, rows = tf.function(program), []
        for i in range(len(fails)):
            try:
                rows.append(launch(step, tf.constant(IMAGES[i])).numpy().tobytes())
            except RuntimeError as error:
                rows.append(str(error))
        return rows, account_of(used)

    with running(monkeypatch, below=False, policy="fp16", sr=True) as used:
        expected = attempts(used)
    with running(monkeypatch, below=True, policy="fp16", sr=True) as used:
        assert attempts(used) == expected
        assert native_nodes(used)[0] > 0
    assert "stopped" in expected[0]


@pytest.mark.parametrize("changed", [2, 3, 4])
def test_functions_of_the_host_may_change_the_machine(monkeypatch, changed):
    """The seed or the control register, also in the run that is noted; the register returns."""
    def results(used):
        runs, registers = iter(range(LAUNCHES)), used.device.control

        def change(x):
            if (run := next(runs)) == changed:
                used.device.control = replace(registers, nanoo=True)
            elif run == LAUNCHES - 1:
                used.reseed(run)
            return x

        def program(x):
            y = tf.numpy_function(change, [x / 3.0], tf.float32)
            y.set_shape(x.shape)
            return y / 7.0 * 1e3 * 1e3

        step, rows = tf.function(program), []
        for x in IMAGES:
            rows.append(launch(step, x).numpy().tobytes())
            used.device.control = registers
        return rows, account_of(used)

    with running(monkeypatch, below=False, policy="fp16", sr=True) as used:
        expected = results(used)
    with running(monkeypatch, below=True, policy="fp16", sr=True) as used:
        assert results(used) == expected


def test_other_control_bits_note_anew(monkeypatch):
    """Calls hold what the registers were."""
    x, step = tf.constant([300.0, 2.0], tf.half), tf.function(lambda x: x * x)

    def halves(used):
        rows = []
        for nanoo in (False, True):
            used.device.control = replace(used.device.control, nanoo=nanoo)
            rows += [launch(step, x).numpy().tobytes() for _ in range(5)]
        return rows, account_of(used)

    with running(monkeypatch, below=False) as used:
        expected = halves(used)
    with running(monkeypatch, below=True) as used:
        assert halves(used) == expected
        assert native_nodes(used)[0] == 2
    assert expected[0][4] != expected[0][9]


def test_kernels_without_a_place_draw_where_the_node_before_them_stands(monkeypatch):
    """The gradients of a sum and of a negation are moves, and are rounded into a layer's format."""
    def descended(used):
        w = tf.Variable(tf.constant(IMAGES.reshape(-1)[:64].reshape(8, 8)))

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                y = tf.matmul(x, w) / 3.0
                loss = tf.reduce_sum(y) * 0.3 + tf.reduce_mean(-tf.tanh(y)) - tf.reduce_mean(y * y)
            slope = tape.gradient(loss, w)
            w.assign_sub(slope * 0.1)
            return slope

        inputs = IMAGES.reshape(LAUNCHES, -1, 8)
        return [(launch(step, x).numpy().tobytes(), w.numpy().tobytes()) for x in inputs], (
            account_of(used))

    with running(monkeypatch, below=False, policy="fp16", sr=True) as used:
        expected = descended(used)
    with running(monkeypatch, below=True, policy="fp16", sr=True) as used:
        assert descended(used) == expected
        assert native_nodes(used)[0] > 0


def test_constants_that_a_move_casts_are_cast_in_each_run(monkeypatch):
    """A layer joins constants of another format: each run rounds them by its own random bits."""
    def joined(used):
        @tf.function
        def step(x):
            with tf.name_scope("wide"):
                wide = tf.reshape(tf.constant(IMAGES.reshape(-1)[:16]), (4, 4))
            with tf.name_scope("narrow"):
                return tf.concat([wide, wide], 0) * 1.0 + x

        return [launch(step, x).numpy().tobytes() for x in IMAGES.reshape(LAUNCHES, -1, 4)[:, :8]
                ], account_of(used)

    policy = {"wide": "f32", "narrow": "f16"}
    with running(monkeypatch, below=False, policy=policy, sr=True) as used:
        expected = joined(used)
    with running(monkeypatch, below=True, policy=policy, sr=True) as used:
        assert joined(used) == expected
        assert native_nodes(used)[0] > 0
    assert len({*expected[0]}) == LAUNCHES


def test_features_of_a_rectifier_are_read_without_their_subnormals_in_each_run(monkeypatch):
    """The run that is noted has none."""
    def slopes(used):
        step = tf.function(lambda g, x: tf.raw_ops.ReluGrad(gradients=g, features=x))
        return [
            launch(step, tf.fill((5,), 3.0), tf.fill((5,), tf.constant(x, tf.float32))).numpy()
            .tolist() for x in (1.0, 1.0, 1.0, 1.0, 1e-40, 1e-37)
        ], account_of(used)

    with running(monkeypatch, below=False, policy="fp32") as used:
        expected = slopes(used)
    with running(monkeypatch, below=True, policy="fp32") as used:
        assert slopes(used) == expected
        assert native_nodes(used)[0] == 1
    assert expected[0][4] == [0.0] * 5


def test_counted_and_watched_nodes_run_by_their_kernels():
    step = tf.function(lambda x: x / 3.0)
    with machine(policy="fp16", count=True) as used:
        for _ in range(5):
            launch(step, tf.constant(IMAGES[0]))
        assert native_nodes(used) == (0, 0)
