"""Checkpoint files: law (bits come back), damaged files."""

from __future__ import annotations

import errno
import itertools
import json
import os
import struct
import tracemalloc
import zipfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from fpsim.elementwise.codes import from_codes
from fpsim.records.formats import BINARY16, BINARY32, F143, Format
from ipu.learn.checkpoint import NAME, Keeper, Kept, file, load, save
from ipu.learn.checkpoint.record import to_record
from tests.ipu.learn import resuming
from tests.ipu.learn.checkpoint.states import EMPTY, bits


@pytest.mark.parametrize("fmt", [BINARY16, BINARY32, F143], ids=lambda f: f.name)
def test_every_value_comes_back_with_its_bits(tmp_path, fmt: Format):
    codes = np.arange(min(fmt.n_codes, 1 << 16), dtype=np.uint64) * (fmt.n_codes >> 8 >> 8 or 1)
    entry = Kept(fmt.name, from_codes(codes, fmt))
    state = replace(
        EMPTY, parameters={"a/b": entry}, slots={"a/b": (entry, 3, 0.1)}, operation=2**63,
        progress={"total": float("nan"), "zero": -0.0}, position=7,
        counts=[["t", "add", {"zeros": 1}]], streams=np.array([[[1, 2**64 - 1]]], np.uint64),
    )
    save(tmp_path / "c", state)
    assert json.dumps(bits(load(tmp_path / "c"))) == json.dumps(bits(state))


def test_equal_states_give_equal_bytes(tmp_path):
    trainer, batches = resuming.build()
    resuming.train(trainer, batches, 1)
    for name in ("a", "b"):
        save(tmp_path / name, trainer.state(batches))
    save(tmp_path / "c", load(tmp_path / "a"))
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1


def flipped(content, place, bit):
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def test_damaged_files_are_refused_with_one_sentence(tmp_path):
    path = tmp_path / NAME
    values = Kept("binary32", np.arange(100, dtype=np.float32))
    save(path, replace(EMPTY, parameters={"w": values}))
    good = path.read_bytes()
    place = good.index(np.arange(50, 60, dtype=np.float32).tobytes())
    entry = good.index(b"PK\x01\x02")  # of the container's list; then what it needs to be unpacked
    flips = [flipped(good, *at) for at in ((place, 0), (entry + 6, 6), (entry + 8, 0))]
    for content in (good[:-1], good[: len(good) // 2], b"", b"PK", *flips):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"is cut short, damaged or no checkpoint") as error:
            load(path)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="cannot be read"):
        load(tmp_path / "none")


@pytest.mark.tier("full")
def test_every_wrong_bit_of_a_file_is_refused_or_means_nothing(tmp_path):
    path = tmp_path / NAME
    save(path, replace(EMPTY, parameters={"w": Kept("binary16", np.ones(2, np.float32))}))
    good = path.read_bytes()
    for place, bit in itertools.product(range(len(good)), range(8)):
        path.write_bytes(flipped(good, place, bit))
        # Times and attributes in the container mean nothing.
        with suppress(ValueError):
            assert load(path).parameters["w"].values.tolist() == [1, 1]


def test_a_header_without_a_checksum_is_damaged(tmp_path):
    header = json.dumps({"kind": file.KIND, "version": file.VERSION, "state": {}})
    with (tmp_path / "c").open("wb") as stream:
        np.savez(stream, header=np.frombuffer(header.encode(), np.uint8))
    with pytest.raises(ValueError, match="its checksum differs"):
        load(tmp_path / "c")


def test_the_checksum_sees_what_the_container_does_not(tmp_path, monkeypatch):
    save(tmp_path / "good", EMPTY)
    monkeypatch.setattr(file, "_digest", lambda *_: "0" * 64)
    save(tmp_path / "bad", EMPTY)
    monkeypatch.undo()
    assert load(tmp_path / "good") == EMPTY
    with pytest.raises(ValueError, match="its checksum differs"):
        load(tmp_path / "bad")


def test_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "VERSION", 5)
    save(tmp_path / "c", EMPTY)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="has version 5, this fpsim reads 4"):
        load(tmp_path / "c")


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    save(tmp_path / NAME, replace(EMPTY, position=1))

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"could not be written .No space left on device.; what"):
        save(tmp_path / NAME, replace(EMPTY, position=2))
    assert load(tmp_path / NAME).position == 1
    assert os.listdir(tmp_path) == [NAME]


def written(path, content, arrays=None):
    """A file with a right checksum, whatever its state is."""
    arrays = arrays or {}
    header = {"kind": file.KIND, "version": file.VERSION, **content}
    header["sha256"] = file._digest(header, arrays)
    with path.open("wb") as stream:
        np.savez(stream, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


def record(**changes):
    return json.loads(json.dumps(to_record(EMPTY)[0])) | changes


WRONG = [
    {}, {"state": None}, {"state": []}, {"state": {}}, {"state": {"x": 1}},
    *({"state": record(**{name: 1.5})} for name in to_record(EMPTY)[0]),
    *({"state": record(**{name: "x"})} for name in to_record(EMPTY)[0]),
    {"state": record(parameters={"w": {"key": "none", "format": "binary16"}})},
    {"state": record(parameters={"w": {"key": "a", "format": "binary99"}})},
    {"state": record(parameters={"w": {"key": "a", "format": 7}})},
    {"state": record(parameters={"w": {"key": "a", "format": "f143"}})},
    {"state": record(parameters={"w": {"key": "b", "format": "binary16"}})},
    {"state": record(parameters={"w": {"key": "a"}})}, {"state": record(parameters={"w": []})},
    {"state": record(parameters={"w": {"key": ["a"], "format": "binary16"}})},
    {"state": record(slots={"w": 3})}, {"state": record(slots={"w": [[]]})},
    {"state": record(counts=[["t", "add"]])}, {"state": record(counts=[["t", "add", {"x": "y"}]])},
    {"state": record(operation=-1)}, {"state": record(position=True)},
    {"state": record(flags={"binary16": "x"})}, {"state": record(streams="a")},
    {"state": record(streams="streams")}, {"state": record(streams=["streams"])},
]


@pytest.mark.parametrize("content", WRONG, ids=lambda c: json.dumps(c)[-60:])
def test_wrong_content_under_a_right_checksum_is_refused_with_one_sentence(tmp_path, content):
    arrays = {"a": np.array([0x3C00], np.uint16), "b": np.array([0.5])}
    arrays["streams"] = np.zeros((1, 1, 2), np.uint64)  # which no generator has
    written(tmp_path / NAME, content, arrays)
    with pytest.raises(
        ValueError, match=r"holds no state of a training \(.+\); use another"
    ) as error:
        load(tmp_path / NAME)
    assert "\n" not in str(error.value)


def npy_header(shape, dtype="<u2"):
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


BOMBS = {
    "compressed": (zipfile.ZIP_DEFLATED, npy_header((1 << 20,)) + bytes(1 << 21)),
    "8 bytes, 2199023255552 by its header": (zipfile.ZIP_STORED, npy_header((1 << 40,)) + bytes(8)),
    "Python objects": (zipfile.ZIP_STORED, npy_header((1,), "|O") + bytes(8)),
    "magic string": (zipfile.ZIP_STORED, b""),
}


@pytest.mark.parametrize("reason", BOMBS)
def test_arrays_larger_than_their_file_and_objects_are_refused(tmp_path, reason):
    method, content = BOMBS[reason]
    with zipfile.ZipFile(tmp_path / NAME, "w", method) as container:
        container.writestr("header.npy", content)
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"damaged or no checkpoint .*{reason}") as error:
        load(tmp_path / NAME)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    assert "pickle" not in str(error.value)


def test_what_is_no_checkpoint_is_refused_with_one_sentence(tmp_path):
    np.savez(tmp_path / "empty.npz")
    np.savez(tmp_path / "others.npz", w=np.ones(3))
    np.save(tmp_path / "one.npy", np.ones(3))
    written(tmp_path / "deep.npz", {})
    text = np.frombuffer(b"[" * 100_000, np.uint8)
    np.savez(tmp_path / "deep.npz", header=text)
    np.savez(tmp_path / "list.npz", header=np.frombuffer(b"[1]", np.uint8))
    for name in ("empty.npz", "others.npz", "one.npy", "deep.npz", "list.npz"):
        with pytest.raises(ValueError, match="is cut short, damaged or no checkpoint"):
            load(tmp_path / name)
    (tmp_path / NAME).mkdir()
    with pytest.raises(ValueError, match=r"cannot be read \(Is a directory\)"):
        load(tmp_path / NAME)
    with pytest.raises(OSError, match="could not be written"):
        save(tmp_path / NAME, EMPTY)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_drafts_of_saves_that_were_killed_are_removed_by_the_next(tmp_path):
    (tmp_path / f".{NAME}.abcdefgh.draft").write_bytes(b"half")
    others = [".other", f".{NAME}.notes"]
    for other in others:
        (tmp_path / other).write_bytes(b"a user's")
    save(tmp_path / NAME, EMPTY)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*others, NAME])


def test_a_second_writer_leaves_the_draft_of_the_first(tmp_path, monkeypatch):
    """The second saves between the first one's content and its name; the last name wins."""
    fsync, second = os.fsync, []

    def interleaved(handle):
        fsync(handle)
        if not second:
            second.append(True)
            save(tmp_path / NAME, replace(EMPTY, position=2))
            assert load(tmp_path / NAME).position == 2

    monkeypatch.setattr(os, "fsync", interleaved)
    save(tmp_path / NAME, replace(EMPTY, position=1))
    assert load(tmp_path / NAME).position == 1
    assert os.listdir(tmp_path) == [NAME]


def test_a_folder_that_cannot_be_written_to_is_noticed_at_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=r"checkpoint='.*' is not a folder that can be writ"):
            Keeper(folder)
    Keeper(tmp_path / "new" / "one").close()
    assert list((tmp_path / "new" / "one").iterdir()) == []

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkstemp", read_only)
    with pytest.raises(ValueError, match="Read-only file system"):
        Keeper(tmp_path / "new" / "one")
