"""How long the kernels of matrix products take to compile, and to load from the disk cache.

Each family runs in a process of its own with an empty cache, then again with what that has left.
`data` counts the kernels that the call had to compile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ipu.experiments.bench.startup import in_process
from ipu.experiments.bench.timing import Call, Size, TimedCase

__all__ = ["SIZES", "cases"]

#: One call each; there is nothing to repeat.
SIZES = Size(n=1, repeats=1), Size(n=1, repeats=1)


class Family(NamedTuple):
    """What a process multiplies."""

    format: str
    rounding: str
    call: str
    size: float = 1.0


PRODUCT = """
import time, numpy as np, fpsim as fp, ipu.machine.units.amp
from fpsim.linalg import matmul, rounded_matmul
def operand(fmt, size=1.0):
    x = np.random.default_rng(0).standard_normal((32, 32)) * size
    return fp.Context(fmt, overflow="saturate").array(x)
a = operand(fp.{fmt}, {size})
start = time.perf_counter()
{call}
print(time.perf_counter() - start)
"""

ROUNDED = "rounded_matmul(a, a, context=fp.Context(a.format, rounding=fp.{rounding}){more})"
UNIT = "matmul(a, a, unit='{unit}')"


def _rounded(fmt: str, rounding: str = "RNE", more: str = "", size: float = 1.0) -> Family:
    call = ROUNDED.format(rounding=rounding, more=more)
    return Family(fmt, rounding.partition("(")[0], call, size)


def _through(unit: str, fmt: str = "BINARY16") -> Family:
    return Family(fmt, "RNE", UNIT.format(unit=unit))


#: Family -> the call that compiles it.
FAMILIES = {
    "nearest": _rounded("BINARY16"),
    "overflow": _rounded("BINARY16", size=2.0**14),
    "directed": _rounded("BINARY16", "RTP"),
    "wide lanes": _rounded("BFLOAT16", size=2.0**60),
    "processor": _rounded("BINARY32"),
    "stochastic": _rounded("BINARY16", "SR(13)"),
    "stochastic 16": _rounded("BINARY16", "SR(16)"),
    "fused": _rounded("BINARY16", more=", fused=True"),
    "kahan": _rounded("BINARY16", more=", kahan=True"),
    "exact unit": _through("AMP_F16_F32.exact"),
    "window unit": _through("AMP_F16_F32"),
    "half partials": _through("AMP_F16_F16"),
    "tensor core": _through("V100_F16_F32"),
    "binary32 unit": _through("AMP_F32_F32", "BINARY32"),
}


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """First calls of each family, cold and warm."""
    for name in list(FAMILIES)[: 1 if quick else None]:
        family = FAMILIES[name]
        with tempfile.TemporaryDirectory() as cache:
            code = PRODUCT.format(fmt=family.format, size=family.size, call=family.call)
            times = {"cold": in_process(code, cache), "warm": in_process(code, cache)}
            kernels = _products(Path(cache))
        for state, seconds in times.items():
            yield TimedCase(
                f"{state} {name}", family.format.lower(), _warm_call, None, size.n, size.repeats,
                family.rounding, flags=True, data=f"{kernels} kernels", warm=False,
                clock=partial(_told, seconds),
            )


def _products(cache: Path) -> int:
    """Compiled kernels of products; the operands have theirs."""
    files = [p for p in cache.rglob("*.nbc") if p.name.startswith(("gemm_", "unit_", "store"))]
    return len(files)


def _warm_call() -> Call:
    return lambda: None


def _told(seconds: float, _call: Call) -> float:
    """The time that the process has printed."""
    return seconds
