"""Profiles: schedule, memory and timeline as JSON (golden)."""

from __future__ import annotations

import json

import pytest

from tests.ipu.frontends.poptorch.framework import STRATEGIES, options, train

from ipu.frontends.poptorch import dictionary  # isort: skip
from ipu.frontends.poptorch.profile import folder_of_reports  # isort: skip


@pytest.mark.source("S2-26", "S2-41")
def test_a_profile_has_the_programs_of_the_plan(tmp_path):
    run_options = options(STRATEGIES["pipelined"]()).enableProfiling(str(tmp_path / "profile"))
    model, _ = train(run_options, steps=2)
    files = {p.name: json.loads(p.read_text()) for p in (tmp_path / "profile").iterdir()}
    assert set(files) == {"schedule.json", "account.json", "trace.json"}
    programs = files["schedule.json"]["programs"]
    assert len(programs) == len(model.plan.programs)
    last = [p for p in programs if p["ipu"] == 3]
    assert [p["phase"] for p in last[:4]] == ["forward", "backward"] * 2  # F, then at once B
    figures = files["account.json"]["figures"]
    assert [row["input_bytes"] for row in figures] == [
        60,
        48,
        96,
        96,
    ]  # images and labels; x; x and skip
    assert files["trace.json"]["traceEvents"]


def test_the_environment_asks_for_reports_too(monkeypatch, tmp_path):
    assert folder_of_reports() is None
    asked = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))
    assert folder_of_reports() == tmp_path
    train(options(STRATEGIES["unsplit"](), 1), steps=1)
    assert (tmp_path / "schedule.json").exists()
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "{}")
    assert folder_of_reports() is None
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "all")
    with pytest.raises(ValueError, match="POPLAR_ENGINE_OPTIONS='all' is no JSON object"):
        folder_of_reports()


@pytest.mark.source("S3-24")
def test_options_of_poplars_host_threads_are_told_once(monkeypatch):
    monkeypatch.setattr(dictionary, "_told", set())
    asked = {"streamCallbacks.multiThreadMode": "collaborative", "autoReport.all": "false"}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))
    with pytest.warns(UserWarning, match=r"multiThreadMode is accepted and has no"):
        assert folder_of_reports() is None
    assert folder_of_reports() is None  # a warning would be an error here
