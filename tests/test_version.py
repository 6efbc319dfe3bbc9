"""The version is one, wherever it stands, and its digests are published (golden)."""

from __future__ import annotations

import re
from pathlib import Path

import fpsim
from ipu.experiments.lab.checkup import CHECKS

ROOT = Path(__file__).parents[1]


def first(pattern: str, page: str) -> str:
    """The first match of a pattern in a file, which must have one."""
    match = re.search(pattern, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert match, f"{page} names no version"
    return match[1]


def test_every_place_names_the_version_of_the_package():
    assert first(r"^version: (.*)$", "CITATION.cff") == fpsim.__version__
    assert first(r"^## (\S+)", "CHANGELOG.md") == fpsim.__version__
    assert first(r"^### (\S+)", "docs/versions.md") == fpsim.__version__
    assert first(r"`git checkout v([^`]*)`", "docs/versions.md") == fpsim.__version__


def test_a_wheel_is_called_by_the_version(wheel):
    assert wheel.name.split("-")[1] == fpsim.__version__


def test_the_newest_digests_that_are_published_are_those_that_are_compared():
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    newest = re.split(r"^### ", page, flags=re.MULTILINE)[1]
    published = dict(re.findall(r"^(\S.*?) +([0-9a-f]{16})$", newest, re.MULTILINE))
    assert published == {name: check.digest for name, check in CHECKS.items()}
