"""The vendor's fields, and its way with wrong arguments (golden)."""

from __future__ import annotations

import json

import pytest

from ipu.frontends.tensorflow.benchmark import dataset_benchmark, infeed_benchmark
from tests.ipu.frontends.tensorflow.framework import ipu, session, tf

FIELDS = {"elements_processed", "total_bytes_processed", "time_elapsed", "elements_per_second",
          "bandwidth"}


def data():
    return tf.data.Dataset.from_tensors((tf.ones([8]), tf.constant(1))).repeat()


@pytest.mark.source("graphcore/tensorflow, dataset_benchmark.cc")
def test_epochs_have_the_vendors_fields(capsys):
    epochs = json.loads(dataset_benchmark(data(), 3, 5).numpy()[0])["epochs"]
    assert len(epochs) == 3
    for epoch in epochs:
        assert set(epoch) == FIELDS
        assert all(isinstance(value, float) and value > 0 for value in epoch.values())
        assert (epoch["elements_processed"], epoch["total_bytes_processed"]) == (5, 180)
    assert "elements_per_second" in capsys.readouterr().out


@pytest.mark.parametrize("iterators", [True, False])
def test_in_the_scope_of_a_strategy(iterators):
    strategy = ipu.ipu_strategy.IPUStrategyV1(enable_dataset_iterators=iterators)
    with strategy.scope():
        texts = [dataset_benchmark(data(), 1, 5, print_stats=False)]
        texts.append(infeed_benchmark(ipu.ipu_infeed_queue.IPUInfeedQueue(data()), 1, 5, False))
    for text in texts:
        (epoch,) = json.loads(text.numpy()[0])["epochs"]
        assert (epoch["elements_processed"], epoch["total_bytes_processed"]) == (5, 180)


def test_in_a_session_and_of_an_infeed():
    with session() as run:
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data())
        (text,) = run.run(infeed_benchmark(infeed, 1, 2, print_stats=False))
    assert len(json.loads(text)["epochs"]) == 1


def test_wrong_arguments_are_returned():
    assert "number_of_epochs=0" in str(dataset_benchmark(data(), 0, 1))
    assert isinstance(dataset_benchmark(data(), 1, -1), ValueError)
    empty = tf.data.Dataset.from_tensors(tf.ones([0, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="a dimension of size 0"):
        dataset_benchmark(empty, 1, 1)
    with pytest.raises(TypeError, match="is no IPUInfeedQueue"):
        infeed_benchmark(data(), 1, 1)
