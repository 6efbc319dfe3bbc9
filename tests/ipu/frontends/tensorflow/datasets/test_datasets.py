"""Data sets in Keras' shapes; whole ones, test files alone, and no files (golden)."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ipu.feed.data import Data, Images, MissingError
from ipu.frontends.tensorflow.datasets import cifar10, fashion_mnist, mnist
from ipu.frontends.tensorflow.datasets.files import load
from ipu.frontends.tensorflow.settings.notes import forget


def write_mnist(folder: Path, counts: dict[str, int], name: str = "mnist") -> None:
    """Files of so many images each; image i holds i modulo 251, its label i modulo 10."""
    (folder / name).mkdir()
    for stem, n in counts.items():
        planes = np.repeat(np.arange(n) % 251, 28 * 28).astype(np.uint8)
        labels = (np.arange(n) % 10).astype(np.uint8)
        for kind, sizes, data in (
            ("images-idx3", (n, 28, 28), planes),
            ("labels-idx1", (n,), labels),
        ):
            head = bytes((0, 0, 8, len(sizes))) + b"".join(s.to_bytes(4, "big") for s in sizes)
            path = folder / name / f"{stem}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(head + data.tobytes(), 1))


@pytest.mark.parametrize(
    ("module", "folder", "file"),
    [(mnist, "mnist", "mnist.npz"), (fashion_mnist, "fashion-mnist", "fashion_mnist.npz")],
)
def test_grey_images_have_the_shapes_of_keras(module, folder, file, monkeypatch, tmp_path):
    write_mnist(tmp_path, {"train": 30, "t10k": 12}, folder)
    monkeypatch.setenv("FPSIM_DATA", str(tmp_path))
    (images, labels), (test_images, test_labels) = module.load_data(path=file)
    assert (images.shape, test_images.shape) == ((30, 28, 28), (12, 28, 28))
    assert {images.dtype, labels.dtype} == {np.dtype(np.uint8)}
    np.testing.assert_array_equal(images[:, 3, 4], np.arange(30))
    np.testing.assert_array_equal(test_labels, np.arange(12) % 10)


def test_coloured_images_have_the_shapes_of_keras(monkeypatch, tmp_path):
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


def test_a_reader_that_has_everything_is_called_once():
    images = Images(np.zeros((2, 4), np.uint8), np.zeros(2, np.int64))
    data = Data(images, images, "both")
    assert load(lambda: data, "t10k") is data


def test_without_files_the_command_that_downloads_them_is_told(monkeypatch):
    monkeypatch.delenv("FPSIM_DATA", raising=False)
    with pytest.raises(MissingError, match="set FPSIM_DATA, or use: fpsim data mnist --to d"):
        mnist.load_data()


def test_a_test_file_alone_is_split_and_the_program_says_so(monkeypatch, tmp_path):
    forget()
    write_mnist(tmp_path, {"t10k": 10_000})
    monkeypatch.setenv("FPSIM_DATA", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="8000 images of the t10k file and the next 2000"):
        (images, labels), (test_images, test_labels) = mnist.load_data()
    assert [len(x) for x in (images, labels, test_images, test_labels)] == [8000, 8000, 2000, 2000]
    mnist.load_data()
