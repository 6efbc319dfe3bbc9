"""The house itself: the account of vector tests, tiers, and what is not collected as garbage."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fpsim
from tests import single_users, tiers
from tests.test_architecture import modules

ROOT = Path(__file__).parents[1]
SUITE = """
import pytest
from tests.vectors import vector_path

@pytest.mark.vectors
def test_reads_vectors():
    assert vector_path("here.txt").exists()

@pytest.mark.vectors
def test_reads_others():
    assert vector_path("missing.txt")

@pytest.mark.tier("deep")
def test_takes_hours():
    assert False

def test_plain():
    pass

@pytest.mark.minutes
def test_takes_minutes():
    pass
"""


def run_suite(folder: Path, *options: str, **environment: str) -> tuple[int, list[str]]:
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "here.txt").write_text("")
    outer = {k: v for k, v in os.environ.items() if not k.startswith(("FPSIM", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider",
         "-c", str(ROOT / "pyproject.toml"), *options, str(folder)],
        cwd=ROOT, env=outer | environment, capture_output=True, text=True, check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_a_run_ends_with_the_account_of_vector_tests(tmp_path):
    status, lines = run_suite(tmp_path)
    assert status == 0
    assert lines[-2:] == [
        "vector tests: 0 ran, 2 skipped",
        "  skipped 2: FPSIM_VECTORS is not set",
    ]
    status, lines = run_suite(tmp_path, FPSIM_VECTORS=str(tmp_path))
    assert status == 0
    assert lines[-2:] == [
        "vector tests: 1 ran, 1 skipped",
        "  skipped 1: FPSIM_VECTORS holds no missing.txt",
    ]


def test_a_skipped_vector_test_fails_where_vectors_are_required(tmp_path):
    status, lines = run_suite(tmp_path, FPSIM_VECTORS=str(tmp_path), FPSIM_REQUIRE_VECTORS="1")
    assert status == 1
    assert "1 failed, 3 passed" in "\n".join(lines)


def test_the_names_of_failures_are_the_last_lines(tmp_path):
    status, lines = run_suite(
        tmp_path, FPSIM_VECTORS=str(tmp_path), FPSIM_REQUIRE_VECTORS="1", FPSIM_TIER="deep"
    )
    assert status == 1
    names = [line.rpartition("::")[2] for line in lines[-2:]]
    assert names == ["test_reads_others", "test_takes_hours"]
    assert all(line.startswith("failed: ") for line in lines[-2:])


def test_a_higher_tier_runs_more(tmp_path):
    assert any("2 skipped, 1 deselected" in line for line in run_suite(tmp_path)[1])
    assert run_suite(tmp_path, FPSIM_TIER="deep")[0] == 1


def test_what_takes_minutes_starts_first(tmp_path):
    lines = run_suite(tmp_path, "--collect-only")[1]
    names = [line.rpartition("::")[2] for line in lines if "::" in line]
    assert names == ["test_takes_minutes", "test_reads_vectors", "test_reads_others", "test_plain"]


@pytest.mark.parametrize("tier", tiers.TIERS)
def test_a_tier_picks_its_own_and_reaches_what_lies_below(tier, monkeypatch):
    monkeypatch.setattr(tiers, "TIER", tier)
    assert tiers.pick(*tiers.TIERS) == tier
    reached = [other for other in tiers.TIERS if tiers.reaches(other)]
    assert reached[-1] == tier
    assert "quick" in reached


def test_an_unknown_tier_is_refused(tmp_path):
    assert run_suite(tmp_path, FPSIM_TIER="fast")[0] != 0


def test_the_changelog_knows_this_version():
    assert f"## {fpsim.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_collector_of_garbage_passes_over_what_was_collected_to_be_run():
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000  # 0 without the hook in conftest.py


def test_a_module_has_two_users_a_name_in_the_docs_or_a_reason():
    rows = single_users.single_users()
    assert all(user in modules() for user in rows.values())
    assert not [module for module in rows if not single_users.reason(module)]
    for start in single_users.REASONS:
        assert any(m == start or m.startswith(f"{start}.") for m in modules()), start
