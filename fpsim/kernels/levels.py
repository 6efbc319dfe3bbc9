"""Levels of processors that kernels may be compiled for.

FPSIM_CPU_LEVEL names one: kernels of the process are then compiled for it and not for the
processor at hand, which must have what the level has. Results are the same bits.

One level of x86-64 is ours: x86-64-v4 with arithmetic in numbers of 16 bits, which kernels ask
about. aarch64 is what every ARM of 64 bits has that runs Linux.

Source    https://gitlab.com/x86-psABIs/x86-64-ABI (levels); LLVM's names of features; Procedure
          Call Standard for the Arm 64-bit Architecture (AAPCS64) §6 (vector registers).
"""

from __future__ import annotations

import os
from contextlib import suppress

from llvmlite import binding
from numba.core import config

from fpsim.kernels.status_register import IS_ARM

__all__ = ["LEVELS", "features_of", "force_level", "host_features"]

_V2 = ("sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
#: What our level is called behind the processor that LLVM knows.
_FP16 = "-fp16"
_AARCH64 = ("fp-armv8", "neon")

#: Level -> what LLVM must be told that it has.
LEVELS = {
    "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4,
    f"x86-64-v4{_FP16}": (*_V4, "avx512fp16"), "aarch64": _AARCH64,
}


def features_of(level: str) -> str:
    """A level's features as LLVM reads them."""
    return ",".join(f"+{name}" for name in LEVELS[level])


def host_features() -> frozenset[str]:
    """What the processor at hand has."""
    # LLVM reads an ARM's from a file that says nothing of them under an emulator.
    features = set(_AARCH64 if IS_ARM else ())
    with suppress(RuntimeError):  # an architecture LLVM cannot ask about
        features.update(name for name, has in binding.get_host_cpu_features().items() if has)
    return frozenset(features)


def force_level(level: str | None, features: frozenset[str]) -> None:
    """Compile for a level from here on, on a processor with these features; None changes nothing.

    Raises    ValueError for a level that is not known, or that the processor lacks.

    >>> force_level("v9", host_features())
    Traceback (most recent call last):
    ValueError: FPSIM_CPU_LEVEL='v9' is not known; use x86-64-v2, -v3, -v4, -v4-fp16 or aarch64
    """
    if not level:
        return
    if level not in LEVELS:
        first, *others, last = LEVELS
        middle = ", ".join(name.removeprefix("x86-64") for name in others)
        raise ValueError(
            f"FPSIM_CPU_LEVEL={level!r} is not known; use {first}, {middle} or {last}"
        )
    missing = [name for name in LEVELS[level] if name not in features]
    if missing:
        raise ValueError(
            f"FPSIM_CPU_LEVEL={level!r} needs {', '.join(missing)}, which this processor lacks; "
            "name a lower level of it, or none"
        )
    name = "generic" if level == "aarch64" else level.removesuffix(_FP16)
    config.CPU_NAME, config.CPU_FEATURES = name, features_of(level)


force_level(os.environ.get("FPSIM_CPU_LEVEL"), host_features())
