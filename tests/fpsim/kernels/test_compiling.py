"""Where compiled kernels are kept, and what happens where nothing can be kept (corners)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import pick

ROOT = Path(__file__).parents[3]
IMPORT = "import fpsim, fpsim.judge.verify.definition, fpsim.judge.verify.testfloat\n"
SUM = "print(fpsim.Context(fpsim.BINARY16).array(0.1).values.tolist())\n"
FOLDERS = ("FPSIM_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")


def run(code: str, **folders: str) -> subprocess.CompletedProcess[str]:
    outer = {k: v for k, v in os.environ.items() if k not in FOLDERS and k != "PYTHONWARNINGS"}
    return subprocess.run(
        [sys.executable, "-P", "-B", "-c", code], cwd=ROOT, capture_output=True, text=True,
        check=False, env=outer | {"PYTHONPATH": str(ROOT)} | folders,
    )


#: Nothing can be made below a file, whoever asks.
UNWRITABLE = {
    "home": {"HOME": "/dev/null/x"},
    "cache of the user": {"XDG_CACHE_HOME": "/dev/null/x"},
    "folder of ours": {"FPSIM_CACHE_DIR": "/dev/null/x"},
    "folder of numba": {"NUMBA_CACHE_DIR": "/dev/null/x"},
}


#: In the quick tier one folder of the user, and numba's own.
NAMES = pick(["home", "folder of numba"], list(UNWRITABLE), list(UNWRITABLE))


@pytest.mark.parametrize("name", NAMES)
def test_without_a_writable_folder_import_warns_once(name):
    process = run(IMPORT, **UNWRITABLE[name])
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("RuntimeWarning: compiled kernels cannot be kept in /dev/null") == 1
    assert process.stderr.count("name a writable folder in FPSIM_CACHE_DIR") == 1
    assert "Traceback" not in process.stderr


def test_without_a_writable_folder_kernels_compute():
    process = run(IMPORT + SUM, HOME="/dev/null/x")
    assert process.stdout == "0.0999755859375\n"
    assert process.stderr.count("RuntimeWarning") == 1


def test_a_user_without_a_home_is_one_without_a_folder():
    code = "import pwd\npwd.getpwuid = lambda uid: {}[uid]\n" + IMPORT
    process = run(code)
    assert process.returncode == 0, process.stderr
    assert "cannot be kept in ~/.cache" in process.stderr
    assert not (ROOT / "~").exists()


def test_a_writable_folder_is_used_in_silence(tmp_path):
    process = run(IMPORT + SUM, HOME="/dev/null/x", FPSIM_CACHE_DIR=str(tmp_path))
    assert (process.stdout, process.stderr) == ("0.0999755859375\n", "")
    (folder,) = (tmp_path / "fpsim").iterdir()
    assert folder.name.startswith("kernels-")
    assert list(folder.rglob("*.nbc"))
    assert not list(folder.rglob("*.tmp"))


def test_our_folder_comes_before_those_of_the_system(tmp_path):
    code = "from fpsim.kernels.compiling import cache_folder\nprint(cache_folder().parent)"
    here, cache = tmp_path / "here", tmp_path / "cache"
    folders = {"XDG_CACHE_HOME": str(cache), "HOME": str(tmp_path)}
    assert run(code, FPSIM_CACHE_DIR=str(here), **folders).stdout == f"{here}/fpsim\n"
    assert run(code, **folders).stdout == f"{cache}/fpsim\n"
    assert run(code, HOME=str(tmp_path)).stdout == f"{tmp_path}/.cache/fpsim\n"
