"""Jobs: keys, seeds and settings of the command line (golden), and what a job returns (law)."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fpsim import get_threads, set_threads
from ipu.experiments.lab.catalogue import find
from ipu.experiments.sweep import jobs
from ipu.experiments.sweep.jobs import (
    JobOutcome,
    SweepJob,
    Version,
    jobs_of,
    key_of,
    own_version,
    read_result,
    read_seeds,
    read_settings,
    run_job,
)

JOB = SweepJob("dice", 3, True, (("sides", 20),))


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """A worker's beginning changes threads and bars of its process."""
    monkeypatch.setattr(jobs, "be_quiet", lambda: None)
    before = get_threads()
    yield
    set_threads(before)
    jobs.begin.cache_clear()


def test_a_key_depends_on_the_job_and_the_version_alone():
    others = [
        JOB._replace(name="coin"), JOB._replace(seed=4), JOB._replace(quick=False),
        JOB._replace(settings=()), JOB._replace(settings=(("sides", 20.5),)),
    ]
    version = Version("1", "abc")
    keys = [key_of(job, version) for job in (JOB, *others)]
    keys += [key_of(JOB, Version("2", "abc")), key_of(JOB, Version("1", "abd"))]
    assert len(set(keys)) == 8
    assert key_of(SweepJob(*JOB), Version(*version)) == keys[0]
    assert {len(key) for key in keys} == {64}


@pytest.mark.parametrize(("text", "seeds"), [("0:8", list(range(8))), ("5", [5]), ("9,2", [9, 2]),
                                             (f"{2**64 - 1}", [2**64 - 1])])
def test_seeds(text, seeds):
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3:3", "4:2", "-1:2", "1,,2", "1.5", f"{2**64}",
                                  "0:100001", "0:1:2", "0:99999999999999999999999"])
def test_what_is_no_range_of_seeds_is_named(text):
    with pytest.raises(ValueError, match=r"^seeds='.*' are no seeds; use FIRST:STOP as 0:8"):
        read_seeds(text)


def test_a_long_list_of_seeds_is_not_repeated():
    wrong = ",".join(map(str, range(1000)))
    for text in (f"{wrong},x", f"{wrong},7"):
        with pytest.raises(ValueError, match=r"^seeds=.0,1,2,") as caught:
            read_seeds(text)
        assert len(str(caught.value)) < 250
        assert "…'" in str(caught.value)
    assert "the seed 7 more than once" in str(caught.value)


def test_a_doubled_seed_is_refused():
    with pytest.raises(ValueError, match=r"^seeds='1,1' has the seed 1 more than once"):
        read_seeds("1,1")


@pytest.mark.parametrize("text", ["a", "=1", "a=", "a=1,,2", "a=1,1", "a b=1"])
def test_what_is_no_setting_is_named(text):
    with pytest.raises(ValueError, match=r"^set='.*' is no setting; use KEY=A,B"):
        read_settings([text])


def test_a_setting_is_named_once():
    with pytest.raises(ValueError, match=r"^set='a=2' names 'a' again"):
        read_settings(["a=1", "a=2"])


def test_jobs_are_every_combination(moody):
    moody()
    result = jobs_of(find("dice"), [3, 1], {"sides": [6, 8], "fair": [True]}, False)
    assert [str(job) for job in result] == [
        "dice seed=3 sides=6 fair=True", "dice seed=1 sides=6 fair=True",
        "dice seed=3 sides=8 fair=True", "dice seed=1 sides=8 fair=True",
    ]
    assert result[0].command == "fpsim sweep dice --seeds 3 --set sides=6 --set fair=True"
    assert read_settings(["fair=True"]) == {"fair": [True]}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"side": [6]}, r"^set='side' is no setting of dice; its settings are: sides, share, fair$"),
     ({"sides": [6, "six"]}, r"^sides='six' is not of the kind int, as dice wants it$"),
     ({"sides": [True]}, r"^sides=True is not of the kind int"),
     ({"share": [True]}, r"^share=True is not of the kind float"),
     ({"fair": [1]}, r"^fair=1 is not of the kind bool")],
)
def test_settings_are_those_of_the_experiment(settings, sentence, moody):
    moody()
    with pytest.raises(ValueError, match=sentence):
        jobs_of(find("dice"), [0], settings, True)


def test_a_number_without_a_fraction_is_a_float_too(moody):
    moody()
    assert jobs_of(find("dice"), [0], {"share": [1]}, True)


def test_what_a_job_returns_is_its_result(moody):
    moody()
    outcome = run_job(own_version(), JOB)
    result = read_result(outcome.text)
    direct = find("dice").run_with(True, 3, {"sides": 20})
    assert not outcome.error
    assert result.rows == list(direct.rows)
    assert (result.local, result.answer, result.policy, result.units) == (
        direct.local, direct.answer, direct.policy, direct.units,
    )
    assert get_threads() == 1


def test_values_come_back_as_they_are():
    rows = [{"a": np.float64(0.1), "b": np.bool_(True), "c": np.int64(3), "d": math.inf, "e": -0.0,
             "f": None, "g": "1"}]
    (row,) = json.loads(json.dumps(list(jobs._plain(rows))))
    assert row == {"a": 0.1, "b": True, "c": 3, "d": math.inf, "e": 0.0, "f": None, "g": "1"}
    assert math.copysign(1, row["e"]) == -1
    assert type(row["c"]) is int


def test_an_error_of_a_job_becomes_its_sentence(moody):
    moody(wrong=[3])
    assert run_job(own_version(), JOB) == JobOutcome("", "seed=3 is not lucky; use another")


def test_a_worker_of_another_version_refuses():
    outcome = run_job(Version("9", "f" * 64), JOB)
    assert outcome.error == (
        f"a worker runs {own_version()}, this fpsim 9 (sources ffffffffffff); install one version"
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rows": [], "local": [], "units": [{}]}'])
def test_what_is_no_result_is_refused(text):
    with pytest.raises(ValueError, match=r"Expecting value|is no result of a job"):
        read_result(text)
