"""Keras' shapes of the data set (golden)."""

from __future__ import annotations

import numpy as np

from ipu.frontends.tensorflow.datasets import mnist
from tests.ipu.frontends.tensorflow.datasets.folders import write_mnist


def test_arrays_have_the_shapes_of_keras(monkeypatch, tmp_path):
    write_mnist(tmp_path, {"train": 30, "t10k": 12}, "mnist")
    monkeypatch.setenv("FPSIM_DATA", str(tmp_path))
    (images, labels), (test_images, test_labels) = mnist.load_data(path="mnist.npz")
    assert (images.shape, test_images.shape) == ((30, 28, 28), (12, 28, 28))
    assert {images.dtype, labels.dtype} == {np.dtype(np.uint8)}
    np.testing.assert_array_equal(images[:, 3, 4], np.arange(30))
    np.testing.assert_array_equal(test_labels, np.arange(12) % 10)
