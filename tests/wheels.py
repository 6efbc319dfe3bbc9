"""Wheels of projects: built as an installer's frontend builds them, and laid into folders."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["build", "unpacked"]

_BUILD = """
import sys
from hatchling.builders.wheel import WheelBuilder
print(*WheelBuilder(sys.argv[1]).build(directory=sys.argv[2], versions=["standard"]))
"""


def build(project: Path, folder: Path) -> Path:
    """The wheel of a project, written into a folder."""
    process = subprocess.run(
        [sys.executable, "-c", _BUILD, str(project), str(folder)],
        check=True, capture_output=True, text=True, cwd=project,
    )
    return Path(process.stdout.split()[-1])


def unpacked(wheels: Sequence[Path], site: Path) -> Path:
    """Wheels laid into one folder, the last over the others, as installers do."""
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(site)
    return site
