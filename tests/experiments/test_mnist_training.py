"""MNIST is learnt in every policy, on the split that the report names (statistical).

A bound of 97 % leaves half a point to the means seen, about three of their standard deviations.
"""

from __future__ import annotations

import pytest

from experiments import mnist_training
from ipu.feed.data import MissingError, mnist


def test_without_data_digits_are_learnt_and_the_report_says_so(monkeypatch):
    monkeypatch.delenv("FPSIM_DATA", raising=False)
    mnist_training.data.cache_clear()
    source = mnist_training.data().source
    mnist_training.data.cache_clear()
    assert source.startswith("scikit-learn's handwritten digits, 28 × 28")
    assert "no data folder is given" in source


@pytest.mark.tier("full")
def test_every_policy_reaches_97_percent():
    try:
        mnist(mnist_training.SPLIT)
    except MissingError as missing:
        pytest.skip(str(missing))
    result = mnist_training.run(quick=False, seed=0)
    assert "8000 images" in result.answer
    for variant in mnist_training.VARIANTS:
        accuracy = result.column("accuracy", part="test", policy=variant.name)
        assert accuracy.size == mnist_training.SEEDS
        assert accuracy.mean() >= 0.97
        assert accuracy.max() - accuracy.min() < 0.02
    assert mnist_training.plot(result)
