"""loops: one launch, the vendor's rules for bodies, and its messages (golden, law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, launch, machine, session, tf

v1 = tf.compat.v1
loops = ipu.loops


def feed(*elements):
    """An infeed of elements, again and again."""
    data = tf.data.Dataset.from_tensors(elements if len(elements) > 1 else elements[0]).repeat()
    return ipu.ipu_infeed_queue.IPUInfeedQueue(data)


def run(build, **choices):
    """What a function gives in one launch, and the machine."""
    with machine(**choices) as used:
        return launch(tf.function(build)), used


def test_a_repeat_is_one_launch():
    infeed = feed(tf.constant(2))
    result, used = run(lambda: loops.repeat(10, lambda n, x: n + x, [0], infeed))
    assert int(result) == 20
    assert (used.launches, used.iterations) == (1, 10)


@pytest.mark.parametrize(
    ("inputs", "body", "expected"),
    [
        (None, lambda: None, None),
        ([1], lambda a: a + 1, 4),
        ([1, 2.0], lambda a, b: [a + 1, b * 2], [4, 16.0]),
        (1, lambda a: a + 1, 4),
    ],
    ids=["nothing", "one", "two", "a value"],
)
def test_what_is_carried_comes_back(inputs, body, expected):
    def program():
        result = loops.repeat(3, body, inputs)
        return None if isinstance(result, tf.Operation) else result

    result, _ = run(program)
    if expected is None:
        assert result is None
    else:
        assert [float(v) for v in tf.nest.flatten(result)] == np.ravel(expected).tolist()


def test_a_dictionary_gives_arguments_by_name_and_a_tuple_by_position():
    named = feed({"y": tf.constant(2), "x": tf.constant(3)})
    result, _ = run(lambda: loops.repeat(2, lambda n, x, y: n + 10 * x + y, [0], named))
    assert int(result) == 64
    alone = ipu.ipu_infeed_queue.IPUInfeedQueue(
        tf.data.Dataset.from_tensors(({"y": tf.constant(2), "x": tf.constant(3)},)).repeat()
    )  # as in the vendor's infeed_outfeed_test.py
    result, _ = run(lambda: loops.repeat(2, lambda n, x, y: n + 10 * x + y, [0], alone))
    assert int(result) == 64
    nested = feed(tf.constant(3), {"x": tf.constant(2)})
    result, _ = run(lambda: loops.repeat(2, lambda n, a, b: n + a + b["x"], [0], nested))
    assert int(result) == 10


def test_a_loop_ends_by_its_condition():
    result, used = run(lambda: loops.while_loop(lambda n: n < 100, lambda n: n * 3, [1]))
    assert int(result) == 243
    assert used.launches == 1


def test_a_carried_half_stays_one_and_another_type_is_refused():
    result, _ = run(lambda: loops.repeat(2, lambda a: a + 1, [tf.constant(0.5, tf.half)]))
    assert result.dtype == tf.half
    with pytest.raises(
        TypeError, match="Mismatch between input types and output types for loop body"
    ):
        run(lambda: loops.repeat(2, lambda a: tf.cast(a, tf.float32), [tf.constant(1, tf.half)]))


def test_other_arguments_are_refused_with_their_numbers():
    infeed = feed(tf.constant(1), tf.constant(2))
    with pytest.raises(TypeError, match="1 inputs and 2 inputs from the infeed queue"):
        run(lambda: loops.repeat(2, lambda a, x: a, [0], infeed))


def test_operations_come_after_values():

    with machine(), tf.Graph().as_default():
        x = v1.get_variable("w", [], use_resource=True)
        with pytest.raises(ValueError, match="IPU loop body must return zero or more Tensor"):
            ipu.ipu_compiler.compile(
                lambda: loops.repeat(2, lambda a: [x.assign(1.0, read_value=False), a], [0.0])
            )


def test_operations_of_a_body_run_each_time():
    with machine(), session() as opened:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        done = ipu.ipu_compiler.compile(
            lambda: loops.repeat(5, lambda: w.assign_add(1.0, read_value=False))
        )
        opened.run(v1.global_variables_initializer())
        assert opened.run(done) is None
        assert opened.run(w) == 5


def test_names_of_the_vendor_have_their_places():
    assert loops.repeat.__module__ == "ipu.frontends.tensorflow.loops"
    with pytest.raises(AttributeError, match=r"tensorflow.python.ipu has no 'lops'"):
        ipu.lops  # noqa: B018
