"""Kept results: the same text comes back, and anything damaged counts as not there (law)."""

from __future__ import annotations

import json

import pytest

from ipu.experiments.sweep.jobs import SweepJob, Version, key_of
from ipu.experiments.sweep.kept import JobNotKeptError, keep, kept

JOB, VERSION = SweepJob("dice", 3, True, (("sides", 20),)), Version("1", "abc")
TEXT = json.dumps({"rows": [{"a": 0.1}], "local": [], "answer": "ü", "policy": "", "units": []})


def test_a_result_comes_back_for_its_job_and_version(tmp_path):
    path = keep(tmp_path / "jobs", JOB, VERSION, TEXT)
    assert path.name == f"{key_of(JOB, VERSION)}.json"
    assert kept(tmp_path / "jobs", JOB, VERSION) == TEXT
    assert kept(tmp_path / "jobs", JOB._replace(seed=4), VERSION) is None
    assert kept(tmp_path / "jobs", JOB, Version("2", "abc")) is None


@pytest.mark.parametrize("of_job", [True, False])
def test_a_result_that_cannot_be_written_is_one_sentence(of_job, tmp_path):
    """A folder where the file belongs, and a file where the folder does."""
    name = f"{key_of(JOB, VERSION)}.json"
    if of_job:
        (tmp_path / "jobs" / name).mkdir(parents=True)
    else:
        (tmp_path / "jobs").write_text("a file")
    message = (
        rf"^the result of dice seed=3 sides=20 cannot be written to .*{name} \(.*\); make room"
    )
    with pytest.raises(JobNotKeptError, match=message):
        keep(tmp_path / "jobs", JOB, VERSION, TEXT)
    assert kept(tmp_path / "jobs", JOB, VERSION) is None


@pytest.mark.parametrize(
    "damage",
    [lambda text: "", lambda text: text[:-20], lambda text: "[]", lambda text: "{}",
     lambda text: text.replace("0.1", "0.2"), lambda text: text.replace('"abc"', '"abd"'),
     lambda text: text.replace('"seed": 3', '"seed": 4')],
)
def test_a_damaged_file_counts_as_not_there(damage, tmp_path):
    path = keep(tmp_path, JOB, VERSION, TEXT)
    text = path.read_text()
    damaged = damage(text)
    assert damaged != text
    path.write_text(damaged)
    assert kept(tmp_path, JOB, VERSION) is None
