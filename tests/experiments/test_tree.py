"""The tree of the experiments: doctests by their one name (law); mirrors are the house's."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ROOT / "experiments"
MODULES = sorted(p.relative_to(CODE) for p in CODE.rglob("*.py"))


def name_of(module: Path) -> str:
    return ".".join(("ipu.experiments", *module.with_suffix("").parts)).removesuffix(".__init__")


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_doctests_of_experiments(module):
    found = doctest.testmod(
        importlib.import_module(name_of(module)), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert found.failed == 0
