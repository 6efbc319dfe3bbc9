"""How fast matrices are multiplied: rounded after every operation, through units, and by BLAS.

Rates are billions of multiply-adds per second of the whole call (guards, packing, flags and random
bits included); the reference is BLAS in binary32 with as many threads, timed in the same run.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ipu.machine.units.amp  # noqa: F401  (names its units)
from fpsim.context import Context
from fpsim.linalg import matmul, rounded_matmul
from fpsim.quantizers import quantize
from fpsim.records.blocks import find_block
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, BINARY64, E4M3FN, Format
from fpsim.records.rounding import RNA, RNE, RTO, RTZ, SR, Rounding
from fpsim.records.units import find_unit
from fpsim.state.threads import get_threads
from ipu.experiments.bench.round import bits_of
from ipu.experiments.bench.timing import Call, Size, TimedCase

__all__ = ["SIZES", "Row", "blas_threads", "call", "cases"]

#: Rows and columns of the matrices, as a rule and with --quick.
SIZES = Size(n=512, repeats=7), Size(n=128, repeats=3)

E6M9 = Format.custom(6, 10)


class Row(NamedTuple):
    """A product: through `unit`, or else rounded after every operation."""

    kind: str
    format: Format
    rounding: Rounding = RNE
    data: str = "normal"
    fused: bool = False
    unit: str | None = None


ROWS = [
    Row("fp16-mac", BINARY16),
    Row("any-mac", BFLOAT16),
    Row("any-mac", E6M9),
    *(Row("any-mac", E6M9, mode) for mode in (RTZ, RNA, RTO)),
    Row("any-mac", BINARY32),
    Row("any-mac", E4M3FN, data="small"),
    Row("any-mac", BINARY16, data="large"),
    Row("any-mac", E4M3FN),
    *(Row("sr-fma", fmt, SR(16), fused=True) for fmt in (BINARY16, BFLOAT16)),
    *(Row("sr-mac", fmt, SR(bits)) for bits in (8, 16) for fmt in (BINARY16, BFLOAT16)),
    Row("sr-mac", BINARY16, SR(13, subnormal_bits=16)),
    Row("sr-mac", BINARY16, SR(24)),
]

UNITS = {
    "amp-exact": ["AMP_F16_F32.exact"],
    "amp-exact-worst": ["AMP_F16_F32.exact"],
    "amp-window": ["AMP_F16_F32"],
    "amp-window-half": ["AMP_F16_F16"],
    "tensor-core": ["V100_F16_F32", "A100_BF16_F32", "ADA_E4M3_F32", "H100_F16_F32",
                    "B200_F16_F32"],
}


#: Units of blocks, with the block that both operands have.
SCALED = {
    "B200_TC05_MXF8_F32": "mxfp8", "B200_TC05_MXF4_F32": "mxfp4", "B200_TC05_NVF4_F32": "nvfp4",
    "H100_E4M3X128_F32": "e4m3-128",
}


def _matrix(data: str, n: int, seed: int) -> NDArray[np.float32]:
    """Normal numbers; small and large ones; `range`: the whole range of binary16, log-uniform."""
    rng = np.random.default_rng([n, seed])
    if data == "range":
        x = np.exp2(rng.uniform(-24, 15.9, (n, n))) * rng.choice((-1.0, 1.0), (n, n))
        return np.asarray(x, np.float32)
    size = {"normal": 1.0, "small": 2.0**-4, "large": 2.0**5}[data]
    return rng.standard_normal((n, n), np.float32) * np.float32(size)


def _rows(quick: bool) -> Iterator[Row]:
    kinds = set()
    for row in ROWS:
        if not (quick and row.kind in kinds):
            yield row
        kinds.add(row.kind)
    for kind, names in UNITS.items():
        for name in names[:1] if quick else names:
            fmt = find_unit(name).inputs[0]
            yield Row(kind, fmt, data="range" if "worst" in kind else "normal", unit=name)


def call(row: Row, n: int) -> Call:
    context = Context(row.format, rounding=row.rounding, overflow="saturate")
    a, b = (context.array(_matrix(row.data, n, seed)) for seed in (0, 1))
    if row.unit is not None:
        return partial(matmul, a, b, row.unit)
    return partial(rounded_matmul, a, b, context=Context(row.format, rounding=row.rounding),
                   fused=row.fused)


def _whole_blocks(n: int, block: str) -> int:
    """The smallest size from n on that blocks divide."""
    elements = find_block(block).elements or 1
    return -(-n // elements) * elements


def _scaled(unit: str, block: str, n: int) -> Call:
    """A product of matrices that are quantised before the clock starts."""
    a, b = (quantize(_matrix("normal", n, seed), block, axis=1 - seed) for seed in (0, 1))
    return partial(matmul, a, b, unit, context=Context(BINARY32))


def _blas(dtype: Any, n: int) -> Call:
    a, b = (_matrix("normal", n, seed).astype(dtype) for seed in (0, 1))
    out = np.empty((n, n), dtype)
    return partial(np.matmul, a, b, out=out)


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """As many threads for BLAS as for the kernels."""
    try:
        control: Any = importlib.import_module("threadpoolctl")
    except ImportError:
        print("bench: no threadpoolctl here; BLAS uses its own threads", file=sys.stderr)
        yield
        return
    with control.threadpool_limits(n, "blas"):
        yield


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Products rounded per operation, through units, and by BLAS itself."""
    reference = _blas(np.float32, size.n)
    with blas_threads(get_threads()):
        for row in _rows(quick):
            yield TimedCase(
                f"gemm {row.unit}" if row.unit else "gemm", row.format.name,
                partial(call, row, size.n), reference, size.n, size.repeats, row.rounding.name,
                bits_of(row.rounding, row.format), True, row.data, kind=row.kind,
            )
        for unit, block in [*SCALED.items()][: 1 if quick else None]:
            whole = _whole_blocks(size.n, block)
            yield TimedCase(
                f"gemm {unit}", block, partial(_scaled, unit, block, whole),
                _blas(np.float32, whole), whole, size.repeats, flags=True, data="normal",
                kind="blocks",
            )
        for kind, fmt in (("blas-f32", BINARY32), ("blas-f64", BINARY64)):
            yield TimedCase(
                "gemm BLAS", fmt.name, partial(_blas, fmt.carrier, size.n), reference, size.n,
                size.repeats, data="normal", peer="numpy", kind=kind,
            )
