"""A folder is one training's: refused while it lives, free when it has ended, however (law)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fpsim.state import files
from ipu.learn.checkpoint import Keeper
from ipu.learn.checkpoint import lock as module
from ipu.learn.checkpoint.lock import LOCK, FolderLock

#: Holds a folder, says so, and waits for a line.
HOLDER = """
import sys
from pathlib import Path
from ipu.learn.checkpoint.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("holds", flush=True)
sys.stdin.readline()
"""
ROOT = Path(__file__).parents[4]


@pytest.fixture
def holder(tmp_path):
    """Another process that has the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, text=True,
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout.readline() == "holds\n"
        yield process
        process.kill()


def test_a_folder_of_another_process_is_refused_with_its_number(tmp_path, holder, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    with pytest.raises(ValueError, match=f"in use by the training of process {holder.pid} on '"):
        Keeper(tmp_path)
    (tmp_path / LOCK).write_text("no JSON")
    with pytest.raises(ValueError, match="is in use by another training; wait for its end"):
        Keeper(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, None], ids=["killed", "ended"])
def test_a_training_that_has_ended_blocks_nobody(tmp_path, holder, number):
    if number is None:
        holder.stdin.write("go on\n")
        holder.stdin.flush()
        assert holder.wait(60) == 0
    else:
        holder.send_signal(number)
        holder.wait(60)
    assert (tmp_path / LOCK).exists() == (number is not None)
    FolderLock(tmp_path, patience=0).release()
    assert os.listdir(tmp_path) == []


def test_one_that_is_about_to_leave_is_waited_for(tmp_path, holder):
    holder.stdin.write("go on\n")
    holder.stdin.flush()
    FolderLock(tmp_path, patience=60).release()


def test_two_of_one_process_are_refused_until_the_first_is_closed(tmp_path):
    first = Keeper(tmp_path)
    os.symlink(tmp_path, tmp_path / "other name")
    for name in (tmp_path, tmp_path / "other name"):
        with pytest.raises(ValueError, match="another training of this process; close that one"):
            Keeper(name)
    first.close()
    second = Keeper(tmp_path)
    first.close()
    with pytest.raises(ValueError, match="another training of this process"):
        Keeper(tmp_path)
    second.close()


def test_a_training_that_nobody_holds_any_more_has_left(tmp_path):
    lock = FolderLock(tmp_path)
    del lock
    FolderLock(tmp_path).release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_of_fork_neither_holds_nor_releases_the_lock(tmp_path):
    code = f"""
import os, signal, sys, time
from pathlib import Path
from ipu.learn.checkpoint.lock import FolderLock
lock = FolderLock(Path({str(tmp_path)!r}))
child = os.fork()
if child == 0:
    lock.release()
    time.sleep(1000)
time.sleep(0.5)
assert os.path.exists({str(tmp_path / LOCK)!r})
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE,
    ) as parent:
        child = int(parent.stdout.readline())
        try:
            assert parent.wait(60) == -signal.SIGKILL
            FolderLock(tmp_path, patience=0).release()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files.fcntl, "flock", unsupported)
    with pytest.warns(RuntimeWarning, match="cannot be locked .no file locks: No locks a.*; start"):
        lock = FolderLock(tmp_path)
    with pytest.raises(ValueError, match="another training of this process"):
        FolderLock(tmp_path)
    lock.release()


def test_a_system_without_locks_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    with pytest.warns(RuntimeWarning, match="cannot be locked .no file locks: this system has"):
        lock = FolderLock(tmp_path)
    files.write_whole(tmp_path / "file", b"content")
    lock.release()


def test_a_folder_that_is_not_there_is_no_lock(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        FolderLock(tmp_path / "none")
    (tmp_path / "none").mkdir()
    FolderLock(tmp_path / "none").release()
