"""What a result was made with: versions, commit, processor, a digest of the sources."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ipu.experiments.lab import versions

ROOT = Path(__file__).parents[3]


def test_every_package_has_a_version():
    table = versions.versions()
    assert {"Python", "machine", "fpsim", *versions.PACKAGES} == set(table)
    assert re.match(r"\d+\.\d+", table["fpsim"])


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")
def test_the_commit_is_gits():
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True,
                          text=True, check=True).stdout
    assert head.startswith(versions.commit().removesuffix("+"))


def test_the_processor_has_a_name_and_the_sources_a_digest():
    assert versions.processor()
    assert re.fullmatch(r"[0-9a-f]{64}", versions.sources())
