"""Hashes of what each kernel gives on 10^5 inputs; `tests.processors` runs them elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.context import Context
from fpsim.elementwise import compare, integers
from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.enclosures import FUNCTIONS
from fpsim.elementwise.remainder import remainder
from fpsim.kernels.random.xoroshiro import xoroshiro_lanes
from fpsim.linalg import rounded_matmul
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, E4M3FN, Format
from fpsim.records.rounding import RNE, RTN, RTO, RTP, SR, SR_EQUAL, Rounding
from fpsim.records.settings import Settings
from fpsim.records.units import find_unit
from fpsim.state.draws import Draw
from tests.fpsim.in_partials import matmul

N = 100_000
OPERANDS = {"convert": 1, "round_to_integral": 1, "sqrt": 1, "fma": 3}

#: What the quick tier runs: each way to an exact result, lanes of both widths, random words.
QUICK: list[tuple[str, Format, Rounding]] = [
    ("convert", BINARY16, RNE), ("add", BINARY16, SR(13)), ("multiply", BFLOAT16, RTP),
    ("divide", BINARY16, RTO), ("sqrt", BINARY32, RNE), ("fma", BINARY32, RNE),
]

#: Of these the quick tier also runs the path without flags per element.
FAST = [("divide", RTO)]

FULL = [
    (operation, fmt, rounding)
    for operation in ("convert", "add", "subtract", "multiply", "divide", "sqrt", "fma")
    for fmt in (BINARY16, BINARY32, BFLOAT16, E4M3FN)
    for rounding in (RNE, RTP, RTO, SR_EQUAL, SR(4), SR(13, "even"), SR())
]


def digest(*arrays: NDArray[Any]) -> str:
    """Hash of the bytes of arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).view(np.uint8).tobytes())
    return total.hexdigest()


def values(fmt: Format, seed: int) -> NDArray[Any]:
    """Codes at random: every exponent, subnormals, infinities, NaN payloads."""
    codes = np.random.default_rng([1, seed]).integers(0, fmt.n_codes, N)
    return from_codes(codes, fmt)


def inputs(operation: str, fmt: Format) -> list[NDArray[Any]]:
    """Operands; those of a conversion are any binary64 near the format's range."""
    if operation == "convert":
        rng = np.random.default_rng(2)
        exponents = rng.integers(fmt.emin - fmt.precision - 3, fmt.emax + 3, N)
        return [np.ldexp(rng.uniform(-2, 2, N), exponents)]
    return [values(fmt, seed) for seed in range(OPERANDS.get(operation, 2))]


def hashes(everything: bool) -> Iterator[tuple[str, str]]:
    """Name of a kernel and the hash of its values and flags."""
    for operation, fmt, rounding in FULL if everything else QUICK:
        operands, marks = inputs(operation, fmt), np.zeros(N, np.uint8)
        settings = Settings(fmt, rounding)
        out, _ = apply(
            operation,
            operands,
            settings,
            element_flags=marks,
            bits=Draw(np.uint64(5), np.uint64(3), None),
        )
        yield f"{operation} {fmt} {rounding}", digest(out, marks)
        if everything or (operation, rounding) in FAST:
            out, flags = apply(
                operation, operands, settings, bits=Draw(np.uint64(5), np.uint64(3), None)
            )
            yield f"{operation} {fmt} {rounding} fast", digest(out, np.array([flags]))
    if everything:
        yield from whole_numbers()
    context = Context(BINARY32)
    x = context.wrap(values(BINARY32, 0))
    for name in FUNCTIONS:
        context.clear_flags()
        result = getattr(context, name)(x)
        yield f"{name} binary32", digest(result.values, np.array([int(context.flags)]))


def whole_numbers() -> Iterator[tuple[str, str]]:
    """The same of kernels that compute with whole numbers alone."""
    x, y = values(BINARY32, 0), values(BINARY32, 1)
    marks = np.zeros(N, np.uint8)
    settings = Settings(BINARY32)
    out, marks[...] = remainder(x, y, settings, nearest=True)
    yield "ieee_remainder binary32", digest(out, marks)
    yield "less binary32", digest(*compare.compare("less", x, y, settings, False))
    integral, _ = apply("round_to_integral", (x,), settings)
    yield "to int32 binary32", digest(*integers.to_integers(x, integral, np.dtype(np.int32)))
    wide = np.random.default_rng(3).integers(-(2**63), 2**63, N)
    yield "from int64", digest(integers.to_binary64(wide))
    yield "xoroshiro128aox", digest(xoroshiro_lanes(1, 2, N)[0])
    yield "codes binary16", digest(to_codes(values(BINARY16, 0), BINARY16))


#: Engines of matrix units: windowed, exact with one rounding per call, fused per term.
QUICK_UNITS = ["AMP_F16_F32", "AMP_F16_F16.exact", "AMP_F32_F32"]
FULL_UNITS = [
    *QUICK_UNITS, "H100_F16_F16", "AMP_F16_F16", "AMP_F16_F32.exact", "AMP_F16_F32.sticky",
    "AMP_F16_F32.sequential_f32", "AMP_F8_F16", "V100_F16_F32", "A100_TF32_F32", "ADA_E4M3_F16",
    "H100_F16_F32", "SLIC_F16_F16", "VMAC_F16_F32",
]


def products(everything: bool) -> Iterator[tuple[str, str]]:
    """Name of a matrix unit and the hash of two products: ordinary numbers, and all codes.

    Rows with special operands are computed with whole numbers alone: the full tier has all codes.
    """
    for name in FULL_UNITS if everything else QUICK_UNITS:
        fmt = find_unit(name).inputs[0]
        rng, context = np.random.default_rng(4), Context(fmt)
        operands = [rng.standard_normal(shape) for shape in ((61, 96), (96, 75))]
        results = [matmul(*(context.array(x) for x in operands), name)]
        if everything:
            codes = [rng.integers(0, fmt.n_codes, x.shape) for x in operands]
            results.append(matmul(*(context.wrap(from_codes(c, fmt)) for c in codes), name))
        flags = [int(context.flags), *(int(result.context.flags) for result in results)]
        yield name, digest(*(result.values for result in results), np.array(flags))


def rounded(everything: bool) -> Iterator[tuple[str, str]]:
    """Name and hash of products rounded after every operation."""
    modes = [RNE, RTN, SR(13, subnormal_bits=16)] if everything else [RTN]
    for fmt in (BINARY16, BFLOAT16, BINARY32) if everything else (BINARY16,):
        for mode in modes:
            for fused in (False, True) if everything else (False,):
                context = Context(fmt, rounding=mode, seed=3)
                rng = np.random.default_rng(5)
                a, b = (context.array(rng.standard_normal(s)) for s in ((21, 40), (40, 45)))
                result = rounded_matmul(a, b, context=context, fused=fused)
                flags = np.array([int(context.flags)])
                yield f"rounded {fmt} {mode!r} {fused}", digest(result.values, flags)


def everything_here(everything: bool) -> dict[str, str]:
    """All of the above."""
    return dict([*hashes(everything), *products(everything), *rounded(everything)])
