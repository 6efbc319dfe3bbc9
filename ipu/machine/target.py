"""Targets: the machines that a device can be, each number with its evidence.

Sources disagree on the clock of Mk2: 1.33 GHz is quoted, 1.325 GHz reproduces the published
249.7 TFLOPS and is followed. Costs computed from these numbers are a declared model, never promised
time. `HYPOTHETICAL` is no IPU: it is Mk2 with an AMP for bfloat16, so that BF16 can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fpsim.records.evidence import Evidence, Fact
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    F143,
    F152,
    Format,
    find_format,
    find_number_format,
)
from fpsim.records.units import MatrixUnit
from ipu.machine.instructions import (
    BFLOAT16_ONLY,
    EIGHT_UNITS,
    QUARTERS,
    SIXTEEN_UNITS,
    Instruction,
)

__all__ = [
    "BOW",
    "HYPOTHETICAL",
    "MK1",
    "MK2",
    "MK2_FP8",
    "REFERENCE",
    "TARGETS",
    "Target",
    "find_target",
]


@dataclass(frozen=True)
class Target:
    """A machine: tiles, worker threads, clock, memory, matrix instructions, formats.

    Units     clock in Hz, memory in bytes per tile, exchange in bytes per cycle and tile.

    >>> round(MK2.peak("binary16") / 1e12, 1), round(MK2.peak("binary32") / 1e12, 1)
    (249.7, 62.4)
    """

    name: str
    tiles: Fact
    workers: Fact
    clock: Fact
    tile_memory: Fact
    exchange: Fact
    instructions: tuple[Instruction, ...]
    formats: tuple[Format, ...]
    note: str = ""
    #: Products in blocks run through the units of other makers.
    takes_blocks: bool = False

    @property
    def units(self) -> tuple[str, ...]:
        """Names of the matrix units, without presets."""
        return tuple(dict.fromkeys(i.unit.name for i in self.instructions))

    def peak(self, inputs: Format | str, partials: Format | str | None = None) -> float:
        """Floating-point operations per second for inputs of that format, with those partials.

        >>> MK2.peak("binary16") / MK2.peak("binary16", BINARY32)
        2.0
        """
        fmt = find_format(inputs)
        sums = None if partials is None else find_format(partials, "partials")
        fitting = [i for i in self.instructions if fmt in i.unit.inputs]
        rates = [i.macs.value for i in fitting if sums in (None, i.unit.partials)]
        if not rates:
            with_partials = f" with {sums} partials" if sums else ""
            raise ValueError(
                f"target={self.name} has no unit for {fmt}{with_partials}; "
                f"it has {', '.join(self.units)}"
            )
        rate: float = 2 * self.tiles.value * self.clock.value * max(rates)
        return rate

    def instruction(self, unit: MatrixUnit, leaves: Format | str | None = None) -> Instruction:
        """The widest instruction of a unit, and of those one that leaves this format if any does.

        Raises    ValueError that says which units there are, and who has this one.
        """
        return max(self.forms(unit, leaves), key=lambda i: i.macs.value)

    def forms(self, unit: MatrixUnit, leaves: Format | str | None = None) -> list[Instruction]:
        """The instructions of a unit, of 8 or 16 columns, that leave this format if any does.

        Raises    as `instruction`.
        """
        base = unit.name.partition(".")[0]
        fitting = [i for i in self.instructions if i.unit.name == base]
        if not fitting:
            raise ValueError(f"target={self.name} has no unit {base}; {self._instead(base)}")
        wanted = unit.partials if leaves is None else find_number_format(leaves, "leaves")
        return [i for i in fitting if i.leaves == wanted] or fitting

    def check_blocks(self, recipe: object) -> None:
        """Refuse a recipe where no unit takes blocks.

        Raises    ValueError.
        """
        if not self.takes_blocks:
            raise ValueError(
                f"recipe={recipe} with target={self.name}, which has no unit that takes blocks; "
                "use target='hypothetical', whose products in blocks run through the units of "
                "other makers"
            )

    def _instead(self, base: str) -> str:
        others = [t.name for t in TARGETS.values() if base in t.units]
        advice = f"choose target {' or '.join(others)}" if others else (
            "units of other machines run with fpsim.linalg.matmul"
        )
        return f"use one of {', '.join(self.units)}, or {advice}"


_DOC, _INF = Evidence.DOCUMENTED, Evidence.INFERRED
_WORKERS = Fact(6, _INF, "poplibs; Saghetti0/graphcore-ipu-research (CTXT_WORKERS)")
_EXCHANGE = Fact(4, _INF, "8 TB/s over the tiles; 32-bit exchange bus (reverse-engineered)")

MK1 = Target(
    name="mk1",
    tiles=Fact(1216, _DOC, "poplibs tools and tests (GC2)"),
    workers=_WORKERS,
    clock=Fact(1.6e9, _INF, "Jia et al., arXiv 1912.03413, as cited by others"),
    tile_memory=Fact(256 * 1024, _DOC, "Jia et al., arXiv 1912.03413"),
    exchange=_EXCHANGE,
    instructions=EIGHT_UNITS,
    formats=(BINARY16, BINARY32),
)
MK2 = Target(
    name="mk2",
    tiles=Fact(1472, _DOC, "GC200 data"),
    workers=_WORKERS,
    clock=Fact(1.325e9, _INF, "reproduces the published 249.7 TFLOPS"),
    tile_memory=Fact(624 * 1024, _INF, "about 900 MB over 1472 tiles"),
    exchange=_EXCHANGE,
    instructions=(*EIGHT_UNITS, *SIXTEEN_UNITS),
    formats=(BINARY16, BINARY32),
)
BOW = replace(MK2, name="bow", clock=Fact(1.85e9, _DOC, "poplibs, tools/sparse_matmul.cpp"))
MK2_FP8 = replace(
    MK2,
    name="mk2-fp8",
    instructions=(*MK2.instructions, *QUARTERS),
    formats=(BINARY16, BINARY32, F143, F152),
)
HYPOTHETICAL = replace(
    MK2,
    name="hypothetical",
    instructions=(*MK2.instructions, *BFLOAT16_ONLY),
    formats=(BINARY16, BINARY32, BFLOAT16),
    note="not an IPU feature: bfloat16 in the AMP",
    takes_blocks=True,
)
REFERENCE = replace(
    MK2,
    name="reference",
    formats=(BINARY16, BINARY32, BINARY64),
    note="not an IPU feature: binary64 by the processor's own arithmetic, as a reference",
)


#: Every target by name.
TARGETS: dict[str, Target] = {t.name: t for t in (MK1, MK2, BOW, MK2_FP8, HYPOTHETICAL, REFERENCE)}


def find_target(name: str | Target) -> Target:
    """The target of that name.

    >>> find_target("bow").tiles.value
    1472
    """
    if isinstance(name, Target):
        return name
    if not isinstance(name, str) or name not in TARGETS:
        raise ValueError(f"target={name!r} is not known; use one of {', '.join(TARGETS)}")
    return TARGETS[name]
