"""What a result depends on and was made with: versions, commit, processor."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import fpsim
import ipu

PACKAGES = (
    "numpy",
    "numba",
    "llvmlite",
    "ml_dtypes",
    "scipy",
    "scikit-learn",
    "matplotlib",
)


def versions() -> dict[str, str]:
    """Python, the machine, fpsim, and each package it stands on ("not installed" without one).

    >>> sorted(versions())[:2]
    ['Python', 'fpsim']
    """
    table = {"Python": platform.python_version(), "machine": platform.machine()}
    table["fpsim"] = fpsim.__version__
    for package in PACKAGES:
        try:
            table[package] = version(package)
        except PackageNotFoundError:
            table[package] = "not installed"
    return table


@cache
def commit() -> str:
    """The commit of the checkout that runs, with a plus where files differ from it; "" outside."""
    root = Path(ipu.__file__).parents[1]
    if not (root / ".git").exists():
        return ""
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True,
                              text=True, check=True).stdout.strip()
        changes = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"],
                                 capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changes else "")


@cache
def processor() -> str:
    """The processor's name, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def sources() -> str:
    """A digest of all source files: an interrupted series goes on only with the code it began."""
    roots = [Path(str(module.__file__)).parent for module in (fpsim, ipu)]
    digest = hashlib.sha256()
    for folder in (*roots, Path(__file__).parents[1]):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
