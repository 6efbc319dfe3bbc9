"""The processor that a record was measured on: its name, its vectors, and the compiler.

Vectors of 512 bits tell little by themselves: some processors compute them in two halves, others
at once. So fused multiply-adds of both widths are timed, in registers alone.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import binding

from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.arithmetic import fused
from fpsim.kernels.lanes.vectors import F32, LaneKind, Lanes, any_lane, splat
from fpsim.kernels.levels import LEVELS, host_features
from fpsim.kernels.target import HAS_FMA
from ipu.experiments.lab.versions import processor

__all__ = ["Hardware", "hardware"]

#: Widths by the feature that has them, widest first.
_WIDTHS = {"avx512f": 512, "avx2": 256, "sse2": 128, "neon": 128}

#: Multiply-adds of a chain, and how often it is timed; vectors of half the width beside it.
_STEPS, _ROUNDS = 20_000, 9
_HALF = LaneKind(Lanes("f", 32, 8))


@dataclass(frozen=True)
class Hardware:
    """What figures depend on.

    vector_bits    of the widest registers that kernels are compiled for.
    halves         whether 512-bit multiply-adds run at the rate of 256-bit ones, lane by lane; None
                   without such registers.
    """

    processor: str
    cores: int
    vector_bits: int
    halves: bool | None
    compiler: str

    def __str__(self) -> str:
        how = {None: "", True: " in halves", False: " at once"}[self.halves]
        return (
            f"{self.processor}, {self.cores} cores, vectors of {self.vector_bits} bits{how}; "
            f"{self.compiler}"
        )


@cache
def hardware() -> Hardware:
    """That of this machine; times vectors for some milliseconds."""
    level = os.environ.get("FPSIM_CPU_LEVEL")
    features = LEVELS[level] if level else host_features()
    bits = next((width for name, width in _WIDTHS.items() if name in features), 64)
    version = ".".join(map(str, binding.llvm_version_info))
    return Hardware(
        processor(), os.cpu_count() or 1, bits, _halves() if bits == 512 and HAS_FMA else None,
        f"numba {numba.__version__}, LLVM {version}" + (f" for {level}" if level else ""),
    )


def _halves() -> bool:
    """Whether sixteen lanes take nearly twice the time of eight."""
    whole, half = _chains(F32), _chains(_HALF)
    ratios = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        whole(_STEPS)
        middle = time.perf_counter()
        half(_STEPS)
        ratios.append((middle - start) / (time.perf_counter() - middle))
    return statistics.median(ratios) > 1.5


def _chains(kind: LaneKind) -> Callable[[int], Any]:
    """Twelve independent chains of multiply-adds: more than are under way at a time."""

    @compiled
    def chains(n):  # type: ignore[no-untyped-def]
        x, y = splat(np.float32(0.5), kind), splat(np.float32(1.0), kind)
        a, b, c, d, e, f = y, y + y, x, x + y, x + x, y + y + y
        g, h, i, j, k, m = a + x, b + x, c + x, d + x, e + x, f + x
        for _ in range(n):
            a, b, c = fused(a, x, y), fused(b, x, y), fused(c, x, y)
            d, e, f = fused(d, x, y), fused(e, x, y), fused(f, x, y)
            g, h, i = fused(g, x, y), fused(h, x, y), fused(i, x, y)
            j, k, m = fused(j, x, y), fused(k, x, y), fused(m, x, y)
        return any_lane(a + b + c + d + e + f + g + h + i + j + k + m > y)

    chains(1)
    return chains  # type: ignore[no-any-return]
