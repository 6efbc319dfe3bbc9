"""Files are there whole or not at all (law)."""

from __future__ import annotations

import errno
import os

import pytest

from fpsim.files import write_whole


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
