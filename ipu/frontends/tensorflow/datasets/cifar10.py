"""CIFAR-10 by Keras' name: `load_data()` gives arrays of images and labels from FPSIM_DATA."""

from __future__ import annotations

import numpy as np

from ipu.feed.data import cifar10
from ipu.frontends.tensorflow.datasets.files import Half, load

__all__ = ["load_data"]


def load_data() -> tuple[Half, Half]:
    """((images, labels) to learn from, those to test with).

    Shapes   images (n, 32, 32, 3), labels (n, 1), both unsigned bytes.

    Raises   MissingError where the files are not there.
    """
    data = load(cifar10, "test_batch")
    learn, test = (
        (half.pixels, half.labels.astype(np.uint8)[:, np.newaxis])
        for half in (data.learn, data.test)
    )
    return learn, test
