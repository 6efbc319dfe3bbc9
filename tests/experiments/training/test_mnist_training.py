"""A convolutional network learns MNIST in every way of training (statistical, several seeds).

8 000 of the test file's images are learnt from and its other 2 000 tested with, as the training
file is not always there; so these figures are not comparable with those of others.
"""

from __future__ import annotations

import pytest

from ipu.experiments.lab.study import USUAL
from ipu.experiments.training import mnist_training
from tests.vectors import data_path


def test_without_data_digits_are_learnt_and_the_report_says_so(monkeypatch):
    monkeypatch.delenv("FPSIM_DATA", raising=False)
    source = str(mnist_training.data())
    assert source.startswith("scikit-learn's handwritten digits, 28 × 28")
    assert "no data folder is given" in source


@pytest.mark.vectors
@pytest.mark.tier("full")
def test_three_ways_of_training_recognise_97_percent():
    data_path("mnist/t10k-images-idx3-ubyte.gz")
    result = mnist_training.run(quick=False, seed=0)
    assert "8000 images of the t10k file" in result.answer
    for variant in USUAL:
        reached = result.column("accuracy", part="test", policy=variant.name)
        assert len(reached) == 3
        assert reached.mean() >= 0.97, (variant.name, reached)
        assert reached.min() >= 0.955, (variant.name, reached)
    assert mnist_training.plot(result)
