"""The array API standard's own tests, where they are installed (**differential**).

`FPSIM_ARRAY_API_TESTS` names a clone of github.com/data-apis/array-api-tests with its submodules
and requirements. What fails by design is what docs/arrays.md lists, and what its rules imply.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fpsim.array_namespace import Namespace

ROOT = Path(__file__).parents[2]

#: Tests of the suite that contradict a rule of Arrays, each with the rule.
BY_RULE = {
    "a power is a whole number or 0.5": ["::test_pow", "__pow__", "__ipow__"],
    "no // and no bits of floating numbers": ["floor_divide", "__floordiv__", "__ifloordiv__"],
    "memory is not handed out": ["dlpack"],
    "one floating type": ["float64", "complex", "test_finfo", "test_result_type", "test_can_cast"],
    "integers and floating numbers are numpy's and ours: one side is no Array": [
        "test_data_type_functions.py", "test_astype",
    ],
}


def missing() -> list[str]:
    """Names of the standard that the page lists as missing, or refused for floating numbers."""
    page = (ROOT / "docs" / "arrays.md").read_text(encoding="utf-8")
    section = page.partition("## The array API standard\n")[2]
    return re.findall(r"`(\w+)`", re.search(r"^Missing:(.*?)^$", section, re.M | re.S)[1])  # type: ignore[index]


def fails_by_design() -> str:
    """The suite's file of expected failures: a substring of the names of tests a line."""
    lines = []
    for rule, tests in BY_RULE.items():
        lines += [f"# {rule}", *tests]
    lines.append("# missing (docs/arrays.md)")
    for name in missing():
        lines += [f"::test_{name}", f"-{name}]", f"[{name}"]
    return "\n".join(lines) + "\n"


def test_the_module_that_the_suite_imports_is_the_namespace() -> None:
    module = importlib.import_module("tests.fpsim.array_api")
    assert module.__array_api_version__ == "2024.12"
    x = module.asarray([0.5, 1.0])
    assert x.__array_namespace__() == module._NAMESPACE
    assert isinstance(module._NAMESPACE, Namespace)
    assert module.sum(x).item() == 1.5
    assert {"sum", "asarray", "float32"} <= set(dir(module))
    assert not any(hasattr(module, name) for name in missing())


def test_expected_failures_name_what_is_missing_and_nothing_that_is_there() -> None:
    text = fails_by_design()
    assert "::test_acos\n" in text
    assert "::test_sum\n" not in text
    assert not {name for name in missing() if hasattr(Namespace, name)}


@pytest.mark.tier("full")
def test_the_standards_own_suite_passes(tmp_path: Path) -> None:
    folder = os.environ.get("FPSIM_ARRAY_API_TESTS")
    if not folder:
        pytest.skip("FPSIM_ARRAY_API_TESTS names no clone of data-apis/array-api-tests")
    expected = tmp_path / "fails.txt"
    expected.write_text(fails_by_design(), encoding="utf-8")
    environment = os.environ | {
        "ARRAY_API_TESTS_MODULE": "tests.fpsim.array_api", "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "pytest", "-q", "array_api_tests", "--xfails-file",
               str(expected), "--max-examples", "20", "-p", "no:cacheprovider"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-6_000:] + run.stderr[-2_000:]
