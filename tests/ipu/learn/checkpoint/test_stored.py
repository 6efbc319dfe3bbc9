"""Arrays of uncompressed npz files: differential against numpy; `test_file` has damaged files."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.learn.checkpoint.stored import read_stored


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.uint16).reshape(2, 3), np.zeros((0, 3), np.uint8), np.uint64(7),
     np.frombuffer(b"ab", np.uint8),
     np.asfortranarray(np.arange(6, dtype=np.uint32).reshape(2, 3))],
    ids=str,
)  # fmt: skip
def test_arrays_are_those_that_numpy_reads(tmp_path, array):
    np.savez(tmp_path / "a.npz", **{"x/y": array, "z": np.ones(1)})
    arrays = read_stored(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as wanted:
        assert list(arrays) == list(wanted)
        for name, values in arrays.items():
            assert values.dtype == wanted[name].dtype
            assert values.shape == wanted[name].shape
            assert values.tolist() == wanted[name].tolist()


def test_compressed_arrays_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1000))
    with pytest.raises(ValueError, match=r"^x\.npy is compressed$"):
        read_stored(tmp_path / "a.npz")
