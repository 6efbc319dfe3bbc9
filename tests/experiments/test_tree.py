"""The tree of the experiments: doctests, mirrored tests, rooms that point one way (law)."""

from __future__ import annotations

import ast
import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE, TESTS = ROOT / "experiments", ROOT / "tests" / "experiments"
MODULES = sorted(p.relative_to(CODE) for p in CODE.rglob("*.py"))
#: A room imports itself and what stands before it.
ROOMS = ("lab", "sums", "training", "bench", "commands", "cli", "programs")


def name_of(module: Path) -> str:
    return ".".join(("ipu.experiments", *module.with_suffix("").parts)).removesuffix(".__init__")


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_doctests_of_experiments(module):
    found = doctest.testmod(
        importlib.import_module(name_of(module)), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert found.failed == 0


def test_every_module_has_its_test_file_and_every_test_file_its_module():
    modules = {m.with_name(f"test_{m.name}") for m in MODULES if m.name != "__init__.py"}
    tests = {p.relative_to(TESTS) for p in TESTS.rglob("test_*.py")}
    assert tests - {Path("test_tree.py")} == modules


@pytest.mark.parametrize("module", [m for m in MODULES if m.parts[0] in ROOMS], ids=str)
def test_rooms_import_what_stands_before_them(module):
    here = ROOMS.index(module.parts[0])
    for node in ast.walk(ast.parse((CODE / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ipu.experiments."):
            room = str(node.module).split(".")[2]
            assert ROOMS.index(room) <= here, f"{module} imports {node.module}"


def test_every_room_has_its_place_in_the_order():
    assert {m.parts[0] for m in MODULES if len(m.parts) > 1} <= set(ROOMS)


def test_folders_and_files_stay_small():
    for folder in {CODE / m.parent for m in MODULES}:
        assert len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) <= 16, folder
    for module in MODULES:
        assert len((CODE / module).read_text(encoding="utf-8").splitlines()) <= 420, module
