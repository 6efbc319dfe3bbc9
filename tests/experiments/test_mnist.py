"""A convolutional network learns MNIST in every way of training (statistical, several seeds).

8 000 of the test file's images are learnt from and its other 2 000 tested with, as the training
file is not always there; so these figures are not comparable with those of others.
"""

from __future__ import annotations

import pytest

from experiments import store
from experiments.study import USUAL, study
from ipu.feed.data import mnist
from ipu.learn.nn import conv, dense, flatten, max_pool, relu
from ipu.learn.optim import SGD
from tests.vectors import data_path


def network(x):
    x = relu(max_pool(conv(x, 10, 5, "conv1", padding="VALID"), 2))
    x = relu(max_pool(conv(x, 20, 5, "conv2", padding="VALID"), 2))
    return dense(relu(dense(flatten(x), 256, "hidden")), 10, "output")


@pytest.mark.vectors
@pytest.mark.tier("full")
def test_three_ways_of_training_recognise_97_percent(tmp_path):
    data_path("mnist/t10k-images-idx3-ubyte.gz")
    study("mnist", network, mnist("t10k:8000/2000"), SGD(0.03, 0.9), USUAL, epochs=4, batch=20,
          seeds=3, out=tmp_path, preset="exact")  # fmt: skip
    result, _ = store.load(tmp_path / "mnist")
    for variant in USUAL:
        reached = result.column("accuracy", part="test", policy=variant.name)
        assert len(reached) == 3
        assert reached.min() >= 0.97, (variant.name, reached)
