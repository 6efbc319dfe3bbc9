"""Keras' shapes of CIFAR-10 (golden)."""

from __future__ import annotations

import numpy as np

from ipu.frontends.tensorflow.datasets import cifar10


def test_arrays_have_the_shapes_of_keras(monkeypatch, tmp_path):
    (tmp_path / "cifar10").mkdir()
    for name, n in (("data_batch_1", 4), ("test_batch", 3)):
        records = np.arange(n * 3073, dtype=np.int64).reshape(n, 3073) % 251
        records[:, 0] = np.arange(n)
        (tmp_path / "cifar10" / f"{name}.bin").write_bytes(records.astype(np.uint8).tobytes())
    monkeypatch.setenv("FPSIM_DATA", str(tmp_path))
    (images, labels), (test_images, test_labels) = cifar10.load_data()
    assert (images.shape, labels.shape) == ((4, 32, 32, 3), (4, 1))
    assert (test_images.shape, labels.dtype) == ((3, 32, 32, 3), np.dtype(np.uint8))
    assert images[0, 0, 0].tolist() == [1, (1 + 1024) % 251, (1 + 2048) % 251]
    assert test_labels[:, 0].tolist() == [0, 1, 2]
