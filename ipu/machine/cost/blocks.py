"""The cost of a product in blocks: that of an instruction as fast as its elements are narrow.

Modelled                                     evidence
multiply-adds per cycle and tile             ASSUMED     of the target's fastest binary16
                                             instruction, times 16 / bits of the wider element
16 columns, their weights in that many bytes ASSUMED     as of the target's own instructions
bytes of codes and scales                    DOCUMENTED  of the block: as they are stored

The machine that such a product costs is the target with this instruction; no maker's cycles are
meant. Left out, beside what `ipu.machine.cost.planner` leaves out: quantising, as casts are.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from fpsim.records.blocks import Block
from fpsim.records.evidence import Evidence, Fact
from fpsim.records.formats import BINARY16, BINARY32, Format
from fpsim.records.types import Shape
from fpsim.records.units import MatrixUnit
from fpsim.state.processor import usual_arithmetic
from ipu.machine.cost.ledger import LedgerRow
from ipu.machine.cost.planner import (
    LOAD_BYTES,
    Planner,
    ProductMemory,
    multiply_adds,
    price,
    split_price,
)
from ipu.machine.cost.work import of_matmul
from ipu.machine.instructions import Instruction
from ipu.machine.target import Target

__all__ = ["BlockOperand", "block_row"]

_COLUMNS = 16
_RATE = "binary16's, times 16 / bits of an element; docs/semantics.md §5"


class BlockOperand(NamedTuple):
    """A matrix in blocks along one of its axes; its shape as the product has it."""

    block: Block
    shape: Shape
    axis: int

    @property
    def nbytes(self) -> int:
        """Codes, scales, and the scale of the tensor, as they are stored.

        >>> from fpsim.records.blocks import find_block
        >>> BlockOperand(find_block("nvfp4"), (16, 64), 1).nbytes
        580
        """
        block, along = self.block, self.shape[self.axis]
        across = self.shape[1 - self.axis]
        scales = math.ceil(along / (block.elements or max(1, along))) * math.ceil(
            across / (block.rows or max(1, across)))
        codes = math.ceil(along * across * block.element.bits / 8)
        return codes + scales * block.scale.bits // 8 + (4 if block.tensor_scale else 0)


@lru_cache(maxsize=4096)
@usual_arithmetic
def block_row(
    verb: str, unit: MatrixUnit, left: BlockOperand, right: BlockOperand, useful: int,
    result: Format, target: Target, planner: Planner,
) -> LedgerRow:
    """The row of left @ right.

    useful    multiply-adds without the zeros that blocks are filled up with.
    """
    bits = max(left.block.element.bits, right.block.element.bits)
    instruction = _instruction(unit, bits, target)
    (m, k), n = left.shape, right.shape[1]
    work = of_matmul((m, k), (k, n), instruction)
    memory = ProductMemory(left.nbytes, right.nbytes, m * n * unit.partials.bits // 8)
    cost = price(work, memory, instruction, target, planner)
    return LedgerRow(
        verb=verb, unit=unit.name, instruction=instruction.name,
        shape=f"{left.block}[{m}, {k}] · {right.block}[{k}, {n}] → {result}[{m}, {n}]",
        tiles=cost.tiles, passes=work.passes, weight_loads=cost.weight_loads, steps=cost.steps,
        macs=multiply_adds(work, instruction), useful=useful, cycles=cost.cycles,
        operand_bytes=left.nbytes + right.nbytes, result_bytes=m * n * result.bits // 8,
        partial_bytes=memory.partials, exchange_bytes=0,
        temporary_bytes=cost.tiles * cost.temporary,
        split_saving=cost.cycles - split_price(work, memory, instruction, target, planner),
        operand_cycles=-(-cost.operands // target.exchange.value),
        facts=(*instruction.facts.items(),
               ("bytes per cycle, weights", LOAD_BYTES[planner.use_128bit_conv_unit_load])),
    )


def _instruction(unit: MatrixUnit, bits: int, target: Target) -> Instruction:
    """What the target would compute the unit's products with."""
    rates = [i.macs.value for i in target.instructions if BINARY16 in i.unit.inputs]
    macs = Fact(max(rates) * 16 // bits, Evidence.ASSUMED, _RATE)
    weights = Fact(_COLUMNS * unit.channels * bits // 8, Evidence.ASSUMED, "16 columns of a pass")
    return Instruction(unit.instruction, unit, _COLUMNS, macs, weights, BINARY32)
