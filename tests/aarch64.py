"""The program: python -m tests.aarch64 [ARGUMENT …]. Tests on an emulated ARM of 64 bits.

FPSIM_AARCH64 names a folder with two others: `root`, files of a Debian for arm64 with its Python,
and `site`, the libraries of the tests for that Python. Kernels are kept there too.

    --prepare       make both, with debootstrap (as root) and pip, from the network
    --pack FOLDER   compile the kernels that a wheel holds for aarch64
    ARGUMENT …      of pytest; without any TESTS run, the digests among them
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ipu.experiments.commands.warmup import PACK

ROOT = Path(__file__).parents[1]
EMULATOR, PYTHON = "qemu-aarch64-static", "root/usr/bin/python3.11"

#: What depends on the processor: its status, its own arithmetic, engines of products, digests.
#: Tests of programs are not among them: an emulated process cannot start another.
TESTS = [
    "tests/fpsim/kernels/test_status.py", "tests/fpsim/kernels/test_status_register.py",
    "tests/fpsim/kernels/test_guard.py", "tests/fpsim/kernels/rounding/test_direction.py",
    "tests/fpsim/kernels/lanes/test_arithmetic.py",
    "tests/fpsim/kernels/test_levels.py::test_an_arm_and_an_x86_have_no_level_in_common",
    "tests/fpsim/products/by_operation/test_fast.py", "tests/fpsim/kernels/by_unit/test_exact.py",
    "tests/test_digests.py::test_results_are_those_recorded",
    "--deselect=tests/fpsim/products/by_operation/test_fast.py::"
    "test_the_processor_keeps_its_direction",
]

#: Debian and its packages; libraries by the names of their index, for the Python of that Debian.
_SUITE, _MIRROR = "bookworm", "http://deb.debian.org/debian"
_DEBIAN = "python3.11,libgomp1,libstdc++6"
_LIBRARIES = [
    "numpy", "numba", "ml_dtypes", "scipy", "matplotlib", "scikit-learn", "jinja2", "tqdm", "pooch",
    "click", "pytest", "pytest-xdist", "hypothesis", "gfloat", "mpmath",
]
_PLATFORMS = ["manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"]


def missing(folder: str | None) -> str | None:
    """What keeps the emulated Python from running, and what to do; None where nothing does."""
    if shutil.which(EMULATOR) is None:
        return f"{EMULATOR} is not on the path; install QEMU's user mode (Debian: qemu-user-static)"
    if not folder:
        return (
            "FPSIM_AARCH64 is not set; name a folder with a Debian of arm64, or an empty one and "
            "run: python -m tests.aarch64 --prepare"
        )
    for part in (PYTHON, "site/numba"):
        if not (Path(folder) / part).exists():
            how = "run: python -m tests.aarch64 --prepare"
            return f"FPSIM_AARCH64={folder!r} holds no {part}; {how}"
    return None


def prepare(folder: Path) -> None:
    """Fill the folder. Nothing of the arm64 Debian runs meanwhile: its files are unpacked."""
    root = folder / "root"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", f"--include={_DEBIAN}",
         _SUITE, str(root), _MIRROR], check=True,
    )
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder / "site"),
         "--only-binary=:all:", "--implementation=cp", "--python-version=3.11",
         *(f"--platform={name}" for name in _PLATFORMS), *_LIBRARIES], check=True,
    )


def run(folder: Path, *arguments: str, **variables: str) -> int:
    """The status of an emulated Python with these arguments."""
    environment = {
        **os.environ, "QEMU_LD_PREFIX": str(folder / "root"),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{folder / 'site'}", "PYTHONDONTWRITEBYTECODE": "1",
        "FPSIM_CACHE_DIR": str(folder / "cache"), "FPSIM_CPU_LEVEL": "aarch64",
    }
    command = [EMULATOR, str(folder / PYTHON), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment | variables, check=False).returncode


def main(arguments: list[str]) -> int:
    name = os.environ.get("FPSIM_AARCH64")
    if arguments == ["--prepare"] and name:
        prepare(Path(name).resolve())
        arguments = []
    reason = missing(name)
    if reason is not None or name is None:
        print(f"aarch64: {reason}", file=sys.stderr)
        return 2
    folder = Path(name).resolve()
    if arguments[:1] == ["--pack"] and len(arguments) == 2:
        with tempfile.TemporaryDirectory() as cache:
            target = str(Path(arguments[1]).resolve())
            return run(folder, "-c", PACK, target, "aarch64", FPSIM_CACHE_DIR=cache)
    return run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or TESTS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
