"""Versions that a result depends on, read from package metadata without importing anything."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "fpsim",
    "numpy",
    "numba",
    "llvmlite",
    "ml_dtypes",
    "scipy",
    "scikit-learn",
    "matplotlib",
)


def versions() -> dict[str, str]:
    """Python, the machine, and each package ("not installed" where it is only on the path).

    >>> sorted(versions())[:2]
    ['Python', 'fpsim']
    """
    found = {"Python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
