"""fpsim report: which experiments it takes (golden)."""

from __future__ import annotations

import pytest

from ipu.experiments.cli import main
from ipu.experiments.commands import series
from ipu.experiments.lab.catalogue import catalogue


@pytest.fixture
def asked(monkeypatch):
    """The arguments of run_series."""
    calls = []

    def run_series(chosen, out, **rest):
        calls.append(([e.name for e in chosen], str(out), rest))
        return 0

    monkeypatch.setattr(series, "run_series", run_series)
    return calls


def test_the_default_report_and_all_of_it(asked):
    assert main(["report", "--quick", "--seed", "5", "--out", "o", "--jobs", "3"]) == 0
    assert main(["report", "--all"]) == 0
    (default, out, rest), (every, _, plain) = asked
    assert default == [e.name for e in catalogue().values() if e.default]
    assert every == list(catalogue())
    assert (out, rest) == ("o", {"quick": True, "seed": 5, "jobs": 3})
    assert plain == {"quick": False, "seed": 0, "jobs": 1}
