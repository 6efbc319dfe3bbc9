"""Jobs that an interrupted experiment had finished are not run again (law)."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ipu.experiments.lab import unfinished
from ipu.experiments.lab.unfinished import resumable, resumed


class Sum(NamedTuple):
    first: int
    second: float


RAN: list[Sum] = []


def added(job: Sum) -> list[float]:
    """The sum and a third of it, unless the job is to fail."""
    if job.second < 0:
        raise RuntimeError("stopped")
    RAN.append(job)
    return [job.first + job.second, (job.first + job.second) / 3]


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    RAN.clear()
    monkeypatch.setattr(unfinished, "in_processes", lambda function, jobs, label: map(
        function, jobs))


def run(folder, jobs):
    with resumable(folder):
        return list(resumed(added, jobs, "sums"))


JOBS = [Sum(1, 0.1), Sum(2, 0.2), Sum(3, 0.3)]


def test_what_had_finished_is_read_with_the_same_bits(tmp_path):
    expected = list(resumed(added, JOBS, "sums"))
    RAN.clear()
    with pytest.raises(RuntimeError, match="stopped"):
        run(tmp_path, [*JOBS[:2], Sum(3, -1.0)])
    assert JOBS[:2] == RAN
    RAN.clear()
    assert run(tmp_path, JOBS) == expected
    assert JOBS[2:] == RAN


def test_after_a_whole_run_nothing_is_kept(tmp_path):
    run(tmp_path, JOBS)
    assert list(tmp_path.iterdir()) == []
    run(tmp_path, JOBS)
    assert RAN == 2 * JOBS


@pytest.mark.parametrize("change", ["sources", "versions"])
def test_other_code_computes_again(tmp_path, monkeypatch, change):
    with pytest.raises(RuntimeError):
        run(tmp_path, [JOBS[0], Sum(3, -1.0)])
    monkeypatch.setattr(unfinished, change, lambda: "others")
    run(tmp_path, JOBS)
    assert [JOBS[0], *JOBS] == RAN


def test_a_damaged_file_counts_as_not_there(tmp_path):
    with pytest.raises(RuntimeError):
        run(tmp_path, [JOBS[0], Sum(3, -1.0)])
    (path,) = (tmp_path / ".unfinished").iterdir()
    path.write_text("[0.5, ")
    assert run(tmp_path, JOBS)[0] == [1.1, 1.1 / 3]


def test_a_place_that_takes_nothing_costs_the_resumption_alone(tmp_path):
    (tmp_path / ".unfinished").write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match="cannot be kept .* would compute it again"):
        assert run(tmp_path, JOBS[:1]) == [[1.1, 1.1 / 3]]
