"""Files of data sets: golden (the formats, by hand), damaged files."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from ipu.feed.data import cifar10
from ipu.feed.files import RECORD, read_cifar, read_idx, read_labels, unpacked


def idx(array):
    array = np.asarray(array, np.uint8)
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes()


def cifar(labels):
    rows = np.random.default_rng(0).integers(0, 256, (len(labels), RECORD), np.uint8)
    rows[:, 0] = labels
    return rows


def test_cifar_planes_become_channels_and_batches_are_joined_in_order(tmp_path):
    (tmp_path / "cifar10").mkdir()
    rows = cifar([1, 2, 3, 4])
    for name, part in {"data_batch_2": rows[2:3], "data_batch_1": rows[:2]}.items():
        (tmp_path / "cifar10" / f"{name}.bin.gz").write_bytes(gzip.compress(part.tobytes()))
    (tmp_path / "cifar10" / "test_batch.bin").write_bytes(rows[3:].tobytes())
    for name in ("data_batch_1.bin.bak", "data_batch_2.bin~", "data_batch_x.bin"):
        (tmp_path / "cifar10" / name).write_bytes(b"no data")
    data = cifar10(data_dir=tmp_path)
    assert data.learn.labels.tolist() == [1, 2, 3]
    assert data.test.labels.tolist() == [4]
    assert data.learn.pixels.shape == (3, 32, 32, 3)
    assert data.learn.pixels[2, 5, 7].tolist() == [
        rows[2, 1 + c * 1024 + 5 * 32 + 7] for c in (0, 1, 2)
    ]


def test_damaged_files_are_named_with_the_offset(tmp_path):
    good, path = idx(np.zeros((2, 2, 2))), tmp_path / "file"
    for content, said in {
        good[:-3]: "is cut short: it ends at offset 21, expected 24 bytes",
        good[:9]: "is cut short: it ends at offset 9",
        good + b"x": "bytes after its data, from offset 24 on",
        idx([1, 2]): "is mislabelled: it begins with 00000801 at offset 0, expected 00000803",
    }.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=said) as error:
            read_idx(path, 3)
        assert str(path) in str(error.value)
    path.write_bytes(idx([3, 10]))
    with pytest.raises(ValueError, match="label 10 at offset 9, expected 0 to 9"):
        read_labels(path)


def test_damaged_records_are_named_with_the_offset(tmp_path):
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(cifar([1, 2]).tobytes()[:-1])
    with pytest.raises(ValueError, match="record at offset 3073 has 3072 of 3073 bytes"):
        read_cifar(path)
    path.write_bytes(cifar([1, 200]).tobytes())
    with pytest.raises(ValueError, match="label 200 at offset 3073"):
        read_cifar(path)


def test_packed_data_are_checked(tmp_path):
    path = tmp_path / "file.gz"
    packed = gzip.compress(np.random.default_rng(0).bytes(1000))
    wrong = bytearray(packed)
    wrong[-6] ^= 1  # in the CRC
    for content, said in {
        packed[:-20]: f"packed data end at offset {len(packed) - 20}",
        bytes(wrong): "packed data after offset 0 do not unpack",
        b"plain": "do not unpack",
        packed + b"more": "packed data after offset 0 do not unpack",
    }.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=said):
            unpacked(path)
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert unpacked(path) == b"one two"
