"""Data sets: splits (law), stand-ins, missing files."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from ipu.feed.data import Images, MissingError, cifar10, digits, fashion_mnist, mnist, or_digits
from tests.vectors import data_path


def idx(array):
    array = np.asarray(array, np.uint8)
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    """A small MNIST: 3 + 5 images, the test files packed."""
    images = np.zeros((8, 28, 28), np.uint8)
    images[:, 0, :6] = np.arange(8 * 6).reshape(8, 6)
    (tmp_path / "mnist").mkdir()
    for stem, rows in (("train", slice(0, 3)), ("t10k", slice(3, 8))):
        pair = {"images-idx3": images[rows], "labels-idx1": np.arange(8)[rows]}
        for kind, array in pair.items():
            path = tmp_path / "mnist" / f"{stem}-{kind}-ubyte"
            if stem == "t10k":
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx(array)))
            else:
                path.write_bytes(idx(array))
    return tmp_path


def test_idx_files_are_read_packed_or_not(folder):
    data = mnist(data_dir=folder)
    assert (len(data.learn), len(data.test), data.shape) == (3, 5, (28, 28, 1))
    assert data.test.pixels[0].ravel()[:6].tolist() == list(range(18, 24))
    assert data.test.labels.tolist() == [3, 4, 5, 6, 7]
    assert data.learn.values[0, 0, 1, 0] == 1 / 255


@pytest.mark.vectors
def test_the_real_files_hold_what_they_should():
    data_path("mnist/t10k-images-idx3-ubyte.gz")
    data = mnist("t10k:8000/2000")
    assert data.source == "mnist, 8000 images of the t10k file and the next 2000 to test with"
    assert data.learn.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert data.learn.pixels.shape == (8000, 28, 28, 1)
    assert np.bincount(np.r_[data.learn.labels, data.test.labels])[0] == 980
    data_path("cifar10/test_batch.bin.gz")
    assert cifar10("test_batch:90/10").shape == (32, 32, 3)


def test_a_file_cut_in_two_shares_no_image(folder):
    data = mnist("t10k:3/2", folder)
    assert (data.learn.labels.tolist(), data.test.labels.tolist()) == ([3, 4, 5], [6, 7])


def test_files_that_do_not_belong_together_are_refused(folder):
    (folder / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx([1, 2]))
    with pytest.raises(ValueError, match=r"announces 2 labels at offset 4, but .* 3 images"):
        mnist(data_dir=folder)


@pytest.mark.parametrize(
    ("split", "message"),
    {
        "t10k": "split='t10k' is not known",
        "t10k:5/1": "asks for 5 [+] 1 images of t10k, which has 5",
        "t10k:5/0": "at least 1",
        "t11k:5/1": "holds no mnist/t11k-images-idx3-ubyte",
    }.items(),
)
def test_splits_are_checked(folder, split, message):
    with pytest.raises(ValueError, match=message):
        mnist(split, folder)


def test_missing_files_say_how_to_get_them(tmp_path, monkeypatch):
    with pytest.raises(MissingError, match="download with: fpsim data fashion-mnist --to"):
        fashion_mnist(data_dir=tmp_path)
    monkeypatch.delenv("FPSIM_DATA", raising=False)
    with pytest.raises(MissingError, match="set FPSIM_DATA"):
        mnist()


def test_digits_stand_in_and_say_so(tmp_path, folder):
    data = or_digits(lambda: cifar10(data_dir=tmp_path), (32, 32, 3))
    assert data.shape == (32, 32, 3)
    assert data.source.endswith("digits, 32 × 32 × 3")
    assert "digits, 32 × 32 × 3, because data_dir=" in str(data)
    small = digits()
    assert (data.learn.pixels[:, ::4, ::4, 1] == small.learn.pixels[..., 0]).all()
    assert len(or_digits(lambda: mnist(data_dir=folder), (28, 28, 1)).learn) == 3
    (folder / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx([1, 2])[:-1])
    with pytest.raises(ValueError, match="cut short"):
        or_digits(lambda: mnist(data_dir=folder), (28, 28, 1))
    with pytest.raises(ValueError, match="smaller than a digit"):
        digits((7, 8, 1))


def test_samples_are_finite_and_labelled():
    with pytest.raises(ValueError, match=r"pixels hold nan at \(1, 0\)"):
        Images(np.array([[0.0], [np.nan]]), np.array([0, 1]))
    with pytest.raises(ValueError, match="2 samples and 1 labels"):
        Images(np.zeros((2, 1)), np.array([0]))
