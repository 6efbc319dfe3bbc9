"""Files of compiled kernels: damaged ones, full disks, other folders of sources (corners)."""

from __future__ import annotations

import ast
import ctypes
import shutil
import subprocess
import symtable
from pathlib import Path

import pytest
from numba import njit

from fpsim.kernels import keeping
from tests.fpsim.kernels.test_compiling import IMPORT, ROOT, SUM, run

KERNELS = ROOT / "fpsim" / "kernels"
RIGHT = "0.0999755859375\n"

#: Compiled into a kernel as an address.
POINTER = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: x + 2)


def kernels(folder: Path) -> list[Path]:
    return sorted((folder / "fpsim").rglob("*.nbc"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """A folder with the kernels of one conversion."""
    folder = tmp_path_factory.mktemp("kept")
    assert run(IMPORT + SUM, FPSIM_CACHE_DIR=str(folder)).stdout == RIGHT
    assert kernels(folder)
    return folder


def sum_from(folder: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return run(IMPORT + SUM, FPSIM_CACHE_DIR=str(folder), PYTHONPATH=str(root))


@pytest.mark.parametrize("damage", [b"", b"x", None, "flipped"], ids=str)
def test_a_damaged_kernel_is_compiled_again_in_silence(compiled, tmp_path, damage):
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in kernels(tmp_path)}
    for path, data in before.items():
        flipped = data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]
        path.write_bytes({None: data[:-1], "flipped": flipped}.get(damage, damage))
    process = sum_from(tmp_path)
    assert (process.stdout, process.stderr, process.returncode) == (RIGHT, "", 0)
    assert {path: len(path.read_bytes()) > 100 for path in before} == dict.fromkeys(before, True)
    assert kernels(tmp_path) == sorted(before)


def test_kept_kernels_run_without_the_registries_of_the_compiler(compiled):
    told = "import sys; print('numba.np.linalg' in sys.modules)\n"
    assert run(IMPORT + SUM + told, FPSIM_CACHE_DIR=str(compiled)).stdout == f"{RIGHT}False\n"


def test_kernels_of_a_checkout_serve_one_elsewhere_with_the_same_sources(compiled, tmp_path):
    shutil.copytree(ROOT / "fpsim", tmp_path / "tree" / "fpsim")
    shutil.copytree(compiled, tmp_path / "cache")
    before = {path: path.stat().st_mtime_ns for path in kernels(tmp_path / "cache")}
    assert sum_from(tmp_path / "cache", tmp_path / "tree").stdout == RIGHT
    assert {path: path.stat().st_mtime_ns for path in kernels(tmp_path / "cache")} == before


@pytest.mark.parametrize("call", ["os.replace", "tempfile.mkstemp"])
def test_a_disk_that_fills_up_costs_one_warning(tmp_path, call):
    module, name = call.split(".")
    full = (
        f"import {module}, errno\n"
        "def full(*args, **kwargs): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        f"import fpsim\n{module}.{name} = full\n"
    )
    twice = SUM + "print(fpsim.Context(fpsim.BFLOAT16).array(0.5).values.tolist())\n"
    process = run(full + twice, FPSIM_CACHE_DIR=str(tmp_path))
    assert process.stdout == RIGHT + "0.5\n", process.stderr
    assert process.stderr.count("RuntimeWarning: compiled kernels cannot be kept in") == 1
    assert "No space left on device" in process.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def kernel_kept_in(folder: Path, function):
    kernel = njit(function)
    kernel._cache = keeping.KernelCache(function, str(folder))
    return kernel


def test_a_source_is_read_once_for_all_its_kernels(tmp_path, monkeypatch):
    read = Path.read_bytes
    paths = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: paths.append(path) or read(path))
    keeping._digest.cache_clear()
    for add in (lambda x: x + 1, lambda x: x + 2):
        keeping.KernelCache(add, str(tmp_path))
    assert paths == [Path(__file__)]


def test_a_kernel_with_an_address_of_this_process_is_not_kept(tmp_path):
    kernel = kernel_kept_in(tmp_path, lambda x: POINTER(x))
    with pytest.warns(RuntimeWarning, match=r"lambda.* holds addresses of this process"):
        assert kernel(1.0) == 3.0
    assert not list(tmp_path.iterdir())


def test_a_cache_can_be_switched_off_and_emptied(tmp_path):
    kernel = kernel_kept_in(tmp_path, lambda x: x + 1)
    kernel._cache.disable()
    assert kernel(1) == 2
    assert not list(tmp_path.iterdir())
    kernel._cache.enable()
    assert kernel(1.0) == 2.0
    assert len(list(tmp_path.iterdir())) == 1
    kernel._cache.flush()
    assert not list(tmp_path.iterdir())


def captured(path):
    """Kernels of a module that are made in functions, and the names that they take from there."""
    text = path.read_text()
    kernels = {
        node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
        and "compiled" in map(ast.unparse, node.decorator_list)
    }
    tables = [symtable.symtable(text, str(path), "exec")]
    for table in tables:
        tables += table.get_children()
        if table.get_type() == "function" and table.get_name() in kernels:
            yield table.get_name(), tuple(sorted(table.get_frees()))


@pytest.mark.parametrize(
    "path", sorted(KERNELS.rglob("*.py")), ids=lambda path: str(path.relative_to(KERNELS))
)
def test_kernels_capture_numbers_alone(path):
    """A function among them has another hash in each process, which then compiles the kernel anew.

    Numbers that are known when a kernel is compiled have names in capitals.
    """
    for kernel, names in captured(path):
        assert all(name.isupper() for name in names), (kernel, names)


def test_what_kernels_capture_is_seen():
    assert dict(captured(KERNELS / "elementwise/folding.py")) == {
        "running": ("CHAINS", "IS_SUM", "TILED"), "folding": ("IS_SUM",),
    }
