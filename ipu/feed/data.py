"""Data sets in memory: MNIST, Fashion-MNIST and CIFAR-10 from their files, or scaled digits.

A data folder holds the folders mnist, fashion-mnist and cifar10 with the original files, packed
(.gz) or not. It is the argument `data_dir`, else the environment variable FPSIM_DATA. Nothing here
reaches for the network: `fpsim data` does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu.feed.files import DataFileError, read_cifar, read_idx, read_labels

__all__ = [
    "SETS", "Data", "Images", "MissingError", "cifar10", "data_folder", "digits", "fashion_mnist",
    "mnist", "or_digits",
]

#: "FILE:N/M": N images of one file to learn from, the next M to test with.
_CUT = re.compile(r"([\w-]+):(\d+)/(\d+)")


class MissingError(ValueError):
    """The files of a data set are not there."""


@dataclass(frozen=True)
class Images:
    """Samples along the first axis, and their labels.

    pixels    unsigned bytes, which stand for 0 … 255 / 255, or any finite floats as they are.
    Raises    ValueError for NaN or infinity, and where the numbers of samples differ.

    >>> Images(np.array([[0.5, np.nan]]), np.array([1]))
    Traceback (most recent call last):
    ...
    ValueError: pixels hold nan at (0, 1); clean the data first
    """

    pixels: NDArray[Any]
    labels: NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        if len(self.pixels) != len(self.labels):
            raise ValueError(
                f"{len(self.pixels)} samples and {len(self.labels)} labels; give one label each"
            )
        if self.pixels.dtype != np.uint8 and not np.isfinite(self.pixels).all():
            wrong = np.argwhere(~np.isfinite(self.pixels))[0].tolist()
            shown = self.pixels[tuple(wrong)]
            raise ValueError(f"pixels hold {shown} at {tuple(wrong)}; clean the data first")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> Images:
        return Images(self.pixels[rows], self.labels[rows])

    @property
    def values(self) -> NDArray[np.float64]:
        """What the pixels stand for."""
        if self.pixels.dtype == np.uint8:
            return self.pixels / 255.0
        return self.pixels.astype(np.float64)


@dataclass(frozen=True)
class Data:
    """What to learn from and what to test with.

    source     what they are, in words.
    because    why they stand in for others; `str` says both.
    """

    learn: Images
    test: Images
    source: str
    because: str = ""

    def __str__(self) -> str:
        return f"{self.source}, because {self.because}" if self.because else self.source

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width and channels of one image."""
        return self.learn.pixels.shape[1:]


def mnist(split: str = "train/t10k", data_dir: str | Path | None = None) -> Data:
    """MNIST, 28 × 28 × 1.

    split    "train/t10k": the 60 000 training images and the 10 000 test images; "t10k:8000/2000":
             the test file alone, cut in two; any other numbers likewise.
    Raises   MissingError where the files are not there; DataFileError for damaged ones.
    """
    return _read("mnist", split, data_dir, _idx, "train/t10k")


def fashion_mnist(split: str = "train/t10k", data_dir: str | Path | None = None) -> Data:
    """Fashion-MNIST, 28 × 28 × 1, in files that are named as MNIST's."""
    return _read("fashion-mnist", split, data_dir, _idx, "train/t10k")


def cifar10(split: str = "data_batch/test_batch", data_dir: str | Path | None = None) -> Data:
    """CIFAR-10, 32 × 32 × 3: data_batch_1 to 9, those that are there, and test_batch."""
    return _read("cifar10", split, data_dir, _cifar, "data_batch/test_batch")


def digits(shape: tuple[int, int, int] = (8, 8, 1)) -> Data:
    """scikit-learn's 1 797 digits of 8 × 8, enlarged by an integer, framed with 0.

    >>> data = digits((28, 28, 1))
    >>> data.shape, len(data.learn), len(data.test)
    ((28, 28, 1), 1437, 360)
    """
    from sklearn.datasets import load_digits

    height, width, channels = shape
    times = min(height, width) // 8
    if times < 1:
        raise ValueError(f"shape={shape} is smaller than a digit; use 8 × 8 or more")
    digits_8x8 = load_digits()
    small = (digits_8x8.images * 15).astype(np.uint8)
    large = small.repeat(times, axis=1).repeat(times, axis=2)
    rows, columns = (_frame(n, 8 * times) for n in (height, width))
    framed = np.pad(large, ((0, 0), rows, columns))
    pixels = np.repeat(framed[..., np.newaxis], channels, axis=3)
    images = Images(pixels, digits_8x8.target.astype(np.int64))
    source = f"scikit-learn's handwritten digits, {height} × {width} × {channels}"
    return Data(images[:-360], images[-360:], source)


def _frame(outer: int, inner: int) -> tuple[int, int]:
    before = (outer - inner) // 2
    return before, outer - inner - before


def or_digits(load: Callable[[], Data], shape: tuple[int, int, int]) -> Data:
    """What `load` gives; where its files are missing, digits of that shape, saying so."""
    try:
        return load()
    except MissingError as missing:
        return replace(digits(shape), because=str(missing))


# Files ----------------------------------------------------------------------------------------


def data_folder(name: str, data_dir: str | Path | None = None) -> Path:
    """The folder of a data set below `data_dir`, else below FPSIM_DATA.

    Raises    MissingError where neither is set.
    """
    root = data_dir or os.environ.get("FPSIM_DATA")
    if not root:
        raise MissingError(
            f"no data folder is given; set FPSIM_DATA, or use: fpsim data {name} --to d"
        )
    return Path(root) / name


def _idx(folder: Path, stem: str) -> Images:
    pixels = _find(folder, f"{stem}-images-idx3-ubyte")
    labels = _find(folder, f"{stem}-labels-idx1-ubyte")
    planes, classes = read_idx(pixels, (None, 28, 28)), read_labels(labels)
    if len(planes) != len(classes):
        raise DataFileError(
            f"{labels} is mislabelled: it announces {len(classes)} labels at offset 4, but "
            f"{pixels.name} {len(planes)} images; use files that belong together"
        )
    return _images(planes[..., np.newaxis], classes)


def _cifar(folder: Path, stem: str) -> Images:
    if stem != "data_batch":
        return _images(*read_cifar(_find(folder, f"{stem}.bin")))
    present = [_path(folder, f"data_batch_{number}.bin") for number in range(1, 10)]
    files = list(filter(None, present)) or [_find(folder, "data_batch_1.bin")]
    batches = map(read_cifar, files)
    return _images(*(np.concatenate(arrays) for arrays in zip(*batches, strict=True)))


def _images(pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Images:
    return Images(pixels, labels.astype(np.int64))


def _path(folder: Path, name: str) -> Path | None:
    """The file, else the packed one."""
    both = (folder / name, folder / f"{name}.gz")
    return next((path for path in both if path.is_file()), None)


def _find(folder: Path, name: str) -> Path:
    path = _path(folder, name)
    if path is not None:
        return path
    raise MissingError(
        f"data_dir={str(folder.parent)!r} holds no {folder.name}/{name}(.gz); "
        f"download with: fpsim data {folder.name} --to {folder.parent}"
    )


def _read(
    name: str, split: str, data_dir: str | Path | None,
    reader: Callable[[Path, str], Images], original: str,
) -> Data:
    folder = data_folder(name, data_dir)
    if split == original:
        learn, test = (reader(folder, stem) for stem in original.split("/"))
        return Data(learn, test, f"{name}, {len(learn)} images and {len(test)} to test with")
    cut = _CUT.fullmatch(split)
    if cut is None:
        raise ValueError(f"split={split!r} is not known; use {original!r} or 'FILE:N/M'")
    images, n, m = reader(folder, cut[1]), int(cut[2]), int(cut[3])
    if not (n and m and n + m <= len(images)):
        raise ValueError(
            f"split={split!r} asks for {n} + {m} images of {cut[1]}, which has {len(images)}; "
            "use at least 1 and at most that many"
        )
    source = f"{name}, {n} images of the {cut[1]} file and the next {m} to test with"
    return Data(images[:n], images[n : n + m], source)


#: Every data set with files, by the name of its folder.
SETS: dict[str, Callable[..., Data]] = {
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
}
