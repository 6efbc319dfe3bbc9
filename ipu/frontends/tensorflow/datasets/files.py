"""Arrays of a data set as Keras' `load_data` gives them, from the folder that FPSIM_DATA names.

Where only the test file lies there, its first 8000 images are what to learn from and the next 2000
what to test with; the program says so once. Nothing here reaches for the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ipu.feed.data import Data, MissingError
from ipu.frontends.tensorflow.settings.notes import note

__all__ = ["Half", "load", "load_gray"]

#: Images and labels.
Half = tuple[NDArray[np.uint8], NDArray[np.uint8]]

_CUT = "8000/2000"


def load_gray(read: Callable[..., Data]) -> tuple[Half, Half]:
    """Both halves of a set of images with one channel, which their shape leaves out."""
    data = load(read, "t10k")
    learn, test = (
        (half.pixels[..., 0], half.labels.astype(np.uint8)) for half in (data.learn, data.test)
    )
    return learn, test


def load(read: Callable[..., Data], test_file: str) -> Data:
    """Both halves of a data set.

    read         its reader in `ipu.feed.data`; test_file: stem of its test file.

    Raises       MissingError where there is no file, with the command that downloads it.
    """
    try:
        return read()
    except MissingError as missing:
        try:
            data = read(split=f"{test_file}:{_CUT}")
        except MissingError:
            raise missing from None
        note(f"load_data() gives {replace(data, because=str(missing))}")
        return data
