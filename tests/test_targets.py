"""Every test runs by some target of make, with all the libraries that it asks for (law).

`make test` takes all files without the libraries of front ends; what is skipped there must lie on
the paths of a target whose extras bring what the file asks for.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")

#: Import names of distributions that are called otherwise.
NAMES = {"grpcio": "grpc", "grpcio_tools": "grpc_tools", "mpi4py": "mpi4py", "tf_keras": "tf_keras"}


@cache
def libraries(extra: str) -> frozenset[str]:
    """What an extra installs, by import name, extras that it names included."""
    names: set[str] = set()
    for requirement in EXTRAS[extra]:
        ours = re.match(r"fpsim-lab\[([\w-]+)\]", requirement)
        if ours:
            names |= libraries(ours[1])
        else:
            name = re.match(r"[\w-]+", requirement)[0].replace("-", "_")
            names.add(NAMES.get(name, name))
    return frozenset(names)


def targets() -> dict[str, tuple[frozenset[str], tuple[str, ...]]]:
    """Target -> libraries of its environment, and the paths that it tests."""
    result = {}
    for name, recipe in re.findall(r"^(test-\w+):\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE):
        extra = re.search(rf"has-{name}: INSTALL := \.\[test,([\w-]+)\]", MAKEFILE)
        if extra:
            paths = re.findall(r"\s((?:tests|ipu|fpsim|experiments)/[\w./]*)", recipe)
            result[name] = (libraries("test") | libraries(extra[1]), tuple(paths))
    return result


TARGETS = targets()
BASE = libraries("test")
OPTIONAL = frozenset().union(*(needed for needed, _ in TARGETS.values())) - BASE


@cache
def needs(path: Path) -> frozenset[str]:
    """Optional libraries that a test file asks for, itself or by helpers of the tests."""
    text = path.read_text(encoding="utf-8")
    asked = re.findall(r"(?:importorskip|find_spec)\(\s*\"([\w.]+)\"", text)
    names = {name.partition(".")[0] for name in asked} & OPTIONAL
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            names |= _of_helpers(node)
    return frozenset(names)


def _of_helpers(node: ast.ImportFrom) -> set[str]:
    folder = ROOT.joinpath(*node.module.split("."))
    files = [folder.with_suffix(".py"), *(folder / f"{a.name}.py" for a in node.names)]
    helpers = [file for file in files if file.is_file() and not file.name.startswith("test_")]
    return {name for file in helpers for name in needs(file)}


FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def test_targets_are_found():
    assert {"test-torch", "test-tensorflow", "test-distributed"} <= set(TARGETS)
    assert {"torch", "tensorflow", "grpc", "mpi4py", "distributed", "qtorch"} <= OPTIONAL
    assert sum(bool(needs(path)) for path in FILES) > 100
    for paths in (paths for _, paths in TARGETS.values()):
        for path in paths:
            assert (ROOT / path).exists(), f"the Makefile tests {path}, which is not there"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_belongs_to_a_target_with_its_libraries(path):
    name = path.relative_to(ROOT).as_posix()
    running = [
        available
        for available, paths in TARGETS.values()
        if any(name == p or name.startswith(f"{p.rstrip('/')}/") for p in paths)
    ]
    assert any(needs(path) <= BASE | available for available in [BASE, *running]), (
        f"no target of make runs {name} with {', '.join(sorted(needs(path)))}"
    )
