"""Files are there whole or not at all; a damaged or swollen one is refused in a sentence (law)."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fpsim.state import files
from fpsim.state.files import most_unpacked, read_arrays, write_whole


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
    complete, path = io.BytesIO(), tmp_path / "arrays"
    save(complete, np.arange(8))
    good = complete.getvalue()
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


KILLED = """
import os, signal
from pathlib import Path
from fpsim.state import files

os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
files.write_whole(Path("file"), b"half")
"""


def test_what_a_killed_process_left_is_removed_by_the_next_save(tmp_path):
    paths = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"PYTHONPATH": paths}
    process = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=tmp_path, env=environment, check=False
    )
    assert process.returncode == -signal.SIGKILL
    (draft,) = os.listdir(tmp_path)
    assert draft.startswith(".file.")
    others = [".file.notes", ".file.abcdefgh.old.draft", ".file2.abcdefgh.draft"]
    for other in others:
        (tmp_path / other).write_bytes(b"a user's")
    write_whole(tmp_path / "file", b"new")
    assert sorted(os.listdir(tmp_path)) == sorted(["file", *others])


def test_what_killed_processes_left_is_gone_before_a_full_disk_refuses(tmp_path, monkeypatch):
    for name in ("aaaaaaaa", "bbbbbbbb"):
        (tmp_path / f".file.{name}.draft").write_bytes(b"half")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "file", b"new")
    assert os.listdir(tmp_path) == []


def test_a_draft_that_is_being_written_stays(tmp_path):
    with files._draft(tmp_path / "file") as (_, draft):
        write_whole(tmp_path / "file", b"new")
        assert draft.exists()
        draft.unlink()


ARRAYS = {
    "plain": np.arange(6.0).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    "empty": np.zeros((0, 4), np.float32),
    "scalar": np.array(3.5),
    "foreign": np.arange(3, dtype=">f4"),
    "text": np.array(["a", "bc"]),
    "bits": np.zeros(3, ml_dtypes.bfloat16).view("V2"),
    "records": np.zeros(2, [("x", np.int8), ("y", np.float64)]),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_as_numpy_reads_them(tmp_path, save):
    path = tmp_path / "arrays.npz"
    save(path, **ARRAYS)
    arrays = read_arrays(path)
    assert list(arrays) == list(ARRAYS)
    with np.load(path) as reference:
        for name, array in arrays.items():
            assert (array.dtype, array.shape) == (reference[name].dtype, reference[name].shape)
            assert array.tobytes() == reference[name].tobytes(), name
            assert array.flags.writeable


def test_arrays_that_are_stored_are_read_alike_and_compressed_ones_refused(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, **ARRAYS)
    arrays = read_arrays(path, stored_only=True)
    for name, array in read_arrays(path).items():
        assert arrays[name].tobytes() == array.tobytes()
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
    np.savez_compressed(path, x=np.zeros(1000))
    with pytest.raises(ValueError, match=r"^x\.npy is compressed$"):
        read_arrays(path, stored_only=True)


def test_stored_arrays_are_no_larger_than_their_file(tmp_path):
    """The container's list and the array's header announce 128 MiB; 128 bytes follow."""
    content = bytearray(zipped({"a.npy": npy(f"({(1 << 27) - 128},)", descr="'|u1'")}, 0))
    entry = content.index(b"PK\x01\x02")
    content[entry + 20 : entry + 28] = 2 * (1 << 27).to_bytes(4, "little")
    (tmp_path / "arrays.npz").write_bytes(content)
    sentence = refusal(tmp_path / "arrays.npz", stored_only=True)
    assert sentence.startswith(f"array 'a' unpacks to {(1 << 27) - 128} bytes, ")


@pytest.mark.parametrize("name", ARRAYS)
def test_a_single_array_is_read_as_numpy_reads_it(tmp_path, name):
    np.save(tmp_path / "a.npy", ARRAYS[name])
    (array,) = read_arrays(tmp_path / "a.npy").values()
    assert (array.dtype, array.shape) == (ARRAYS[name].dtype, ARRAYS[name].shape)
    assert array.tobytes() == ARRAYS[name].tobytes()


def npy(shape: str, content: bytes = b"", descr: str = "'<f4'") -> bytes:
    """An .npy file that says what it likes."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    text = text.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def zipped(content: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return file.getvalue()


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([None]), allow_pickle=True)
    return file.getvalue()


REFUSED = {
    "nothing": (b"", "the file is empty"),
    "no zip": (b"PK", "not a zip file"),
    "text": (b"no array", "neither an .npy nor an .npz file"),
    "a pickle": (b"\x80\x04N.", "neither an .npy nor an .npz file"),
    "objects": (pickled(), "holds Python objects; save numbers"),
    "no arrays": (zipped({}), "it holds no arrays"),
    "a text member": (zipped({"a.txt": b"x"}), "member 'a.txt' is no .npy array"),
    "objects in a zip": (zipped({"a.npy": pickled()}), "array 'a' holds Python objects"),
    "another method": (zipped({"a.npy": npy("(0,)")}, zipfile.ZIP_BZIP2), "numpy does not use"),
    "a long shape": (npy("(1 << 50,)"), "damaged header"),
    "more than there is": (npy("(1000000000000,)", b"abcd"), "4 bytes, 4000000000000 by its"),
    "less than there is": (npy("(1,)", b"12345678"), "has 8 bytes, 4 by its header"),
    "a negative length": (npy("(-1,)", b"1234"), "has 4 bytes, -4 by its header"),
    "two negative lengths": (npy("(-1, -1)", b"1234"), "has 4 bytes, 4 by its header"),
    "no length": (npy("(2.5,)"), "damaged header"),
    "no type": (npy("(1,)", b"1234", "'<q9'"), "damaged header"),
    "a long header": (npy("(1,)" + " " * 20000, b"1234"), "damaged header"),
    "a late version": (npy("()").replace(b"\x01\x00", b"\x03\x00", 1), "version (3, 0)"),
    "no version": (b"\x93NUMPY", "EOF"),
}


@pytest.mark.parametrize("content", REFUSED)
def test_what_holds_no_arrays_is_refused(tmp_path, content):
    data, message = REFUSED[content]
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError, match=r".") as error:
        read_arrays(tmp_path / "file")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "pickle" not in str(error.value)


def test_two_members_of_one_name_are_refused(tmp_path):
    content = zipped({"a.npy": npy("(0,)"), "b.npy": npy("(0,)")})
    (tmp_path / "x").write_bytes(content.replace(b"b.npy", b"a.npy"))
    with pytest.raises(ValueError, match="two members are named 'a'"):
        read_arrays(tmp_path / "x")


def test_a_folder_and_a_missing_file_are_errors_of_the_system(tmp_path):
    with pytest.raises(IsADirectoryError):
        read_arrays(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "none")


# Files made to fill the memory ----------------------------------------------------------------


def bomb(path: Path, mebibytes: int, shape: str) -> None:
    """Zeros, a thousandth of their size on the disk."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a.npy", "w") as file,
    ):
        file.write(npy(shape))
        for _ in range(mebibytes):
            file.write(bytes(1 << 20))


def refusal(path: Path, **limits: int) -> str:
    """The sentence of the refusal, which takes no memory to speak of."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r".") as error:
            read_arrays(path, **limits)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    return str(error.value)


def test_an_archive_that_unpacks_to_much_more_than_its_size_is_refused(tmp_path):
    path = tmp_path / "bomb.npz"
    bomb(path, 400, f"({400 << 18},)")
    assert path.stat().st_size < 1 << 21
    assert "unpacks to 419430400 bytes" in refusal(path)
    assert read_arrays(path, most=400 << 20)["a"].nbytes == 400 << 20


@pytest.mark.parametrize("length", [0, 1, 1 << 40])
def test_an_archive_whose_header_lies_is_refused_unread(tmp_path, length):
    path = tmp_path / "bomb.npz"
    bomb(path, 64, f"({length},)")
    assert refusal(path) == f"array 'a' has {64 << 20} bytes, {4 * length} by its header"


def test_an_archive_whose_list_lies_is_refused(tmp_path):
    """The list of contents says 4 bytes; 64 MiB are packed there."""
    path = tmp_path / "bomb.npz"
    bomb(path, 64, "(1,)")
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (128 + 4).to_bytes(4, "little")
    path.write_bytes(content)
    assert "CRC" in refusal(path)


def test_all_arrays_together_have_a_limit(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, a=np.zeros(100), b=np.zeros(100))
    assert len(read_arrays(path, most=1600)) == 2
    assert refusal(path, most=1599).startswith("array 'b' unpacks to 800 bytes, 799 are allowed")
    np.save(tmp_path / "a.npy", np.zeros(100))
    assert refusal(tmp_path / "a.npy", most=799).startswith("the array unpacks to 800 bytes")


def test_the_limit_grows_with_the_size_on_the_disk():
    assert most_unpacked(1 << 30) - most_unpacked(0) == 64 << 30
    assert most_unpacked(0) == 256 << 20


def test_a_refusal_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        write_whole(tmp_path / "file", b"new")
    assert error.value.filename == str(tmp_path / "file")
    assert files.refusal(error.value).startswith(f"{tmp_path / 'file'}: No space left on device; ")


def test_room_is_tried_and_given_back(tmp_path, monkeypatch):
    files.check_room(tmp_path, 3 * files._CHUNK // 2)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        files.check_room(tmp_path, 1)
    assert error.value.filename == str(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_what_a_disk_refuses_is_a_sentence(number):
    assert os.strerror(number) in files.refusal(OSError(number, os.strerror(number), "page"))


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "gone", "x"), OSError("odd")])
def test_other_errors_of_the_system_are_no_refusal(error):
    assert files.refusal(error) == ""
