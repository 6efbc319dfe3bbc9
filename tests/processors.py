"""Levels of x86 processors and states of a status register, as a program.

`python -m tests.processors [STATE …]` prints as JSON what it runs on, the hashes of `tests.machine`
and the digests that the tier takes, under each of these states in this order (default: the usual
one). `results(level, …)` runs it in a fresh process as a processor of that level: kernels are
compiled for it, numpy takes its loops for it, and so do BLAS and the C library.

Source    https://gitlab.com/x86-psABIs/x86-64-ABI (levels of x86-64); Intel SDM vol. 1 §10.2.3
          (MXCSR); Arm Architecture Reference Manual for A-profile (FPCR); numpy's
          __cpu_dispatch__, whose names change with its versions.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from numba.core.registry import cpu_target
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from fpsim.kernels.compiling import cache_folder
from fpsim.kernels.status import exchange_status
from fpsim.kernels.status_register import (
    FLAGS,
    IS_ARM,
    TOWARD_MINUS,
    TOWARD_PLUS,
    TOWARD_ZERO,
    USUAL,
)

ROOT = Path(__file__).parents[1]
X86 = platform.machine() in ("x86_64", "AMD64")

#: Modes that change more than a direction, by a name: of MXCSR, or of FPCR in the upper half of the
#: word (FZ, FZ16, DN).
_MODES = (
    {"flush_and_denormals": 1 << 56, "flush_binary16": 1 << 51, "default_nan": 1 << 57}
    if IS_ARM else
    {"flush_to_zero": 0x8000, "denormals_are_zero": 0x0040, "flush_and_denormals": 0x8040}
)
#: Subnormal results and operands are zeros.
FLUSH = _MODES["flush_and_denormals"]

#: Status words by a name. All but the first are what another library may leave in a thread.
STATES = {
    "usual": USUAL,
    **{name: USUAL | modes for name, modes in _MODES.items()},
    "down": USUAL | TOWARD_MINUS,
    "up": USUAL | TOWARD_PLUS,
    "toward_zero": USUAL | TOWARD_ZERO,
}


class Level(NamedTuple):
    """A processor: for numba (and LLVM), for numpy, for OpenBLAS.

    has      beginnings of the names of features that numpy may use beyond its own baseline.
    apart    whether its kernels lie in a folder of their own, where a test looks at all of them.
    """

    cpu: str
    features: str
    has: tuple[str, ...]
    blas: str
    apart: bool = False


#: Numba adds this machine's features to those of a processor unless they are named.
_PLAIN = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16"
LEVELS = {
    "avx2": Level(
        "haswell", _PLAIN + ",+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe",
        ("X86_V3", "AVX2", "FMA3", "F16C", "AVX", "LZCNT"), "Haswell",
    ),
    "baseline": Level("x86-64-v2", _PLAIN, (), "Nehalem", apart=True),
}


def lacks(level: Level) -> list[str]:
    """Features of this machine that numpy takes by itself, and a processor of the level lacks.

    >>> set(lacks(LEVELS["avx2"])) <= set(lacks(LEVELS["baseline"])) <= set(__cpu_dispatch__)
    True
    """
    return [
        name for name in __cpu_dispatch__
        if __cpu_features__.get(name) and (name.startswith("AVX512") or name not in level.has)
    ]


def is_here(level: Level) -> bool:
    """Whether this machine is such a processor, or more than that."""
    return X86 and (not level.has or bool(__cpu_features__.get("AVX2")))


def is_all(level: Level) -> bool:
    """Whether this machine has nothing beyond the level: its own kernels have these instructions.

    >>> is_all(LEVELS["baseline"]) and is_all(LEVELS["avx2"])
    False
    """
    return is_here(level) and not lacks(level)


def folder(level: Level) -> Path:
    """Where the kernels of that level lie."""
    base = cache_folder().parent
    return base / level.cpu if level.apart else base.parent


def environment(level: Level) -> dict[str, str]:
    """What makes a process run as such a processor."""
    wanted = {
        "NUMBA_CPU_NAME": level.cpu, "NUMBA_CPU_FEATURES": level.features,
        "NPY_DISABLE_CPU_FEATURES": " ".join(lacks(level)), "OPENBLAS_CORETYPE": level.blas,
        "FPSIM_CACHE_DIR": str(folder(level)),
    }
    # numpy refuses an empty list; a level that this process was told of is not the other's.
    return {name: value for name, value in wanted.items() if value} | {"FPSIM_CPU_LEVEL": ""}


def python(*arguments: str, **variables: str) -> str:
    """Output of a fresh interpreter in the project's folder."""
    usual = {**os.environ, "PYTHONPATH": str(ROOT)}
    usual.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=usual | variables, text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def results(level: str, states: Sequence[str]) -> dict[str, Any]:
    """What the program prints on a processor of the level."""
    printed: dict[str, Any] = json.loads(
        python("-m", "tests.processors", *states, **environment(LEVELS[level]))
    )
    return printed


@contextmanager
def under(state: str) -> Iterator[None]:
    """The status register is so inside; whoever runs inside must leave it so, but for its flags."""
    before = exchange_status(STATES[state])
    try:
        yield
    finally:
        left = exchange_status(before)
    assert left & ~FLAGS == STATES[state], f"{state} has become {left:#x}"


def digests_under(state: str, names: Sequence[str]) -> dict[str, str]:
    """Digests of cases while the status register is so."""
    from tests import digests

    with under(state):
        return {name: digests.run(name) for name in names}


def main(states: Sequence[str]) -> None:
    from tests import machine
    from tests.test_digests import IN_STATES
    from tests.tiers import reaches

    _, cpu, features = cpu_target.target_context.codegen().magic_tuple()
    numpys = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    digests = {state: digests_under(state, IN_STATES) for state in states or ["usual"]}
    hashes = machine.everything_here(reaches("full"))
    printed = {"cpu": cpu, "features": features, "numpy": numpys}
    json.dump(printed | {"digests": digests, "hashes": hashes}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
