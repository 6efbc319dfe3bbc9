"""How fast binary32 becomes each format: against np.copyto of the same array in the same run.

float32 carrier in and out, preallocated; beside it float64 input (against a float64 copy), packed
output, and other tools where they are installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.context import Context
from fpsim.convenience import round_to
from fpsim.elementwise.codes import pack
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, CATALOGUE, E4M3FN, E5M2, Format
from fpsim.records.rounding import MODES, RNE, RTP, RTZ, SR, Rounding
from ipu.experiments.bench.data import DATA, make
from ipu.experiments.bench.peers import is_alone, rounding_peers
from ipu.experiments.bench.timing import Call, Size, TimedCase, copy

__all__ = ["FORMATS", "cases", "stochastic"]

FORMATS = [
    *(f for f in CATALOGUE.values() if isinstance(f, Format) and f.carrier == np.float32),
    Format.custom(6, 10),
]
FORMATS.remove(BINARY32)  # a binary32 number is one already


def stochastic() -> tuple[SR, ...]:
    """SR with 4, 13 and the most random bits."""
    return SR(4), SR(13), SR()


def _choices(quick: bool) -> tuple[list[Format], list[Rounding]]:
    if quick:
        return [BINARY16, E4M3FN], [RNE, RTP, SR(13)]
    return FORMATS, [*MODES.values(), *stochastic()]


def _call(fmt: Format, rounding: Rounding, flags: bool, x: Any, out: Any) -> Call:
    if flags:
        context = Context(fmt, rounding=rounding)
        return lambda: context.array(x, out=out)
    return lambda: round_to(x, fmt, rounding, out=out)


def bits_of(rounding: Rounding, fmt: Format) -> int | None:
    """Random bits of a stochastic mode."""
    return rounding.random_bits(fmt) if rounding.stochastic else None


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Formats x modes x data, without and with flags; then the rows of their own."""
    formats, roundings = _choices(quick)
    out = np.empty(size.n, np.float32)
    for data in DATA:
        x = make(data, size.n)
        reference = copy(x, out)
        for fmt in formats:
            for rounding in roundings:
                for flags in (False, True):
                    yield TimedCase(
                        "round", fmt.name, partial(_call, fmt, rounding, flags, x, out), reference,
                        size.n, size.repeats, rounding.name, bits_of(rounding, fmt), flags, data,
                    )
        yield from _packed(x, out, size, data, formats)
        yield from _peers(x, out, size, data, formats)
    yield from _wide(size, [BINARY16] if quick else [BINARY16, BINARY32, BFLOAT16, E4M3FN])


def _packed(
    x: NDArray[Any], out: NDArray[Any], size: Size, data: str, formats: list[Format]
) -> Iterator[TimedCase]:
    """Rounding and then packing into the format's storage."""

    def prepare(fmt: Format) -> Call:
        return lambda: pack(round_to(x, fmt, out=out), fmt)

    for fmt in formats:
        if fmt in (BINARY16, BFLOAT16, E4M3FN, E5M2):
            yield TimedCase(
                "round packed", fmt.name, partial(prepare, fmt), copy(x, out), size.n,
                min(size.repeats, 3), data=data,
            )


def _peers(
    x: NDArray[Any], out: NDArray[Any], size: Size, data: str, formats: list[Format]
) -> Iterator[TimedCase]:
    part = size.peer()
    for fmt in formats:
        for rounding in (RNE, RTZ, RTP, SR(13)):
            for peer, prepare in rounding_peers(fmt, rounding):
                # Only gfloat says how many random bits it takes.
                bits = bits_of(rounding, fmt) if peer.startswith("gfloat") else None
                yield TimedCase(
                    "round", fmt.name, partial(prepare, x[: part.n], out[: part.n]), copy(x, out),
                    part.n, part.repeats, rounding.name, bits, data=data, peer=peer,
                    reference_n=size.n, alone=is_alone(peer),
                )


def _wide(size: Size, formats: list[Format]) -> Iterator[TimedCase]:
    x = make("mixed", size.n).astype(np.float64)
    x *= 1 + 2.0**-40
    target, out = np.empty_like(x), np.empty(size.n, np.float32)
    for fmt in formats:
        for rounding in (RNE, RTP, SR(13)):
            yield TimedCase(
                "round float64", fmt.name, partial(_call, fmt, rounding, False, x, out),
                copy(x, target), size.n, size.repeats, rounding.name, bits_of(rounding, fmt),
            )
