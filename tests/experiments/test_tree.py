"""The tree of the experiments: doctests by their one name, mirrored tests (law)."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE, TESTS = ROOT / "experiments", ROOT / "tests" / "experiments"
MODULES = sorted(p.relative_to(CODE) for p in CODE.rglob("*.py"))


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
