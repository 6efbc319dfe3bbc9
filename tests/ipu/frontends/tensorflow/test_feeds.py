"""Queues: elements in order, modes, threads, the vendor's refusals (golden, law)."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, launch, machine, session, tf

from tensorflow.python.data.ops import dataset_ops  # isort: skip

v1 = tf.compat.v1
loops = ipu.loops
Infeed, Outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue, ipu.ipu_outfeed_queue.IPUOutfeedQueue
LAST = ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST


def numbers(n=10, kind=np.float32):
    return tf.data.Dataset.from_tensor_slices(np.arange(n).astype(kind))


def sums(infeed, n, outfeed=None):
    """A program that adds n elements and sends each sum out."""

    def body(total, x):
        if outfeed is not None:
            outfeed.enqueue({"total": total + x, "x": (x,)})
        return total + x

    return tf.function(lambda: loops.repeat(n, body, [0.0], infeed))


def test_a_queue_goes_on_where_it_stopped():
    infeed = Infeed(numbers())
    with machine():
        assert float(launch(sums(infeed, 4))) == 6
        assert float(launch(sums(infeed, 2))) == 9
    assert infeed.dequeued
    assert infeed.number_of_tuple_elements == 1


def passed_on(dataset, n):
    """The first n elements of a data set, through a program that sends them back."""
    infeed, outfeed = Infeed(dataset), Outfeed()

    def body(count, x):
        outfeed.enqueue(x)
        return count + 1

    with machine():
        launch(tf.function(lambda: loops.repeat(n, body, [0], infeed)))
        return outfeed.dequeue().numpy()


@pytest.mark.source("S3-18", "S4-48")
@pytest.mark.parametrize("queue", [True, False])
def test_a_report_tells_what_bounds_the_run_and_inputs_that_are_not_normalised(queue):
    """Pixels from 0 to 255 that take the host a while, by a queue and by an iterator."""

    def slowly():
        while True:
            time.sleep(1e-3)
            yield np.linspace(0, 255, 64, dtype=np.float32)

    weight = tf.Variable(tf.ones(64))
    data = tf.data.Dataset.from_generator(
        slowly, output_signature=tf.TensorSpec((64,), tf.float32)
    )
    strategy = ipu.ipu_strategy.IPUStrategyV1()

    def step(total, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * weight)
        weight.assign_sub(1e-6 * tape.gradient(loss, weight))
        return total + loss

    infeed = Infeed(data) if queue else None
    with machine(count=True) as used, strategy.scope():
        if queue:
            strategy.run(tf.function(lambda: loops.repeat(4, step, [0.0], infeed)))
        else:
            elements = iter(data)
            strategy.run(tf.function(lambda: step(0.0, next(elements))))
        report = used.run.report()
    (line,) = [line for line in report["plan"] if line.startswith("an update's data take")]
    assert "the host's processor bounds the run; use more host processes" in line
    assert report["inputs"] == [
        "input 0 is not normalised: root mean square 147.81, mean 127.5, deviation 74.771; "
        "subtract the mean and divide by the deviation"
    ]


def pairs():
    yield from ((n, n * n) for n in range(6))


RANGE = tf.data.Dataset.range(6).map(lambda n: tf.cast(n, tf.float32))
#: Data sets of everything that the documents build them with, each of six scalars or more.
DATASETS = {
    "from_tensors": tf.data.Dataset.from_tensors(1.5).repeat(),
    "from_tensor_slices": numbers(),
    "from_generator": tf.data.Dataset.from_generator(
        pairs, output_signature=(tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.float32))
    ).map(lambda a, b: b - a),
    "shuffle": RANGE.shuffle(6, seed=3, reshuffle_each_iteration=False),
    "batch": numbers(13).batch(2, drop_remainder=True).map(lambda pair: pair[1]),
    "shard": numbers(12).shard(2, 1), "cache": RANGE.cache().repeat(2),
    "prefetch": RANGE.prefetch(2),
}


@pytest.mark.source("S0-08")
@pytest.mark.parametrize("name", DATASETS)
def test_a_data_set_reaches_the_program_in_its_order(name):
    actual = passed_on(DATASETS[name], 6).tolist()
    assert actual == list(DATASETS[name].take(6).as_numpy_iterator())


@pytest.mark.source("S1-19")
def test_a_cache_after_a_shuffle_feeds_every_epoch_in_one_order():
    """The workers' example caches after it has shuffled: its second epoch is its first."""

    def epochs(dataset):
        return passed_on(dataset.repeat(), 60).reshape(3, 20).tolist()

    first, *others = epochs(numbers(20).shuffle(20, seed=1).cache())
    assert first != sorted(first) == list(range(20))
    assert others == [first, first]
    fresh, again, _ = epochs(numbers(20).cache().shuffle(20, seed=1))
    assert sorted(fresh) == sorted(again) == list(range(20))
    assert fresh != again


def test_the_end_of_the_data_ends_the_run():
    with machine(), pytest.raises(RuntimeError, match="ends after 3 elements"):
        launch(sums(Infeed(numbers(3)), 4))


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        (numbers().batch(3), "which is not fully defined; use dataset.batch"),
        (numbers(kind=np.int64), "Unsupported datatype int64 on index 0 of feed operation"),
        (tf.data.Dataset.from_tensors(np.zeros((2, 0), np.float32)), "with a dimension of size 0"),
        (tf.data.Dataset.from_tensors("a"), "Unsupported datatype string on index 0 of feed"),
    ],
)
def test_data_that_cannot_be_fed_is_refused(dataset, text):
    with pytest.raises(ValueError, match=text):
        Infeed(dataset)


def test_truth_values_and_bytes_are_fed():
    for kind in (np.bool_, np.int8):
        infeed = Infeed(numbers(2, kind))
        with machine():
            result = launch(tf.function(lambda i=infeed: loops.repeat(
                2, lambda n, x: n + tf.cast(x, tf.int32), [0], i)))
        assert int(result) == 1


def test_depths_and_ordinals():
    assert Infeed(numbers(), prefetch_depth=0).prefetch_depth == 3  # as the vendor's
    for depth in (-1, 256, 2.5, True, "x"):
        with pytest.raises(ValueError, match=f"prefetch_depth={depth!r}"):
            Infeed(numbers(), prefetch_depth=depth)
    with pytest.raises(ValueError, match="must be >= 0"):
        Infeed(numbers(), device_ordinal=-1)
    with pytest.raises(ValueError, match="must be an integer"):
        Outfeed(device_ordinal="0")
    with pytest.raises(ValueError, match="buffer_depth=0"):
        Outfeed(buffer_depth=0)
    with pytest.raises(ValueError, match="Expected IPUOutfeedMode value for outfeed_mode"):
        Outfeed("all")
    with pytest.raises(ValueError, match="`get_next\\(\\)` is obsolete"):
        Infeed(numbers()).get_next()


def test_everything_comes_out_in_its_structure():
    outfeed = Outfeed()
    with machine():
        launch(sums(Infeed(numbers()), 3, outfeed))
    result = outfeed.dequeue()
    assert result["total"].numpy().tolist() == [0, 1, 3]
    assert result["x"][0].shape == (3,)
    assert outfeed.dequeue()["total"].shape == (0,)


def test_the_last_element_comes_out():
    outfeed = Outfeed(LAST)
    with machine():
        launch(sums(Infeed(numbers()), 3, outfeed))
    assert float(outfeed.dequeue()["total"]) == 3


def test_a_program_without_a_run_has_nothing_to_dequeue():
    with pytest.raises(ValueError, match="which has not been enqueued"):
        Outfeed().dequeue()
    with pytest.raises(RuntimeError, match="Trying to get the last value from an"):
        Outfeed(LAST).dequeue()


def test_elements_one_by_one_also_from_another_thread():
    outfeed, elements = Outfeed(buffer_depth=1), []

    def watch():
        while len(elements) < 5:
            elements.extend(float(element["total"]) for element in outfeed)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    with machine():
        launch(sums(Infeed(numbers()), 5, outfeed))
    watcher.join(20)
    assert elements == [0, 1, 3, 6, 10]
    with pytest.raises(RuntimeError, match=r"IPUOutfeedMode\.ALL"):
        iter(Outfeed(LAST)).__next__()


def test_an_outfeed_is_enqueued_once_in_a_program():
    outfeed = Outfeed()

    def twice(x):
        outfeed.enqueue(x)
        outfeed.enqueue(x)
        return x

    with machine(), pytest.raises(ValueError, match=r"An outfeed can only be enqueued once\."):
        launch(tf.function(twice), tf.constant(1.0))


@pytest.mark.source("S0-10")
def test_queues_of_a_session():
    with machine(), session() as run:
        infeed, outfeed = Infeed(numbers()), Outfeed()
        done = ipu.ipu_compiler.compile(
            lambda: loops.repeat(3, lambda x: outfeed.enqueue(x * 2), [], infeed)
        )
        taken = outfeed.dequeue()
        with pytest.raises(RuntimeError, match="the infeed was not initialised"):
            run.run(done)
        run.run(infeed.initializer)
        with pytest.raises(ValueError, match="can only be called once"):
            infeed.initializer  # noqa: B018
        run.run(done)
        assert run.run(taken).tolist() == [0, 2, 4]
        run.run(done)
        assert run.run(taken).tolist() == [6, 8, 10]
        run.run(infeed.deleter)
        with pytest.raises(RuntimeError, match="iterated over in eager mode"):
            iter(outfeed).__next__()


@pytest.mark.parametrize("mode", [None, LAST])
def test_an_outfeed_of_a_session_is_deleted(mode):
    """What lies in it can still be taken; a program that runs again opens it again."""
    with machine(), session() as run:
        infeed, outfeed = Infeed(numbers()), Outfeed(mode)
        done = ipu.ipu_compiler.compile(
            lambda: loops.repeat(3, lambda x: outfeed.enqueue(x * 2), [], infeed)
        )
        taken, deleter = outfeed.dequeue(), outfeed.deleter
        run.run(infeed.initializer)
        run.run(done)
        run.run(deleter)
        assert np.ravel(run.run(taken)).tolist() == ([4] if mode else [0, 2, 4])
        run.run(deleter)  # it ends once
        run.run(done)
        assert np.ravel(run.run(taken)).tolist() == ([10] if mode else [6, 8, 10])
        run.run(deleter)
    assert outfeed._queue._buffer is None  # its thread has ended


def test_an_outfeed_is_deleted_in_eager_mode_too():
    outfeed = Outfeed()
    with machine():
        launch(sums(Infeed(numbers()), 3, outfeed))
        outfeed.deleter  # noqa: B018
        assert outfeed.dequeue()["total"].numpy().tolist() == [0, 1, 3]
        launch(sums(Infeed(numbers()), 2, outfeed))
        assert outfeed.dequeue()["total"].numpy().tolist() == [0, 1]


def test_a_queue_that_nobody_initialised_cannot_be_deleted():
    with machine(), session() as run:
        infeed = Infeed(numbers())
        with pytest.raises(RuntimeError, match=r"^Infeed with id=.*initialise it"):
            run.run(infeed.deleter)


def test_private_names_are_there():
    assert hasattr(dataset_ops, "_VariantDataset")
    assert hasattr(dataset_ops.DatasetV2, "_variant_tensor")


def test_an_outfeed_holds_values_of_one_structure():
    outfeed = Outfeed()

    def sending(make):
        def program(x):
            outfeed.enqueue(make(x))

        launch(tf.function(program), tf.constant(1.0))

    with machine():
        sending(lambda x: [x, {"n": tf.cast(x, tf.int32)}])
        for other in (lambda x: x, lambda x: [x, {"n": x}]):
            with pytest.raises(ValueError, match=r"the outfeed holds .*'int32'.*, not .*another"):
                sending(other)
    assert outfeed.dequeue()[0].numpy().tolist() == [1.0]
