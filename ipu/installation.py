"""What is installed: the line that brings an extra, and whether another project took our place.

The distribution is called fpsim-lab: `fpsim` on the package index is another project, with files in
the same folder. This module imports nothing of `fpsim`, so that it can say so.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.util import find_spec
from pathlib import Path

__all__ = ["DISTRIBUTION", "conflict", "how_to_install", "not_installed"]

#: The name under which pip knows this project.
DISTRIBUTION = "fpsim-lab"

_REQUIREMENT = re.compile(r"([^;]+?)\s*;.*\bextra == ['\"]([\w-]+)['\"]")


def how_to_install(extra: str) -> str:
    """The command that installs the libraries of an extra.

    They are those that the installed distribution states; a tree that was never installed has none,
    and the command is that for its folder.

    >>> how_to_install("no-such-extra")
    'pip install ".[no-such-extra]" in a clone of fpsim'
    """
    libraries = _requirements().get(extra)
    if not libraries:
        return f'pip install ".[{extra}]" in a clone of fpsim'
    return "pip install " + " ".join(f'"{one}"' for one in libraries)


def not_installed(library: str, extra: str) -> str:
    """That a library of an extra is missing, and the command that installs it.

    >>> not_installed("Fortran", "no-such-extra")
    'Fortran is not installed; install it with: pip install ".[no-such-extra]" in a clone of fpsim'
    """
    return f"{library} is not installed; install it with: {how_to_install(extra)}"


def _requirements() -> dict[str, list[str]]:
    """Libraries by extra; extras of ours that an extra names are left out."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return {}
    libraries: dict[str, list[str]] = {}
    for match in filter(None, map(_REQUIREMENT.match, lines)):
        requirement, extra = match.groups()
        if not requirement.startswith(f"{DISTRIBUTION}["):
            libraries.setdefault(extra, []).append(requirement)
    return libraries


def conflict() -> str:
    """One sentence if another project's `fpsim` is imported in the place of ours; else ""."""
    try:
        other = distribution("fpsim")
    except PackageNotFoundError:
        return ""
    spec = find_spec("fpsim")
    imported = Path(spec.origin).resolve() if spec and spec.origin else None
    files = [file for file in other.files or () if file.parts == ("fpsim", "__init__.py")]
    if imported is None or imported not in [Path(str(file.locate())).resolve() for file in files]:
        return ""
    return (
        f"the package fpsim {other.version}, another project, is installed in {imported.parent} in "
        f"the place of {DISTRIBUTION}; remove both with: pip uninstall fpsim {DISTRIBUTION}, then "
        f"install {DISTRIBUTION} alone"
    )
