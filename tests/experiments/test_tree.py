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
    try:
        imported = importlib.import_module(name_of(module))
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        pytest.skip("torch is not installed; run: make test-torch")
    result = doctest.testmod(imported, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
