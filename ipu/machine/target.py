"""Targets: the machines that a device can be, each number with its evidence.

Sources disagree on the clock of Mk2: 1.33 GHz is quoted, 1.325 GHz reproduces the published
249.7 TFLOPS and is followed. Costs made from these numbers are a declared model, never promised
time. `HYPOTHETICAL` is no IPU: it is Mk2 with an AMP for bfloat16, so that BF16 can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fpsim.evidence import Evidence, Fact
from fpsim.formats import BFLOAT16, BINARY16, BINARY32, F143, F152, Format

__all__ = ["BOW", "HYPOTHETICAL", "MK1", "MK2", "MK2_FP8", "TARGETS", "Target", "find_target"]


@dataclass(frozen=True)
class Target:
    """A machine: tiles, worker threads, clock, memory, and the formats it computes in.

    Units     clock in Hz, memory in bytes per tile, macs in multiply-adds per cycle and tile.

    >>> round(MK2.peak("binary16") / 1e12, 1), round(MK2.peak("binary32") / 1e12, 1)
    (249.7, 62.4)
    """

    name: str
    tiles: Fact
    workers: Fact
    clock: Fact
    tile_memory: Fact
    macs: dict[str, Fact]
    formats: tuple[Format, ...]
    note: str = ""

    def peak(self, inputs: str) -> float:
        """Floating-point operations per second of the matrix unit for inputs of that format."""
        rate: float = 2 * self.tiles.value * self.clock.value * self.macs[inputs].value
        return rate


_DOC, _INF, _ASSUMED = Evidence.DOCUMENTED, Evidence.INFERRED, Evidence.ASSUMED
_WORKERS = Fact(6, _INF, "poplibs; Saghetti0/graphcore-ipu-research (CTXT_WORKERS)")
_ASM = "poplibs, assembly of the convolution partials"
_RATIO = "units × multiply-adds per unit and cycle"

MK1 = Target(
    name="mk1",
    tiles=Fact(1216, _DOC, "poplibs tools and tests (GC2)"),
    workers=_WORKERS,
    clock=Fact(1.6e9, _INF, "Jia et al., arXiv 1912.03413, as cited by others"),
    tile_memory=Fact(256 * 1024, _DOC, "Jia et al., arXiv 1912.03413"),
    macs={
        "binary16": Fact(32, _DOC, "Tile Vertex ISA: f16v4hihoamp"),
        "binary32": Fact(8, _DOC, "Tile Vertex ISA: f32sisoamp"),
    },
    formats=(BINARY16, BINARY32),
)
MK2 = Target(
    name="mk2",
    tiles=Fact(1472, _DOC, "GC200 data"),
    workers=_WORKERS,
    clock=Fact(1.325e9, _INF, "reproduces the published 249.7 TFLOPS"),
    tile_memory=Fact(624 * 1024, _INF, "about 900 MB over 1472 tiles"),
    macs={
        "binary16": Fact(64, _DOC, f"{_ASM}: f16v4hihov4amp; 32 with binary32 partials"),
        "binary32": Fact(16, _DOC, f"{_ASM}: f32sisov2amp"),
    },
    formats=(BINARY16, BINARY32),
)
BOW = replace(MK2, name="bow", clock=Fact(1.85e9, _DOC, "poplibs, tools/sparse_matmul.cpp"))
MK2_FP8 = replace(
    MK2,
    name="mk2-fp8",
    macs=MK2.macs | {f.name: Fact(128, _INF, f"f8v8hihov4amp: {_RATIO}") for f in (F143, F152)},
    formats=(BINARY16, BINARY32, F143, F152),
)
HYPOTHETICAL = replace(
    MK2,
    name="hypothetical",
    macs=MK2.macs | {"bfloat16": Fact(64, _ASSUMED, "as binary16; not an IPU feature")},
    formats=(BINARY16, BINARY32, BFLOAT16),
    note="not an IPU feature: bfloat16 in the AMP",
)

#: Every target by name.
TARGETS: dict[str, Target] = {t.name: t for t in (MK1, MK2, BOW, MK2_FP8, HYPOTHETICAL)}


def find_target(name: str | Target) -> Target:
    """The target of that name.

    >>> find_target("bow").tiles.value
    1472
    """
    if isinstance(name, Target):
        return name
    if name not in TARGETS:
        raise ValueError(f"target={name!r} is not known; use one of {', '.join(TARGETS)}")
    return TARGETS[name]
