"""A product's row in the ledger: its arrays, its unit's instruction, its price.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fpsim.array import Array
from fpsim.records.evidence import Evidence, Fact
from fpsim.records.units import MatrixUnit
from fpsim.state.processor import usual_arithmetic
from ipu.machine.choice import RULE
from ipu.machine.cost.ledger import LedgerRow
from ipu.machine.cost.planner import (
    LOAD_BYTES,
    SPLIT,
    Planner,
    Price,
    ProductMemory,
    exchanged,
    multiply_adds,
    price,
    split_price,
)
from ipu.machine.cost.work import Work
from ipu.machine.instructions import Instruction
from ipu.machine.target import Target

__all__ = ["WorkOf", "ledger_row"]

COLUMNS = Fact(
    "8 or 16, whichever takes fewer cycles", Evidence.DOCUMENTED, "poplibs ConvVertexType.cpp"
)

#: A product's work, once its instruction and the shape of the result are known.
WorkOf = Callable[[Instruction, tuple[int, ...]], Work]


@usual_arithmetic
def ledger_row(
    verb: str, unit: MatrixUnit, operands: tuple[Array, Array], product: Array, work_of: WorkOf,
    target: Target, planner: Planner, parts: int = 1,
) -> LedgerRow:
    """The cost of the product on the target, with K split over `parts` groups of tiles.

    Of the unit's instructions the cheapest is taken, of equal ones the widest: sixteen columns
    halve the passes but load twice the weights, so small products are cheaper with eight.
    """
    left, right = map(_bytes, operands)
    memory = ProductMemory(left, right, product.size * unit.partials.bits // 8)
    tiles = target.tiles.value // parts

    def priced(instruction: Instruction) -> tuple[Instruction, Work, Price]:
        work = work_of(instruction, product.shape)
        share = work._replace(passes=-(-work.passes // parts))
        cost = price(share, memory.share(parts), instruction, target, planner, tiles)
        return instruction, work, cost

    # The only pass may leave the result's format; else the last partial is cast afterwards.
    single_pass = work_of(target.instruction(unit), product.shape).passes == 1 == parts
    forms = target.forms(unit, product.format if single_pass else None)
    instruction, work, cost = min(map(priced, forms), key=lambda p: (p[2].cycles, -p[0].columns))
    split = cost.cycles
    if parts == 1:
        split = min(split_price(work_of(i, product.shape), memory, i, target, planner)
                    for i in forms)
    wires = exchanged(memory.partials, parts, parts * cost.tiles, target)
    return LedgerRow(
        verb=verb, unit=unit.name, instruction=instruction.name,
        shape=" · ".join(_shape(x) for x in operands) + " → " + _shape(product),
        tiles=parts * cost.tiles, passes=work.passes, weight_loads=cost.weight_loads,
        steps=cost.steps, macs=multiply_adds(work, instruction), useful=work.useful,
        cycles=cost.cycles + wires.cycles, operand_bytes=left + right,
        result_bytes=_bytes(product), partial_bytes=parts * memory.partials,
        exchange_bytes=wires.bytes, temporary_bytes=parts * cost.tiles * cost.temporary,
        split_saving=max(cost.cycles - split, 0),
        operand_cycles=-(-cost.operands // target.exchange.value),
        facts=tuple(_facts(instruction, target, planner, parts)),
    )


def _bytes(x: Array) -> int:
    return x.size * x.format.bits // 8


def _shape(x: Array) -> str:
    return "×".join(map(str, x.shape))


def _facts(
    instruction: Instruction, target: Target, planner: Planner, parts: int
) -> Iterator[tuple[str, Fact]]:
    yield from instruction.facts.items()
    yield "bytes of weights loaded per cycle", LOAD_BYTES[planner.use_128bit_conv_unit_load]
    yield f"{target.name}, tiles", target.tiles
    yield f"{target.name}, bytes of memory per tile", target.tile_memory
    if parts > 1:
        yield f"{target.name}, bytes of exchange per cycle and tile", target.exchange
    yield from planner.facts.items()
    yield "split over tiles", SPLIT
    yield "columns of an instruction", COLUMNS
    yield "choice of the unit", RULE
