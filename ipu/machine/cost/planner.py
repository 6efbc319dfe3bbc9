"""Cost of a product: tiles, weight loads, steps, cycles. A declared model, never promised time.

Modelled                                     evidence
multiply-adds per cycle and tile             DOCUMENTED  of the instruction
a load of weights before each pass           DOCUMENTED  poplibs, PerformanceEstimation.hpp
split over tiles, the cheapest one           ASSUMED     positions × columns; K stays on a tile
steps when temporary memory is short         ASSUMED     each step loads the weights again; where
                                                         none fits, the smallest split is taken
exchange, 4 bytes per cycle and tile         INFERRED    of the target

A product is `positions` × `blocks` of columns that share weights × `passes` over K; every pass of
a block takes the instruction's cycles at every position. Left out: the start of workers, the
pipeline's depth, rearrangement, the cast of a result, addition in a reduction over tiles.

Source    docs/semantics.md §5; poplibs, PerformanceEstimation.hpp and ConvPlan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.records.evidence import Evidence, Fact
from ipu.machine.cost.work import Work
from ipu.machine.instructions import Instruction
from ipu.machine.target import Target

__all__ = [
    "LOAD_BYTES", "SPLIT", "Exchange", "Planner", "Price", "ProductMemory", "exchanged",
    "multiply_adds",
    "price", "split_price",
]

#: Bytes of weights that a tile loads per cycle, by the option use_128bit_conv_unit_load.
LOAD_BYTES = {
    False: Fact(8, Evidence.DOCUMENTED, "Tile Vertex Instruction Set: ld64putcs"),
    True: Fact(16, Evidence.DOCUMENTED, "Tile Vertex Instruction Set: ld128putcs"),
}
#: Stands for no temporary memory at all.
_LEAST_SHARE = 1e-9
SPLIT = Fact(
    "positions × columns over the tiles, fewest cycles", Evidence.ASSUMED, "docs/semantics.md §5"
)


class ProductMemory(NamedTuple):
    """Bytes of a product's operands and partials."""

    left: int
    right: int
    partials: int

    def share(self, parts: int) -> ProductMemory:
        """Bytes of one of `parts` ranges of K: its share of the operands, and all partials."""
        return ProductMemory(-(-self.left // parts), -(-self.right // parts), self.partials)


@dataclass(frozen=True)
class Planner:
    """Choices of the cost model, named as poplibs names them.

    available_memory_proportion   of a tile's memory, for the temporary data of a product: with
                                  less of it the product runs in more steps, one after the other.
    use_128bit_conv_unit_load     weights are loaded 16 bytes at a time, not 8.

    >>> from ipu.machine import Device
    >>> for share in (0.6, 0.001):
    ...     device = Device(planner=Planner(available_memory_proportion=share))
    ...     x = device.from_host([[1.0] * 512] * 512, "binary16")
    ...     y = device.matmul(x, x)
    ...     print(share, device.ledger.last.steps, device.ledger.last.cycles)
    0.6 1 3968
    0.001 23 26496
    """

    available_memory_proportion: float = 0.6
    use_128bit_conv_unit_load: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.available_memory_proportion <= 1:
            raise ValueError(
                f"available_memory_proportion={self.available_memory_proportion!r} is out of "
                "range; use more than 0 and at most 1"
            )

    @classmethod
    def of_share(cls, share: float) -> Planner:
        """With that share of memory; 0 is the least that the model knows, one position a step."""
        return cls(max(share, _LEAST_SHARE))

    @property
    def facts(self) -> dict[str, Fact]:
        """What the share of memory means is our model."""
        assumed = Evidence.ASSUMED, "less of it, more steps: docs/semantics.md §5"
        return {
            "share of memory for temporary data": Fact(self.available_memory_proportion, *assumed)
        }


class Price(NamedTuple):
    """What a product costs; all but the tiles are those of the busiest one.

    temporary    bytes of its part of the operands and partials, in one of the steps.
    operands     bytes of its part of the operands, in all steps.
    """

    tiles: int
    weight_loads: int
    steps: int
    cycles: int
    temporary: int
    operands: int


def price(
    work: Work, memory: ProductMemory, instruction: Instruction, target: Target,
    planner: Planner = Planner(), tiles: int | None = None,
) -> Price:
    """The cheapest split of a product over at most so many tiles (default: all of the target).

    Of those that need no more temporary memory than the planner allows; if none, the smallest.

    >>> from ipu.machine.target import MK2
    >>> from fpsim.records.units import find_unit
    >>> wide = MK2.instruction(find_unit("AMP_F16_F16"))  # 64 cycles to load, 4 per position
    >>> price(Work(100, 2, 1, 51200), ProductMemory(6400, 1024, 3200), wide, MK2, tiles=1)
    Price(tiles=1, weight_loads=2, steps=1, cycles=928, temporary=10624, operands=7424)
    """
    if multiply_adds(work, instruction) == 0:
        return Price(0, 0, 0, 0, 0, 0)
    positions, blocks = _splits(work, tiles or target.tiles.value)
    down, across = -(-work.positions // positions), -(-work.blocks // blocks)
    operands = memory.left / down + memory.right / across
    temporary = operands + memory.partials / across / down
    budget = planner.available_memory_proportion * target.tile_memory.value
    steps = np.clip(np.ceil(temporary / budget), 1, positions)
    loads = blocks * work.passes * steps * (instruction.weights.value > 0)
    load = instruction.weights.value / LOAD_BYTES[planner.use_128bit_conv_unit_load].value
    cycles = np.ceil(blocks * work.passes * positions * instruction.cycles + loads * load)
    used, at_once = down * across, np.ceil(temporary / steps)
    # Where no split fits into its share of memory, the smallest is taken (ASSUMED).
    excess = np.where(at_once > np.ceil(budget), at_once, 0)
    best = np.lexsort((used, cycles, excess))[0]
    columns = used, loads, steps, cycles, at_once, np.ceil(operands)
    return Price(*(int(of_split[best]) for of_split in columns))


def _splits(work: Work, tiles: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions and blocks of the busiest tile, for every number of tiles side by side."""
    most = min(tiles, work.positions * work.blocks)
    across = np.arange(1, min(most, work.blocks) + 1)
    down = np.minimum(most // across, work.positions)
    return -(-work.positions // down), -(-work.blocks // across)


def split_price(
    work: Work, memory: ProductMemory, instruction: Instruction, target: Target,
    planner: Planner = Planner(),
) -> int:
    """Cycles of the cheapest split of K over 1, 2, 4 … groups of tiles, with its reduction.

    poplibs splits K where that is cheaper (DOCUMENTED: ConvPlan); where it does so for a product is
    not known (ASSUMED: always).

    >>> from ipu.machine.target import MK2
    >>> from fpsim.records.units import find_unit
    >>> wide = MK2.instruction(find_unit("AMP_F16_F16"))
    >>> tall = Work(16, 64, 1, 16384), ProductMemory(32768, 32768, 512)
    >>> price(*tall, wide, MK2).cycles, split_price(*tall, wide, MK2)
    (4352, 84)
    """
    costs, parts = [], 1
    while parts <= min(max(work.passes, 1), target.tiles.value):
        share = work._replace(passes=-(-work.passes // parts))
        cost = price(
            share, memory.share(parts), instruction, target, planner, target.tiles.value // parts
        )
        wires = exchanged(memory.partials, parts, parts * cost.tiles, target)
        costs.append(cost.cycles + wires.cycles)
        parts *= 2
    return min(costs)


def multiply_adds(work: Work, instruction: Instruction) -> int:
    """Multiply-adds of full passes over full blocks, on all tiles."""
    lanes = instruction.columns * instruction.unit.channels
    return work.positions * work.passes * work.blocks * lanes


class Exchange(NamedTuple):
    """Bytes over the wires between tiles, and the cycles of the tile that receives most."""

    bytes: int
    cycles: int


def exchanged(partials: int, parts: int, tiles: int, target: Target) -> Exchange:
    """Reduction of so many bytes of partials that lie in `parts` copies on `tiles` tiles.

    Every tile adds its share of the outputs and has one of the copies in its own memory.

    >>> from ipu.machine.target import MK2
    >>> exchanged(4096, 4, 64, MK2)
    Exchange(bytes=12288, cycles=48)
    """
    if parts < 2 or tiles == 0:
        return Exchange(0, 0)
    received = (parts - 1) * -(-partials // tiles)
    return Exchange((parts - 1) * partials, -(-received // target.exchange.value))
