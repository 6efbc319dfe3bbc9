"""Stored results are whole or said to be damaged, with the file and the reason (law)."""

from __future__ import annotations

import json

import pytest

from ipu.experiments.lab import store
from ipu.experiments.lab.result import Result, UnitUsed

RESULT = Result([{"n": 1}], "One.", "p", {"a": 1}, (UnitUsed("u", "ASSUMED", "s"),), [{"t": 0.5}])


@pytest.fixture
def folder(tmp_path):
    store.save_data(tmp_path / "r", RESULT, {"seed": 3})
    return tmp_path / "r"


def test_what_is_stored_is_read_back(folder):
    result, meta = store.load(folder)
    assert result == RESULT
    assert meta["seed"] == 3
    assert store.load(folder.parent / "none") is None


def changed(**parts):
    def damage(folder):
        meta = json.loads((folder / store.META).read_text())
        meta |= parts
        (folder / store.META).write_text(json.dumps(meta))

    return damage  # fmt: skip


def without(name):
    def damage(folder):
        meta = json.loads((folder / store.META).read_text())
        del meta[name]
        (folder / store.META).write_text(json.dumps(meta))

    return damage  # fmt: skip


DAMAGES = {
    "cut meta": lambda f: (f / store.META).write_text("{"),
    "bytes": lambda f: (f / store.META).write_bytes(b"\xff\xfe"),
    "a list": lambda f: (f / store.META).write_text("[]"),
    "no data": lambda f: (f / store.DATA).unlink(),
    "other data": lambda f: (f / store.DATA).write_text("n\n2\n"),
    "no answer": without("answer"),
    "units": changed(units=[{"name": "u"}]),
    "no units": changed(units=None),
    "a folder": lambda f: ((f / store.META).unlink(), (f / store.META).mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_sentence_that_names_the_file(damage, folder):
    DAMAGES[damage](folder)
    with pytest.raises(store.DamagedError, match=r"meta\.json|data\.csv") as caught:
        store.load(folder)
    assert "\n" not in str(caught.value)


def test_an_unwritable_folder_is_known_before_any_work():
    with pytest.raises(ValueError, match="out='/dev/null/x' cannot be written to"):
        store.check_writable(store.Path("/dev/null/x"))
