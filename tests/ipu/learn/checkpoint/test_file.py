"""Checkpoint files: law (bits come back), damaged files."""

from __future__ import annotations

import errno
import itertools
import json
import os
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from fpsim.elementwise.codes import from_codes
from fpsim.records.formats import BINARY16, BINARY32, F143, Format
from ipu.learn.checkpoint import NAME, Kept, file, load, save
from tests.ipu.learn import resuming
from tests.ipu.learn.checkpoint.states import EMPTY, bits


@pytest.mark.parametrize("fmt", [BINARY16, BINARY32, F143], ids=lambda f: f.name)
def test_every_value_comes_back_with_its_bits(tmp_path, fmt: Format):
    codes = np.arange(min(fmt.n_codes, 1 << 16), dtype=np.uint64) * (fmt.n_codes >> 8 >> 8 or 1)
    kept = Kept(fmt.name, from_codes(codes, fmt))
    state = replace(
        EMPTY, parameters={"a/b": kept}, slots={"a/b": (kept, 3, 0.1)}, operation=2**63,
        progress={"total": float("nan"), "zero": -0.0}, position=7,
        counts=[["t", "add", {"zeros": 1}]],
    )  # fmt: skip
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
    monkeypatch.setattr(file, "VERSION", 2)
    save(tmp_path / "c", EMPTY)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="has version 2, this fpsim reads 1"):
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
