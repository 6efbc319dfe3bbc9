"""Files are there whole or not at all; a damaged one is refused in one sentence (law)."""

from __future__ import annotations

import errno
import io
import os

import numpy as np
import pytest

from fpsim.state.files import read_arrays, write_whole


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    target = tmp_path / "file"
    write_whole(target, b"old")
    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_new_content_replaces_the_old(tmp_path):
    for content in (b"old", b"new"):
        write_whole(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert os.stat(tmp_path / "file").st_mode & 0o400


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, np.save])
def test_one_wrong_bit_leaves_the_arrays_readable_or_is_refused(tmp_path, save):
    whole, path = io.BytesIO(), tmp_path / "arrays"
    save(whole, np.arange(8))
    good = whole.getvalue()
    refusals = []
    for i in range(0, 8 * len(good), 7):
        content = bytearray(good)
        content[i // 8] ^= 1 << i % 8
        path.write_bytes(content)
        try:
            read_arrays(path)
        except (OSError, ValueError) as error:
            refusals.append(str(error))
    assert refusals
    assert all(refusals)


@pytest.mark.parametrize("content", [b"", b"PK", b"no array"])
def test_what_holds_no_arrays_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        read_arrays(tmp_path / "file")
