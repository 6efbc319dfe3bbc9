"""Install lines, and another project's package in the place of ours (golden, corners).

The full tier builds the wheel and installs one line into a clean environment, the deep tier every
documented one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ipu import installation
from ipu.installation import DISTRIBUTION, conflict, how_to_install
from tests.tiers import pick
from tests.wheels import build, unpacked

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Install lines of the pages and of every string in the packages.
LINE = re.compile(r"pip install (\"[^\"]*\"|'[^']*'|[\w.\[\]-]+)")

#: What shows that an extra works, in the environment that its line made.
WORKS = {
    "": "import fpsim, ipu.learn",
    "testing": "import fpsim.testing",
    "torch": "import fpsim.torch",
    "tensorflow": "import ipu.frontends.tensorflow",
    "grpc": "import ipu.members.grpc_transport",
    "mpi": "from ipu.members.mpi_transport import import_mpi; import_mpi()",
    "dask": "import distributed",
    "distributed": "import distributed, grpc, mpi4py.MPI",
    "proofs": "import fpsim.judge.proofs.theorem",
}

#: A wheel of the project that has the name fpsim on the package index.
THEIRS = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "fpsim"
version = "3.5.3"
"""


def documented() -> list[str]:
    """What stands after `pip install` on the pages, without quotes."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return sorted({match.strip("\"'") for match in LINE.findall(text)})


def test_the_distribution_has_a_name_of_its_own_and_the_command_stays():
    assert PROJECT["name"] == DISTRIBUTION != "fpsim"
    assert list(PROJECT["scripts"]) == ["fpsim"]


def test_every_documented_install_line_is_of_a_clone_and_names_an_extra():
    lines = documented()
    assert {".", ".[torch]", ".[tensorflow]", ".[grpc]", ".[mpi]", ".[dask]"} <= set(lines)
    for line in lines:
        extra = re.fullmatch(r"\.(?:\[(\w+)\])?", line)
        assert extra, f"pip install {line} does not install this project"
        assert (extra[1] or "") in WORKS, f"nothing tries the extra {extra[1]}"
        assert not extra[1] or extra[1] in PROJECT["optional-dependencies"]


def test_no_source_tells_to_install_by_the_name_of_the_other_project():
    sources = [p for f in ("fpsim", "ipu", "experiments") for p in (ROOT / f).rglob("*.py")]
    for path in sources:
        assert 'pip install "fpsim' not in path.read_text(encoding="utf-8"), path
        assert "fpsim[" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("extra", ["torch", "tensorflow", "grpc", "mpi", "dask"])
def test_a_message_names_the_libraries_of_the_extra(extra):
    wanted = [re.match(r"[\w-]+", one)[0] for one in PROJECT["optional-dependencies"][extra]]
    names = re.findall(r'"([\w-]+)', how_to_install(extra))
    assert sorted(names) == sorted(wanted)
    assert how_to_install(extra).startswith("pip install ")


def test_a_tree_that_was_not_installed_names_the_extra_of_a_clone(monkeypatch):
    monkeypatch.setattr(installation, "DISTRIBUTION", "no-such-distribution")
    assert how_to_install("torch") == 'pip install ".[torch]" in a clone of fpsim'


def their_wheel(folder: Path) -> Path:
    """A wheel named fpsim that is not ours."""
    (folder / "fpsim").mkdir(parents=True)
    (folder / "fpsim" / "__init__.py").write_text("from fpsim.sim import Sim\n")
    (folder / "fpsim" / "sim.py").write_text("class Sim: pass\n")
    (folder / "pyproject.toml").write_text(THEIRS)
    return build(folder, folder / "dist")


def command(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    outer = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-m", "ipu.experiments.cli", *arguments], cwd=site, text=True,
        env=outer | {"PYTHONPATH": str(site)}, capture_output=True, check=False,
    )


@pytest.mark.parametrize("order", ["ours last", "theirs last"])
def test_with_the_other_package_in_the_same_folder_the_command_says_so(wheel, tmp_path, order):
    theirs = their_wheel(tmp_path / "theirs")
    wheels = [theirs, wheel] if order == "ours last" else [wheel, theirs]
    done = command(unpacked(wheels, tmp_path / "site"), "show", "0.1")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr == (
        f"fpsim: the package fpsim 3.5.3, another project, is installed in "
        f"{(tmp_path / 'site' / 'fpsim').resolve()} in the place of fpsim-lab; remove both with: "
        "pip uninstall fpsim fpsim-lab, then install fpsim-lab alone\n"
    )


def test_alone_the_wheel_finds_no_other_package(wheel, tmp_path):
    done = command(unpacked([wheel], tmp_path / "site"), "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"fpsim \d+\.\d+\.\d+\n", done.stdout)


def test_a_checkout_is_no_conflict():
    assert conflict() == ""


@pytest.mark.tier("full")
@pytest.mark.parametrize("line", pick((), (".",), documented()))
def test_every_documented_line_installs_what_it_says(wheel, tmp_path, line):
    """The line with the wheel in the place of the clone, in a clean environment.

    A build of torch without CUDA is asked for, which is all that is used.
    """
    extra = line.partition("[")[2].rstrip("]")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (tmp_path / "constraints").write_text("torch==2.13.0\n" if extra == "torch" else "")
    outer = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "-c", tmp_path / "constraints",
         line.replace(".", str(wheel), 1)],
        check=True, env=outer, cwd=tmp_path,
    )
    for code in ("import fpsim; print(fpsim.Context(fpsim.BINARY16).array(0.1))", WORKS[extra]):
        subprocess.run([python, "-c", code], check=True, env=outer, cwd=tmp_path)
