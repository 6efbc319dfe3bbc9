"""What the wheel installs, and that its lines work beside a user's own `experiments` (golden)."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tiers import pick
from tests.wheels import unpacked

ROOT = Path(__file__).parents[1]
#: A package of a user's project; our code must neither import it nor hide it.
THEIRS = 'OWNER = "the user"\n'
#: Somebody else's package of that name among the installed ones.
FOREIGN = 'raise ImportError("a foreign package named experiments was imported")\n'

SCRIPT = """
import experiments
from ipu.experiments.lab.study import Variant, study
import ipu.experiments.sums.swamping as swamping
assert experiments.OWNER == "the user", experiments.__file__
assert swamping.__name__ == "ipu.experiments.sums.swamping"
print(swamping.QUESTION)
"""


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked beside a foreign package named experiments."""
    site = unpacked([wheel], tmp_path_factory.mktemp("site"))
    for name in ("__init__", "cli"):
        (site / "experiments").mkdir(exist_ok=True)
        (site / "experiments" / f"{name}.py").write_text(FOREIGN)
    return site


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder with a package `experiments` of their own and a script beside it."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").write_text(THEIRS)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def run(folder: Path, path: Path | str, *arguments: str) -> str:
    """Standard output of Python with those arguments, started in a folder, with that PYTHONPATH."""
    outer = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=outer | {"PYTHONPATH": str(path)},
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_installs_two_names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fpsim", "ipu"}
    sources = [p for p in (ROOT / "experiments").rglob("*.*") if "__pycache__" not in p.parts]
    expected = {f"ipu/experiments/{p.relative_to(ROOT / 'experiments')}" for p in sources}
    assert {n for n in names if n.startswith("ipu/experiments/")} == {
        *expected, "ipu/experiments/__init__.py",
    }


@pytest.mark.parametrize("origin", pick(["wheel"], *[["wheel", "checkout"]] * 2))
def test_documented_lines_work_beside_a_users_own_experiments(origin, installed, project):
    path = installed if origin == "wheel" else ROOT
    command = ("-m", "ipu.experiments.cli")
    assert "small number" in run(project, path, "script.py")
    assert "parameter_update_methods" in run(project, path, *command, "list")
    assert "0x2e66" in run(project, path, *command, "show", "0.1")
    run(project, path, *command, "run", "swamping", "--quick", "--out", "out")
    assert (project / "out" / "index.html").exists()
    for program in ("stochastic_rounding", "float32_parameter_updates"):
        assert "--limit" in run(project, path, "-m", f"ipu.experiments.{program}", "--help")


def test_a_checkout_works_from_its_own_folder():
    assert "swamping" in run(ROOT, ".", "-m", "ipu.experiments.cli", "list")
    for program in ("stochastic_rounding", "float32_parameter_updates"):
        assert "--limit" in run(ROOT, ".", f"experiments/{program}.py", "--help")


def test_a_checkout_has_no_package_named_experiments():
    assert not (ROOT / "experiments" / "__init__.py").exists()
