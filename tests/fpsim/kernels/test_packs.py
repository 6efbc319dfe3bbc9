"""Packs of kernels: found before anything is compiled, never where they do not fit (corners)."""

from __future__ import annotations

import json
import shutil
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from fpsim.kernels.levels import LEVELS, host_features
from fpsim.kernels.packs import best_pack, identity, read_pack, write_pack
from tests.fpsim.kernels.test_compiling import ROOT, SUM, run

HERE = [name for name, needs in LEVELS.items() if host_features().issuperset(needs)]
pytestmark = pytest.mark.skipif(not HERE, reason="the processor has none of the levels")

LEVEL = HERE[-1] if HERE else ""
RIGHT = "0.0999755859375\n"
PACK = (
    "import fpsim\nfrom pathlib import Path\nfrom fpsim.kernels.compiling import cache_folder\n"
    "from fpsim.kernels.packs import write_pack\n" + SUM +
    "write_pack(Path({folder!r}), {level!r}, cache_folder())\n"
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another checkout of these sources, with a pack of the kernels of one conversion."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "fpsim", root / "fpsim", ignore=shutil.ignore_patterns("packs"))
    folder = root / "fpsim" / "kernels" / "packs"
    code = PACK.format(folder=str(folder), level=LEVEL)
    process = run(code, PYTHONPATH=str(root), FPSIM_CPU_LEVEL=LEVEL,
                  FPSIM_CACHE_DIR=str(root / "cache"))
    assert process.stdout == RIGHT, process.stderr
    return root


def kept(folder: Path) -> list[Path]:
    return list(folder.rglob("*.nbc"))


#: The conversion, then how many kernels were compiled for it.
COUNTED = (
    "import fpsim\nfrom fpsim.kernels.guard import KernelCompiler\n"
    "compiled, usual = [], KernelCompiler.compile_extra\n"
    "KernelCompiler.compile_extra = lambda self, func: compiled.append(0) or usual(self, func)\n"
    + SUM + "print(len(compiled))\n"
)


def test_packed_kernels_are_not_compiled(tree, tmp_path):
    process = run(
        COUNTED, PYTHONPATH=str(tree), FPSIM_CACHE_DIR=str(tmp_path), FPSIM_CPU_LEVEL=LEVEL)
    assert (process.stdout, process.stderr) == (RIGHT + "0\n", "")
    assert kept(tmp_path) == []


def test_packed_kernels_serve_where_no_folder_can_be_written(tree):
    quiet = "import warnings\nwarnings.simplefilter('ignore')\n"
    process = run(
        quiet + COUNTED, PYTHONPATH=str(tree), FPSIM_CACHE_DIR="/dev/null/x", FPSIM_CPU_LEVEL=LEVEL)
    assert process.stdout == RIGHT + "0\n", process.stderr


@pytest.mark.parametrize("change", ["source", "damage", "kernel"])
def test_a_pack_that_does_not_fit_or_is_damaged_is_not_used(tree, tmp_path, change):
    root = shutil.copytree(tree, tmp_path / "tree")
    (pack,) = (root / "fpsim" / "kernels" / "packs").glob("*.zip")
    if change == "source":
        with (root / "fpsim" / "kernels" / "status.py").open("a") as file:
            file.write("# another source\n")
    elif change == "damage":
        pack.write_bytes(pack.read_bytes()[:-30])
    else:  # one flipped bit in each kernel, the zip file whole
        with zipfile.ZipFile(pack) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(pack, "w") as archive:
            for name, data in files.items():
                flipped = data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]
                archive.writestr(name, data if name.endswith(".json") else flipped)
    process = run(COUNTED, PYTHONPATH=str(root), FPSIM_CACHE_DIR=str(tmp_path / "cache"))
    first, count = process.stdout.splitlines(keepends=True)
    assert (first, process.stderr) == (RIGHT, "")
    assert int(count) > 0
    assert kept(tmp_path / "cache")


def made(folder: Path, level: str, **changes: object) -> Path:
    path = write_pack(folder, level, folder)
    header = {"level": level, **identity(), **changes}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(header))
    return path


def test_the_highest_level_of_a_processor_is_taken(tmp_path):
    for level in LEVELS:
        made(tmp_path, level)
    for level, features in LEVELS.items():
        pack = best_pack(tmp_path, frozenset(features))
        assert pack.level == level
        assert pack.get("no such kernel") is None
    assert best_pack(tmp_path, frozenset({"sse2"})) is None


def test_a_pack_of_a_higher_level_is_not_taken(tmp_path):
    for low, high in pairwise(LEVELS):
        folder = tmp_path / high
        folder.mkdir()
        made(folder, high)
        assert best_pack(folder, frozenset(LEVELS[low])) is None
        assert best_pack(folder, frozenset(LEVELS[high])).level == high


@pytest.mark.parametrize("field", ["sources", "python", "numba", "processor"])
def test_every_field_of_the_identity_is_asked(tmp_path, field):
    made(tmp_path, HERE[0], **{field: "another"})
    assert best_pack(tmp_path, host_features()) is None


def test_what_is_no_pack_is_none(tmp_path):
    file = tmp_path / "x86-64-v2-a.zip"
    for data in (b"", b"PK", b"x" * 100):
        file.write_bytes(data)
        assert read_pack(file) is None
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("header.json", "[]")
    assert read_pack(file) is None
    assert read_pack(tmp_path / "missing.zip") is None
