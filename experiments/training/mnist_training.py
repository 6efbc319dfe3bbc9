"""A convolutional network on MNIST in FP32, with FP16 compute, and in FP16 with SR.

The network of Graphcore's tutorial on pipelining. It learns once from each of 60 000 images; where
only the test files of MNIST are there, four times from 8 000 of theirs, with 2 000 to test with, as
the report says; without any file scikit-learn's digits are enlarged to the shape.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ipu.experiments.lab.result import Result, Table
from ipu.experiments.lab.study import USUAL, Study
from ipu.experiments.training.networks import mnist as network
from ipu.feed.data import Data, MissingError, mnist, or_digits
from ipu.learn.optim import SGD
from ipu.run.verdict import over_seeds, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Does a convolutional network learn MNIST as well in FP16 as in FP32?"
BUDGET = 500
DEFAULT = False

#: Points of test accuracy; who loses less has learnt as well.
MARGIN = 1.0
SPLIT = "t10k:8000/2000"
#: Images that a quick run learns from, and tests with.
FEW = 320


def data() -> Data:
    """All of MNIST, else the test files split, else digits."""
    try:
        return mnist()
    except MissingError:
        return or_digits(lambda: mnist(SPLIT), (28, 28, 1))


def epochs_of(images: int) -> int:
    """Four, or as many as show a network 60 000 images.

    >>> epochs_of(8_000), epochs_of(60_000)
    (4, 1)
    """
    return min(4, max(1, 60_000 // images))


def _study(images: Data, quick: bool) -> Study:
    epochs, seeds = (1, 1) if quick else (epochs_of(len(images.learn)), 3)
    if quick:
        images = replace(images, learn=images.learn[:FEW], test=images.test[:FEW])
    return Study(
        "mnist_training", QUESTION, BUDGET, DEFAULT, network, images, SGD(0.03, 0.9), USUAL,
        epochs, 20, seeds, {"preset": "exact"},
    )


def run(quick: bool, seed: int) -> Result:
    images = data()
    result = _study(images, quick).run(quick, seed)
    return replace(result, answer=f"{as_well(result)} On {images}: {result.answer}")


def as_well(result: Result) -> str:
    """Does FP16 lose less than MARGIN points, in both ways of training? Paired over the seeds."""
    single, *others = (
        100 * result.column("accuracy", part="test", policy=variant.name) for variant in USUAL
    )
    losses = [over_seeds(single - other) for other in others]
    return verdict(
        all(loss.is_below(MARGIN) for loss in losses),
        any(loss.is_above(MARGIN) for loss in losses),
        needs="more seeds",
    )


def plot(result: Result) -> Figure | None:
    return _study(data(), quick=False).plot(result)


def tables(result: Result) -> list[Table]:
    return _study(data(), quick=False).tables(result)
