"""A convolutional network on MNIST in FP32, with FP16 compute, and in FP16 with SR.

The network of Graphcore's tutorial on pipelining. It learns once from each of 16 000 images; where
only the test files of MNIST are there, twice from 8 000 of theirs, with 2 000 to test with, as
the report says; without any file scikit-learn's digits are enlarged to the shape.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ipu.experiments.lab.judged import judged_ways, opening
from ipu.experiments.lab.result import Result, Table
from ipu.experiments.lab.study import USUAL, Study
from ipu.experiments.training.networks import mnist as network
from ipu.feed.data import Data, MissingError, mnist, or_digits
from ipu.learn.optim import SGD

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Does a convolutional network learn MNIST as well in FP16 as in FP32?"
BUDGET = 500
DEFAULT = False

SPLIT = "t10k:8000/2000"
#: Images that a training sees, and that a quick run learns from and tests with.
LEARNT, FEW = 16_000, 320


def data() -> Data:
    """All of MNIST, else the test files split, else digits."""
    try:
        return mnist()
    except MissingError:
        return or_digits(lambda: mnist(SPLIT), (28, 28, 1))


def epochs_of(images: int) -> int:
    """As many as show a network LEARNT images, four at most.

    >>> epochs_of(8_000), epochs_of(60_000)
    (2, 1)
    """
    return min(4, max(1, LEARNT // images))


def _study(images: Data, quick: bool) -> Study:
    epochs, seeds = (1, 1) if quick else (epochs_of(len(images.learn)), 5)
    most = FEW if quick else LEARNT
    images = replace(images, learn=images.learn[:most], test=images.test[:most])
    return Study(
        "mnist_training", QUESTION, BUDGET, DEFAULT, network, images, SGD(0.03, 0.9), USUAL,
        epochs, 20, seeds, {"preset": "exact"},
    )


def run(quick: bool, seed: int) -> Result:
    images = data()
    result = _study(images, quick).run(quick, seed)
    return replace(result, answer=f"{as_well(result)} On {images}: {result.answer}")


def as_well(result: Result) -> str:
    """Are both ways of training as good as FP32, by the test accuracy?"""
    first, *others = (variant.name for variant in USUAL)
    return opening(*judged_ways(result, others, first).values())


def plot(result: Result) -> Figure | None:
    return _study(data(), quick=False).plot(result)


def tables(result: Result) -> list[Table]:
    return _study(data(), quick=False).tables(result)
