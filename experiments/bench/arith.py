"""How fast arrays of low-precision numbers are added, multiplied, …: against one np.copyto.

The reference copies one float32 array; an operation of two operands reads twice as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.context import Context
from fpsim.convenience import round_to
from fpsim.elementwise.apply import apply
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, E4M3FN, Format
from fpsim.records.rounding import MODES, RNE, RTP, SR, Rounding
from ipu.experiments.bench.data import DATA, make
from ipu.experiments.bench.peers import arithmetic_peers, is_alone
from ipu.experiments.bench.round import FORMATS, bits_of, stochastic
from ipu.experiments.bench.timing import Call, Size, TimedCase, copy

__all__ = ["SIZES", "cases"]

#: Arrays of 20 MB: two operands and a result are more than caches of a core hold. Their ratio to a
#: copy hardly changes from round to round.
SIZES = Size(n=5_000_000, repeats=3), Size(n=500_000, repeats=3)

OPERANDS = {"add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "fma": 3}


def _choices(quick: bool, data: str) -> tuple[list[str], dict[Format, list[Rounding]]]:
    """Operations, and the modes of each format: nearest even in every one, some in three.

    A kernel takes the format as an argument, so formats of few digits are timed on the data that is
    harder for them. Each operation in each mode is a kernel of its own, so all modes are for a sum
    and a product in binary16 alone (see `_modes`); all of everything would be ten times as many.
    """
    if quick:
        return ["add", "multiply"], {BINARY16: [RNE, SR(4)]} if data == "mixed" else {}
    modes: dict[Format, list[Rounding]] = {fmt: [RNE, RTP, SR()] for fmt in (BINARY16, BINARY32)}
    if data == "mixed":
        modes |= {fmt: [RNE] for fmt in FORMATS if fmt not in modes}
        modes |= {fmt: [RNE, RTP, SR()] for fmt in (BFLOAT16, E4M3FN)}
    return list(OPERANDS), modes


def _modes(quick: bool, operation: str, fmt: Format, few: list[Rounding]) -> list[Rounding]:
    if quick or fmt != BINARY16 or operation not in ("add", "multiply"):
        return few
    return [*MODES.values(), *stochastic()]


#: A format of float64 carriers.
WIDE = Format.custom(9, 26)


def _call(
    operation: str, fmt: Format, rounding: Rounding, flags: bool, carriers: Any, out: Any
) -> Call:
    context = Context(fmt, rounding=rounding)
    if not flags:
        return lambda: apply(operation, carriers, context.core.settings, out=out, track=False)
    method, operands = getattr(context, operation), [context.wrap(x) for x in carriers]
    return lambda: method(*operands, out=out)


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Operations x formats x modes x data, without and with flags; then other tools."""
    out = np.empty(size.n, np.float32)
    for data in DATA:
        operations, modes = _choices(quick, data)
        raw = [make(data, size.n, seed) for seed in range(3)]
        reference = copy(raw[0], out)
        for fmt, roundings in modes.items():
            held = [round_to(x, fmt) for x in raw]
            for operation in operations:
                carriers = held[: OPERANDS[operation]]
                if operation == "sqrt":
                    carriers = [np.abs(carriers[0])]
                for rounding in _modes(quick, operation, fmt, roundings):
                    for flags in (False, True):
                        yield TimedCase(
                            f"arith {operation}", fmt.name,
                            partial(_call, operation, fmt, rounding, flags, carriers, out),
                            reference, size.n, size.repeats, rounding.name,
                            bits_of(rounding, fmt), flags, data,
                        )
                part = size.peer()
                for peer, prepare in arithmetic_peers(operation, fmt) if data == "mixed" else ():
                    yield TimedCase(
                        f"arith {operation}", fmt.name,
                        partial(prepare, [x[: part.n] for x in carriers]), reference, part.n,
                        part.repeats, data=data, peer=peer, reference_n=size.n,
                        alone=is_alone(peer),
                    )
    yield from _wide(size)


def _wide(size: Size) -> Iterator[TimedCase]:
    """Operands in float64, against a copy of float64."""
    raw = [make("mixed", size.n, seed).astype(np.float64) for seed in range(2)]
    out = np.empty_like(raw[0])
    held = [round_to(x, WIDE) for x in raw]
    for operation in ("add", "multiply"):
        for flags in (False, True):
            yield TimedCase(
                f"arith64 {operation}", WIDE.name,
                partial(_call, operation, WIDE, RNE, flags, held, out), copy(raw[0], out), size.n,
                size.repeats, flags=flags,
            )
