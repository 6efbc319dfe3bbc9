"""Fashion-MNIST by Keras' name: `load_data()` gives arrays of images and labels from FPSIM_DATA."""

from __future__ import annotations

from ipu.feed.data import fashion_mnist
from ipu.frontends.tensorflow.datasets.files import Half, load_gray

__all__ = ["load_data"]


def load_data(path: str | None = None) -> tuple[Half, Half]:
    """((images, labels) to learn from, those to test with).

    path     the name that Keras downloads to; not used.
    Shapes   images (n, 28, 28), labels (n,), both unsigned bytes.

    Raises   MissingError where the files are not there.
    """
    return load_gray(fashion_mnist)
