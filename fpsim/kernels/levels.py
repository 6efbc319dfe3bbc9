"""Levels of x86-64 processors that kernels may be compiled for.

FPSIM_CPU_LEVEL names one: kernels of the process are then compiled for it and not for the
processor at hand, which must have what the level has. Results are the same bits.

One level is ours: x86-64-v4 with arithmetic in numbers of 16 bits, which kernels ask about.

Source    https://gitlab.com/x86-psABIs/x86-64-ABI (levels); LLVM's names of features.
"""

from __future__ import annotations

import os

from llvmlite import binding
from numba.core import config

__all__ = ["LEVELS", "features_of", "force_level", "host_features"]

_V2 = ("sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
#: What our level is called behind the processor that LLVM knows.
_FP16 = "-fp16"

#: Level -> what LLVM must be told that it has.
LEVELS = {
    "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4,
    f"x86-64-v4{_FP16}": (*_V4, "avx512fp16"),
}


def features_of(level: str) -> str:
    """A level's features as LLVM reads them."""
    return ",".join(f"+{name}" for name in LEVELS[level])


def host_features() -> frozenset[str]:
    """What the processor at hand has."""
    try:
        return frozenset(name for name, has in binding.get_host_cpu_features().items() if has)
    except RuntimeError:  # an architecture LLVM cannot ask about
        return frozenset()


def force_level(level: str | None, features: frozenset[str]) -> None:
    """Compile for a level from here on, on a processor with these features; None changes nothing.

    Raises    ValueError for a level that is not known, or that the processor lacks.

    >>> force_level("v9", host_features())
    Traceback (most recent call last):
    ValueError: FPSIM_CPU_LEVEL='v9' is not known; use x86-64-v2, -v3, -v4 or -v4-fp16
    """
    if not level:
        return
    if level not in LEVELS:
        first, *middle, last = (name.removeprefix("x86-64") for name in LEVELS)
        raise ValueError(
            f"FPSIM_CPU_LEVEL={level!r} is not known; "
            f"use x86-64{first}, {', '.join(middle)} or {last}"
        )
    missing = [name for name in LEVELS[level] if name not in features]
    if missing:
        raise ValueError(
            f"FPSIM_CPU_LEVEL={level!r} needs {', '.join(missing)}, which this processor lacks; "
            "name a lower level, or none"
        )
    config.CPU_NAME, config.CPU_FEATURES = level.removesuffix(_FP16), features_of(level)


force_level(os.environ.get("FPSIM_CPU_LEVEL"), host_features())
