"""Implicit infeeds: elements in programs alone, several in one launch (golden, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, machine, tf

from tensorflow.python.data.ops import dataset_ops, iterator_ops  # isort: skip

Strategy = ipu.ipu_strategy.IPUStrategyV1
data = tf.data.Dataset.range(10).map(lambda n: tf.cast(n, tf.float32))


@tf.function
def total(iterator, n):
    result = 0.0
    for _ in tf.range(n):
        result += next(iterator)
    return result


@pytest.mark.source("S0-17")
def test_an_iterator_feeds_several_elements_in_a_launch_and_goes_on():
    strategy = Strategy()
    with machine() as used, strategy.scope():
        iterator = iter(data)
        assert float(strategy.run(total, (iterator, 4))) == 6
        assert float(strategy.run(total, (iterator, 2))) == 9
    assert used.launches == 2


@pytest.mark.source("S0-17")
def test_outside_of_a_program_there_is_no_element(tmp_path):
    with Strategy().scope():
        iterator = iter(data)
        with pytest.raises(RuntimeError, match=r"next\(\) of an IPUIterator"):
            next(iterator)
        with pytest.raises(RuntimeError, match=r"next\(\) of an IPUIterator"):
            iterator.get_next()
        with pytest.raises(NotImplementedError, match="get_next_as_optional"):
            iterator.get_next_as_optional()
        with pytest.raises(NotImplementedError, match="an IPUIterator cannot be saved"):
            tf.train.Checkpoint(data=iterator).save(str(tmp_path / "iterator"))
    with Strategy(enable_dataset_iterators=False).scope():
        assert float(next(iter(data))) == 0
    assert float(next(iter(data))) == 0


def test_private_names_are_there():
    assert issubclass(iterator_ops.OwnedIterator, object)
    assert hasattr(dataset_ops.DatasetV2, "__iter__")


def test_the_end_of_the_data_is_told():
    strategy = Strategy()
    with machine(), strategy.scope():
        iterator = iter(data)
        with pytest.raises(
            tf.errors.OutOfRangeError, match=r"End of sequence: .* fewer iterations"
        ):
            strategy.run(total, (iterator, 11))


def tunes(dataset):
    return dataset.options().autotune.enabled


def test_data_that_feeds_programs_is_not_tuned(monkeypatch):
    """The thread that tunes sleeps for as long as an epoch takes, and its end waits for it."""
    read, plain = [], iterator_ops.OwnedIterator.__init__

    def noted(self, dataset=None, *rest, **named):
        if dataset is not None:
            read.append(dataset)
        plain(self, dataset, *rest, **named)

    monkeypatch.setattr(iterator_ops.OwnedIterator, "__init__", noted)
    options = tf.data.Options()
    options.autotune.enabled = True
    x = tf.ones([8, 2])
    with machine():
        for feeds in (True, False):
            with Strategy(enable_dataset_iterators=feeds).scope():
                iter(data), iter(data.with_options(options))
                net = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
                net.compile("sgd", "mse", steps_per_execution=2)
                net.fit(x, x[:, :1], batch_size=2, verbose=0)
                net.predict(data.map(lambda n: tf.ones([2, 2])), verbose=0)
            first, second, *keras = [tunes(dataset) for dataset in read]
            assert (first, second, set(keras)) == (False, True, {False})
            assert len(keras) >= 2
            read.clear()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
        infeed._reader.infeed.dequeue()
        assert [tunes(dataset) for dataset in read] == [False]
    iter(data)
    assert tunes(read[-1]) is None  # the host's own
