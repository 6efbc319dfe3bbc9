"""How long the kernels of matrix products take to compile, and to load from the disk cache.

Each family runs in a process of its own with an empty cache, then again with what that has left.
`data` counts the kernels that the call had to compile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from experiments.bench.startup import in_process
from experiments.bench.timing import Call, Case, Size

__all__ = ["SIZES", "cases"]

#: One call each; there is nothing to repeat.
SIZES = Size(n=1, repeats=1), Size(n=1, repeats=1)

PRODUCT = """
import time, numpy as np, fpsim as fp, ipu.machine.amp
from fpsim.linalg import matmul, rounded_matmul
def operand(fmt, value=1.0):
    return fp.Context(fmt).wrap(np.full((32, 32), value, fmt.carrier))
start = time.perf_counter()
{call}
print(time.perf_counter() - start)
"""

ROUNDED = "rounded_matmul(*[operand(fp.{fmt}, {value})] * 2, context=fp.Context(fp.{fmt}, {more}))"
UNIT = "matmul(*[operand(fp.{fmt})] * 2, unit='{unit}')"


def _rounded(fmt: str, more: str = "", value: float = 1.0) -> str:
    return ROUNDED.format(fmt=fmt, more=more, value=value)


#: Family -> format, rounding and the call that compiles it.
FAMILIES = {
    "nearest": ("binary16", "RNE", _rounded("BINARY16")),
    "overflow": ("binary16", "RNE", _rounded("BINARY16", value=2.0**14)),
    "general": ("binary32", "RTN", _rounded("BINARY32", "rounding=fp.RTN")),
    "stochastic": ("binary16", "SR", _rounded("BINARY16", "rounding=fp.SR(16)")),
    "exact": ("binary16", "RNE", UNIT.format(fmt="BINARY16", unit="AMP_F16_F32.exact")),
    "window": ("binary16", "RNE", UNIT.format(fmt="BINARY16", unit="AMP_F16_F32")),
    "half partials": ("binary16", "RNE", UNIT.format(fmt="BINARY16", unit="AMP_F16_F16")),
    "tensor core": ("binary16", "RTZ", UNIT.format(fmt="BINARY16", unit="V100_F16_F32")),
    "fused": ("binary32", "RNE", UNIT.format(fmt="BINARY32", unit="AMP_F32_F32")),
}  # fmt: skip


def cases(size: Size, quick: bool) -> Iterator[Case]:
    """First calls of each family, cold and warm."""
    for name in list(FAMILIES)[: 1 if quick else None]:
        fmt, rounding, call = FAMILIES[name]
        with tempfile.TemporaryDirectory() as cache:
            code = PRODUCT.format(call=call)
            times = {"cold": in_process(code, cache), "warm": in_process(code, cache)}
            kernels = len(list(Path(cache).rglob("*.nbc")))
        for state, seconds in times.items():
            yield Case(
                f"{state} {name}", fmt, _known, None, size.n, size.repeats, rounding,
                flags=True, data=f"{kernels} kernels", warm=False,
                clock=partial(_told, seconds),
            )  # fmt: skip


def _known() -> Call:
    return lambda: None


def _told(seconds: float, _call: Call) -> float:
    """The time that the process has printed."""
    return seconds
