"""Files of data sets: golden (the formats, by hand), damaged files."""

from __future__ import annotations

import gzip
import struct
import tracemalloc

import numpy as np
import pytest

from ipu.feed import files
from ipu.feed.data import cifar10, mnist
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
    for content, message in {
        good[:-3]: "is cut short: it ends at offset 21, expected 24 bytes",
        b"": "is empty; get the file again",
        good[:9]: "is cut short: it ends at offset 9, in its header",
        good + b"x": "bytes after its data, from offset 24 on",
        idx([1, 2]): "is mislabelled: it begins with 00000801 at offset 0, expected 00000803",
    }.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message) as error:
            read_idx(path, (None, 2, 2))
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
    for content, message in {
        packed[:-20]: f"packed data end at offset {len(packed) - 20}",
        bytes(wrong): "packed data after offset 0 do not unpack",
        b"plain": "do not unpack",
        packed + b"more": "packed data after offset 0 do not unpack",
    }.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            unpacked(path)
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert unpacked(path) == b"one two"


@pytest.mark.parametrize("shape", [(10, 0, 28), (0, 28, 28), (3, 27, 28), (28, 28, 3)])
def test_images_of_another_size_are_not_mnist(tmp_path, shape):
    (tmp_path / "mnist").mkdir()
    for stem in ("train", "t10k"):
        (tmp_path / "mnist" / f"{stem}-images-idx3-ubyte").write_bytes(idx(np.zeros(shape)))
        (tmp_path / "mnist" / f"{stem}-labels-idx1-ubyte").write_bytes(idx(np.zeros(shape[0])))
    announced = " × ".join(map(str, shape))
    with pytest.raises(
        ValueError, match=f"announces {announced} at offset 4, expected n × 28 × 28"
    ):
        mnist(data_dir=tmp_path)


@pytest.mark.parametrize("n", [10, 5_000_000])
def test_a_bomb_is_not_unpacked_beyond_its_header_or_the_data_sets(tmp_path, n):
    """64 MB of zeros in 65 kB, behind the header of n images."""
    path = tmp_path / "bomb.gz"
    head = bytes((0, 0, 8, 3)) + struct.pack(">3I", n, 28, 28)
    path.write_bytes(gzip.compress(head + bytes(1 << 26), compresslevel=1))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"bytes after its data|announces 5000000 × 28 × 28"):
        read_idx(path, (None, 28, 28))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 21


def test_a_bomb_of_records_is_not_unpacked_beyond_the_data_set(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_SAMPLES", 10)
    path = tmp_path / "bomb.bin.gz"
    path.write_bytes(gzip.compress(bytes(1 << 26), compresslevel=1))
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than 10 records"):
        read_cifar(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 21


def test_members_that_follow_each_other_are_unpacked_to_the_byte(tmp_path):
    path = tmp_path / "file.gz"
    content = np.random.default_rng(0).bytes(300_000)
    pieces = [gzip.compress(content[a : a + 70_001]) for a in range(0, 300_000, 70_001)]
    path.write_bytes(b"".join(pieces))
    assert unpacked(path) == content
    for most in (0, 1, 70_000, 70_001, 70_002, 299_999, 300_000, 300_001):
        assert unpacked(path, most) == content[:most]
