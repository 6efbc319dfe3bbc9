"""Stored results are whole or said to be damaged, with the file and the reason (law)."""

from __future__ import annotations

import json

import pytest

from ipu.experiments.lab import store
from ipu.experiments.lab.result import Result, UnitUsed

FILES = {"trace.json": '{"events": []}\n', "notes.txt": "naïve\n"}
RESULT = Result(
    [{"n": 1}], "One.", "p", {"a": 1}, (UnitUsed("u", "ASSUMED", "s"),), [{"t": 0.5}], FILES
)


@pytest.fixture
def folder(tmp_path):
    store.save_data(tmp_path / "r", RESULT, {"seed": 3})
    return tmp_path / "r"


def test_what_is_stored_is_read_back(folder):
    result, meta = store.load(folder)
    assert result == RESULT
    assert meta["seed"] == 3
    assert store.load(folder.parent / "none") is None
    assert (folder / "notes.txt").read_text(encoding="utf-8") == FILES["notes.txt"]


def test_a_result_of_an_older_fpsim_has_no_files(folder):
    without("files_sha256")(folder)
    result, _ = store.load(folder)
    assert result.files == {}


def test_what_an_older_result_added_goes_away(folder):
    for name in ("picture-1.svg", "picture-10.svg", "figure.png", "mine.svg"):
        (folder / name).write_text("<svg/>")
    store.save_data(folder, Result([{"n": 2}], "Two.", "p", files={"other.csv": "n\n"}), {})
    assert sorted(path.name for path in folder.iterdir()) == [
        "data.csv", "meta.json", "mine.svg", "other.csv",
    ]


def test_pictures_come_in_order(folder):
    for number in (10, 2, 1):
        (folder / store.PICTURE.format(number)).write_text("<svg/>")
    names = [path.name for path in store.pictures(folder)]
    assert names == ["picture-1.svg", "picture-2.svg", "picture-10.svg"]


@pytest.mark.parametrize(
    "name", ["data.csv", "meta.json", "../x.json", "a/b.json", "x.exe", ".json", "X.json", ""]
)
def test_a_file_with_an_unsafe_or_taken_name_is_refused_before_anything_is_written(name, tmp_path):
    with pytest.raises(ValueError, match="files has the name"):
        store.save_data(tmp_path / "r", Result([{"n": 1}], "One.", "p", files={name: ""}), {})
    assert not (tmp_path / "r").exists()


def changed(**parts):
    def damage(folder):
        meta = json.loads((folder / store.META).read_text())
        meta |= parts
        (folder / store.META).write_text(json.dumps(meta))

    return damage


def without(name):
    def damage(folder):
        meta = json.loads((folder / store.META).read_text())
        del meta[name]
        (folder / store.META).write_text(json.dumps(meta))

    return damage


DAMAGES = {
    "cut meta": lambda f: (f / store.META).write_text("{"),
    "bytes": lambda f: (f / store.META).write_bytes(b"\xff\xfe"),
    "a list": lambda f: (f / store.META).write_text("[]"),
    "no data": lambda f: (f / store.DATA).unlink(),
    "other data": lambda f: (f / store.DATA).write_text("n\n2\n"),
    "no answer": without("answer"),
    "units": changed(units=[{"name": "u"}]),
    "no units": changed(units=None),
    "no trace": lambda f: (f / "trace.json").unlink(),
    "other trace": lambda f: (f / "trace.json").write_text("{}"),
    "a file elsewhere": changed(files_sha256={"../x.json": ""}),
    "a folder": lambda f: ((f / store.META).unlink(), (f / store.META).mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_sentence_that_names_the_file(damage, folder):
    DAMAGES[damage](folder)
    with pytest.raises(store.DamagedError, match=r"meta\.json|data\.csv|trace\.json") as caught:
        store.load(folder)
    assert "\n" not in str(caught.value)


def test_an_unwritable_folder_is_known_before_any_work():
    with pytest.raises(ValueError, match="out='/dev/null/x' cannot be written to"):
        store.check_writable(store.Path("/dev/null/x"))
