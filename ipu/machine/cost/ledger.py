"""The ledger of a device: one row per product, added up per tensor, verb and unit.

Cycles are those of the busiest tile by the model of `ipu.machine.cost.planner`: a declared model,
never promised time. Bytes count each array once, in its own format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fpsim.records.evidence import Fact

__all__ = ["Ledger", "LedgerRow", "Total"]


class LedgerRow(NamedTuple):
    """One product.

    shape            of the operands and the result, as text.
    tiles            that compute.
    passes           over K, for each output; the kernel positions of a convolution count.
    weight_loads     of the busiest tile, as `steps` and `cycles` are.
    steps            in which it runs for want of temporary memory.
    temporary_bytes  of all tiles, in one of the steps.
    split_saving     cycles less if K were split over tiles; not taken from `cycles`, as the
                     product that is computed has the bits of a K that stays.
    operand_cycles   in which the busiest tile receives its operands, if they lie elsewhere; not
                     part of `cycles`, as no source says where a compiler puts them.
    macs, useful     multiply-adds of full passes, and those of the product itself.
    operand_bytes, result_bytes, partial_bytes    of the arrays, each counted once.
    exchange_bytes   over the wires between tiles, of a K that was split.
    facts            every constant of the row, with its evidence; the rate first.

    >>> from ipu.machine import Device
    >>> device = Device()
    >>> x = device.from_host([[1.0] * 64] * 64, "binary16")
    >>> y = device.matmul(x, x)
    >>> row = device.ledger.last
    >>> isinstance(row, LedgerRow), row.unit, row.tiles, row.cycles
    (True, 'AMP_F16_F32', 512, 144)
    >>> print(row.facts[0][0], row.facts[0][1], sep=": ")
    f16v4sisoamp, multiply-adds per cycle: 32 (DOCUMENTED: Tile Vertex Instruction Set)
    """

    verb: str
    unit: str
    instruction: str
    shape: str
    tiles: int
    passes: int
    weight_loads: int
    steps: int
    macs: int
    useful: int
    cycles: int
    operand_bytes: int
    result_bytes: int
    partial_bytes: int
    exchange_bytes: int
    temporary_bytes: int
    split_saving: int
    operand_cycles: int
    facts: tuple[tuple[str, Fact], ...]

    @property
    def evidence(self) -> str:
        """How the instruction's rate is known; the other constants stand below the table."""
        return str(self.facts[0][1].evidence)


@dataclass
class Total:
    """Rows of one tensor, verb and unit added up; `last` is the newest of them."""

    last: LedgerRow
    products: int = 0
    macs: int = 0
    useful: int = 0
    cycles: int = 0
    weight_loads: int = 0
    exchange_bytes: int = 0
    operand_cycles: int = 0
    split_saving: int = 0

    def add(self, row: LedgerRow) -> None:
        self.last = row
        self.products += 1
        self.macs += row.macs
        self.useful += row.useful
        self.cycles += row.cycles
        self.weight_loads += row.weight_loads
        self.exchange_bytes += row.exchange_bytes
        self.operand_cycles += row.operand_cycles
        self.split_saving += row.split_saving


_COLUMN = "{:<28} {:<24} {:<22} {:<16} {:>8} {:>10} {:>6} {:>10} {:>9} {:>8} {:>5}  {}".format
_HEAD = ("tensor", "verb", "unit", "instruction", "products", "MMAC", "useful", "kcycles", "loads",
         "MB moved", "tiles", "rate is")


class Ledger:
    """What the products of a device cost.

    >>> from fpsim import BINARY16
    >>> from ipu.machine import Device
    >>> device = Device()
    >>> x = device.from_host([[1.0] * 20] * 4, BINARY16)
    >>> y = device.matmul(x, x.T)
    >>> device.ledger.last.passes, device.ledger.last.useful, device.ledger.last.macs
    (2, 320, 1024)
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], Total] = {}
        #: The newest product; None before the first.
        self.last: LedgerRow | None = None
        #: The largest temporary of a product since it was set to 0.
        self.temporary = 0

    def add(self, tensor: str, row: LedgerRow) -> None:
        """A product that was published."""
        self.last = row
        self.temporary = max(self.temporary, row.temporary_bytes)
        total = self.rows.get((tensor, row.verb, row.unit))
        if total is None:
            total = self.rows[tensor, row.verb, row.unit] = Total(row)
        total.add(row)

    def clear(self) -> None:
        """Forget every row."""
        self.rows.clear()
        self.last = None
        self.temporary = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def cycles(self) -> int:
        """Of all products, one after the other."""
        return sum(total.cycles for total in self.rows.values())

    @property
    def operand_cycles(self) -> int:
        """In which the operands of all products are received, if they lie on other tiles."""
        return sum(total.operand_cycles for total in self.rows.values())

    @property
    def split_saving(self) -> int:
        """Cycles less if all products split K over tiles where that is cheaper."""
        return sum(total.split_saving for total in self.rows.values())

    @property
    def macs(self) -> int:
        """Multiply-adds of all products, in full passes."""
        return sum(total.macs for total in self.rows.values())

    @property
    def useful(self) -> int:
        """Multiply-adds of the products themselves, without padding."""
        return sum(total.useful for total in self.rows.values())

    @property
    def facts(self) -> dict[str, Fact]:
        """Every constant that the costs rest on."""
        return {name: fact for total in self.rows.values() for name, fact in total.last.facts}

    def table(self) -> str:
        """Rows, totals, and the evidence of the constants, as text."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield _COLUMN(*_HEAD)
        for (tensor, verb, unit), total in self.rows.items():
            yield _line(tensor or "-", verb, unit, total)
        yield f"{self.macs} multiply-adds, {self.useful} of them useful; {self.cycles} cycles"
        yield "cycles: a declared model of the busiest tile, not time; it rests on"
        for name, fact in self.facts.items():
            yield f"  {name}: {fact}"


def _line(tensor: str, verb: str, unit: str, total: Total) -> str:
    row = total.last
    share = f"{total.useful / total.macs:.0%}" if total.macs else "-"
    return _COLUMN(
        tensor, verb, unit, row.instruction, total.products, f"{total.macs / 1e6:.3f}", share,
        f"{total.cycles / 1e3:.1f}", total.weight_loads, f"{total.exchange_bytes / 1e6:.3f}",
        row.tiles, row.evidence,
    )
