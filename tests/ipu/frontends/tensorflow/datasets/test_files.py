"""Whole data sets, test files alone, and no files (golden)."""

from __future__ import annotations

import pytest

from ipu.feed.data import Data, Images, MissingError
from ipu.frontends.tensorflow.datasets.files import load
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.datasets.folders import write_mnist


def test_a_reader_that_has_everything_is_called_once():
    import numpy as np

    images = Images(np.zeros((2, 4), np.uint8), np.zeros(2, np.int64))
    data = Data(images, images, "both")
    assert load(lambda: data, "t10k") is data


def test_without_files_the_command_that_downloads_them_is_told(monkeypatch):
    from ipu.frontends.tensorflow.datasets import mnist

    monkeypatch.delenv("FPSIM_DATA", raising=False)
    with pytest.raises(MissingError, match="set FPSIM_DATA, or use: fpsim data mnist --to d"):
        mnist.load_data()


def test_a_test_file_alone_is_split_and_the_program_says_so(monkeypatch, tmp_path):
    from ipu.frontends.tensorflow.datasets import mnist

    forget()
    write_mnist(tmp_path, {"t10k": 10_000})
    monkeypatch.setenv("FPSIM_DATA", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="8000 images of the t10k file and the next 2000"):
        (images, labels), (test_images, test_labels) = mnist.load_data()
    assert [len(x) for x in (images, labels, test_images, test_labels)] == [8000, 8000, 2000, 2000]
    mnist.load_data()
