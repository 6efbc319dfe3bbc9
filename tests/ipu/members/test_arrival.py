"""Stages on the way to a training, told as files (golden)."""

from __future__ import annotations

import pytest

from ipu.members.arrival import FOLDER, ArrivalStage, arrivals, joining, tell


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv("POPDIST_INSTANCE_INDEX", "2")
    return tmp_path


def test_stages_are_read_as_they_were_told(folder):
    tell(ArrivalStage.STARTED, "0")
    tell(ArrivalStage.STARTS_MPI)
    tell(ArrivalStage.HAS_MPI)
    for name in ("poprun.log", "1.9", "1.", "x.1", "1.10"):
        (folder / name).touch()
    assert arrivals(folder) == {
        0: {ArrivalStage.STARTED}, 2: {ArrivalStage.STARTS_MPI, ArrivalStage.HAS_MPI}
    }


def test_who_joins_waits_and_takes_part(folder):
    with joining():
        assert arrivals(folder) == {2: {ArrivalStage.JOINS}}
    assert arrivals(folder) == {2: {ArrivalStage.JOINS, ArrivalStage.HAS_JOINED}}


def test_who_does_not_join_waits_no_longer(folder):
    with pytest.raises(KeyboardInterrupt), joining():
        raise KeyboardInterrupt
    assert arrivals(folder) == {2: {ArrivalStage.JOINS, ArrivalStage.GAVE_UP}}


def test_without_a_folder_nothing_is_told(folder, monkeypatch):
    monkeypatch.setenv(FOLDER, str(folder / "of another computer"))
    tell(ArrivalStage.JOINS)
    monkeypatch.delenv(FOLDER)
    tell(ArrivalStage.JOINS)
    assert arrivals(folder) == arrivals(folder / "of another computer") == {}
