"""Every operand of 16-bit formats through the core, each result judged by the definition.

The judge (`fpsim.judge.verify.definition`) shares no code with the core. What is judged is the path
with flags per element; the fast path without them must give the same bits and their union.

Source    IEEE 754-2019 §4.3 and §7, applied to all 2**32 pairs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply
from fpsim.judge.verify.definition import MODES, Grid, judge
from fpsim.judge.verify.report import VerificationReport
from fpsim.records.flags import Flags
from fpsim.records.formats import BFLOAT16, BINARY16, CATALOGUE, Format
from fpsim.records.settings import Settings
from fpsim.state.threads import get_threads

__all__ = ["OPERATIONS", "verify", "verify_pairs", "verify_singles"]

PAIRS = ("add", "subtract", "multiply", "divide")
SINGLES = ("sqrt", "round_to_integral", "convert")
OPERATIONS = (*PAIRS, *SINGLES)

INFINITY, NAN = 0x7F800000, 0x7FC00000


def all_values(fmt: Format) -> NDArray[np.float32]:
    """The carriers of all 2**16 codes, in order, without the core."""
    codes = np.arange(1 << 16, dtype=np.uint32)
    if fmt == BFLOAT16:
        return (codes << np.uint32(16)).view(np.float32)
    body, sign = codes & 0x7FFF, (codes & 0x8000) << np.uint32(16)
    # 2**112 takes binary16's bias of 15 to binary32's of 127, also for subnormals; exactly.
    value = ((body << np.uint32(13)).view(np.float32) * np.float32(2.0**112)).view(np.uint32)
    special = INFINITY | (body << np.uint32(13))
    bits: NDArray[np.uint32] = np.where(body >= 0x7C00, special, value) | sign
    return bits.view(np.float32)


def grid_of(fmt: Format, settings: Settings, operation: str) -> Grid:
    """What the judge must know of a format and of the policies."""
    largest = int(np.float32(fmt.max).view(np.uint32))
    beyond = {"infinity": INFINITY, "keep": INFINITY, "saturate": largest, "nan": NAN}
    assert settings.overflow is not None
    assert settings.infinite_input is not None
    integral = operation == "round_to_integral"
    return Grid(
        precision=fmt.precision,
        emin=fmt.precision - 1 if integral else fmt.emin,
        largest=fmt.max,
        beyond=beyond[settings.overflow],
        infinite=beyond[settings.infinite_input],
        infinite_flags=0 if settings.infinite_input == "keep" else 5,
        nan=NAN if fmt.has_nan else largest,
        nan_flags=0 if fmt.has_nan else 16,
        signed_zero=fmt.has_negative_zero,
        has_tiny=not integral,
    )


class _Row:
    """One call of the core and of the judge; each thread has its own arrays."""

    def __init__(self, operation: str, settings: Settings, x: NDArray[np.float32]) -> None:
        self.operation, self.settings, self.x = operation, settings, x
        grid = grid_of(settings.format, settings, operation)
        judged = "convert" if operation == "round_to_integral" else operation
        self.judge = judge(
            judged, settings.rounding.name, grid, tiny_before=settings.tininess == "before"
        )
        self.room = threading.local()

    def __call__(self, *others: NDArray[np.float32]) -> VerificationReport:
        room, x = self.room, self.x
        if not hasattr(room, "got"):
            room.got, room.fast = np.empty_like(x), np.empty_like(x)
            room.flags, room.wrong = np.empty(x.shape, np.uint8), np.empty(x.shape, np.bool_)
        got, fast, element_flags, wrong = room.got, room.fast, room.flags, room.wrong
        operands = (x, *others)
        apply(self.operation, operands, self.settings, out=got, element_flags=element_flags)
        _, flags = apply(self.operation, operands, self.settings, out=fast)
        report = VerificationReport("", "results", x.size)
        mismatches = self.judge(x, others[0] if others else x, got, element_flags, wrong)
        if mismatches:
            report.fail(
                mismatches, self._describe(operands, got, element_flags, np.flatnonzero(wrong))
            )
        if flags != np.bitwise_or.reduce(element_flags) or not np.array_equal(
            _bits(fast), _bits(got)
        ):
            second = f" with {float(others[0][0])!r}" if others else ""
            report.fail(1, [f"  {self.operation}{second}: the path without element flags differs"])
        return report

    def _describe(
        self, operands: tuple[NDArray[np.float32], ...], got: NDArray[np.float32],
        element_flags: NDArray[np.uint8], wrong: NDArray[np.intp],
    ) -> Iterator[str]:
        for i in wrong:
            shown = " ".join(repr(float(o[i if o.size > 1 else 0])) for o in operands)
            raised = "|".join(Flags(int(element_flags[i])).names) or "none"
            yield f"  operands {shown}  got {float(got[i])!r} ({_bits(got)[i]:08X})  flags {raised}"


def _bits(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    return values.view(np.uint32)


def verify_pairs(
    operation: str,
    settings: Settings,
    *,
    stride: int = 1,
    first: int = 0,
    watch: Callable[[int], None] = lambda done: None,
) -> VerificationReport:
    """All first operands with every `stride`-th second one; `watch(n)` follows n results."""
    values = all_values(settings.format)
    total = VerificationReport(f"{operation} {settings.rounding}", "results")
    row = _Row(operation, settings, values)
    sample = range(first, values.size, stride)
    threads = get_threads()
    with ThreadPoolExecutor(threads) as pool:
        rows = iter(sample)
        while batch := list(islice(rows, 8 * threads)):
            for report in pool.map(lambda k: row(values[k : k + 1]), batch):
                total.include(report)
                watch(report.checked)
    return total


def verify_singles(operation: str, settings: Settings, source: Format) -> VerificationReport:
    """All 2**16 values of a source format through one operation into the format of the settings."""
    report = _Row(operation, settings, all_values(source))()
    where = source.name if source == settings.format else f"{source.name} to {settings.format.name}"
    report.label = f"{operation} {where} {settings.rounding}"
    return report


def check(operation: str, rounding: str) -> None:
    """Refuse an operation or a mode that has no definition here."""
    if operation not in OPERATIONS:
        raise ValueError(
            f"operation={operation!r} is not known; use one of {', '.join(OPERATIONS)}"
        )
    if rounding not in MODES:
        raise ValueError(f"rounding={rounding!r} is not known; use one of {', '.join(MODES)}")


def verify(
    operation: str,
    rounding: str = "RNE",
    *,
    tininess: str = "after",
    stride: int = 1,
    watch: Callable[[int], None] = lambda done: None,
) -> Iterator[VerificationReport]:
    """The reports of one operation and mode: binary16, and for conversions every pair of formats.

    Raises    ValueError for an operation or a mode that has no definition here.

    >>> print(*verify("sqrt", "RTZ"), sep="\\n")
    sqrt binary16 RTZ: 65536 results, 0 mismatches
    sqrt bfloat16 RTZ: 65536 results, 0 mismatches
    """
    check(operation, rounding)
    make = partial(Settings, rounding=rounding, tininess=tininess)  # type: ignore[arg-type]
    if operation in PAIRS:
        yield verify_pairs(operation, make(BINARY16), stride=stride, watch=watch)
        return
    targets = [f for f in CATALOGUE.values() if isinstance(f, Format) and f.carrier == np.float32]
    for source in (BINARY16, BFLOAT16):
        for target in targets if operation == "convert" else [source]:
            report = verify_singles(operation, make(target), source)
            watch(report.checked)
            yield report
