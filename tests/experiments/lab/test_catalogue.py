"""The experiments as a whole: found by looking, within their budgets, drawable from their files."""

from __future__ import annotations

import pytest

from ipu.experiments.lab.catalogue import catalogue, find
from ipu.installation import how_to_install


def test_budgets_keep_the_default_report_and_the_whole_within_minutes():
    experiments = catalogue().values()
    assert sum(e.budget for e in experiments if e.default) <= 150
    published = [e for e in experiments if e.room.endswith(".published")]
    assert sum(e.budget for e in published) <= 700
    # One experiment trains longer than any other; the default report is without it.
    longest = max(experiments, key=lambda e: e.budget)
    assert (longest.name, longest.default) == ("which_four_bits", False)
    assert longest.budget <= 1_800
    assert sum(e.budget for e in experiments) - longest.budget <= 2_600 + 700


def test_every_experiment_asks_a_question_and_can_run_and_plot():
    for experiment in catalogue().values():
        assert experiment.question.endswith("?"), experiment.name
        assert callable(experiment._function("run")), experiment.name
        shown = [experiment._function(name) for name in ("plot", "tables")]
        assert any(map(callable, shown)), experiment.name


def test_an_experiment_is_one_file_that_nobody_has_to_be_told_of(dice):
    assert find(dice).question == "What does a die show?"


def test_an_unknown_name_is_answered_with_the_close_one():
    with pytest.raises(ValueError, match="Did you mean 'swamping'"):
        find("swamp-ing")


def test_an_experiment_that_needs_a_package_tells_where_it_is_missing(monkeypatch):
    one = find("torch_where_it_hurts")
    assert one.needs == "torch"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert one.missing.endswith(f"install it with: {how_to_install('torch')}")
    assert find("swamping").missing == ""
