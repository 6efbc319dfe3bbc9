"""Metering: what one step of a real training costs, as the figures of a plan's stages.

Cycles and bytes do not depend on the data, so one micro-batch is measured, and one update. Products
cost what the device's ledger says, elementwise work what its vector cycles say; saved bytes are
those of the tape. Both are declared models, never promised time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpsim.array import Array
from ipu import ops
from ipu.learn.tensor import Tensor, nodes
from ipu.learn.variables import Variable
from ipu.machine.device import Device
from ipu.ops.saved import memory
from ipu.plan.cycles import compute_cycles
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase, Program
from ipu.plan.stage import Flight, used_variables

__all__ = ["StageMeter"]

_FIELDS = {
    Phase.FORWARD: "forward_cycles", Phase.BACKWARD: "backward_cycles",
    Phase.RECOMPUTE: "recompute_cycles",
}


def _saved(tensors: Sequence[Tensor], elsewhere: set[int]) -> tuple[int, int]:
    """Bytes that tapes keep beside inputs and weights, and those of them that are never recomputed.

    The latter are masks of dropout and explicit checkpoints.
    """
    saved: dict[int, int] = {}
    kept: dict[int, int] = {}
    for node in nodes(*tensors):
        for item in node.saved:
            if isinstance(item, Array):
                key, nbytes = memory(item)
                if key in elsewhere:
                    continue
                saved[key] = nbytes
                if node.primitive is ops.recomputation_checkpoint:
                    kept[key] = nbytes
            elif isinstance(item, np.ndarray):
                saved[id(item)] = kept[id(item)] = item.nbytes
    return sum(saved.values()), sum(kept.values())


@dataclass
class _Spent:
    """Cycles of a device since it was created."""

    products: int
    vector: int

    @classmethod
    def by(cls, device: Device) -> _Spent:
        return cls(device.ledger.cycles, device.vector_cycles)


class StageMeter:
    """Measures the first micro-batch of a step on one replica.

    device    of the replica.
    """

    def __init__(self, plan: Plan, device: Device) -> None:
        self.plan, self.device = plan, device
        self._update_cycles = 0
        self._measured: dict[tuple[int, int], dict[str, Any]] = {
            (entry.stage, entry.branch): {} for entry in plan.entries
        }

    @contextmanager
    def __call__(self, program: Program, flight: Flight) -> Iterator[None]:
        """A block around a program of the plan."""
        if program.micro_batch:
            yield
            return
        before = _Spent.by(self.device)
        yield
        cycles = self._since(before)
        row = self._measured[program.stage, program.branch]
        row[_FIELDS[program.phase]] = cycles
        if program.phase is Phase.FORWARD:
            row.update(self._activations(program, flight))

    def _since(self, before: _Spent) -> int:
        now = _Spent.by(self.device)
        return compute_cycles(
            now.products - before.products, now.vector - before.vector, self.device.target
        )

    def _activations(self, program: Program, flight: Flight) -> dict[str, int]:
        outputs = flight.outputs[program.branch]
        tensors = [value for value in outputs if isinstance(value, Tensor)]
        received = {id(x): x for x in flight.arguments if isinstance(x, Tensor)}.values()
        inputs = sum(x.array.storage_bytes for x in received)
        elsewhere = {memory(x.kept)[0] for x in (*received, *used_variables(tensors))}
        saved, kept = _saved(tensors, elsewhere)
        row = {"input_bytes": inputs, "saved_bytes": inputs + saved, "checkpoint_bytes": kept}
        if program.stage == 0:
            row["infeed_bytes"] = inputs
        if program.stage == self.plan.n_stages - 1:
            row["outfeed_bytes"] = sum(tensor.array.storage_bytes for tensor in tensors)
        else:
            row["output_bytes"] = sum(tensor.array.storage_bytes for tensor in tensors)
        return row

    @contextmanager
    def updating(self) -> Iterator[None]:
        """A block around the update of all variables."""
        before = _Spent.by(self.device)
        yield
        self._update_cycles = self._since(before)

    def figures(
        self, used: Mapping[tuple[int, int], Sequence[Variable]],
        slots: Mapping[str, tuple[Array, ...]], accumulators: Mapping[str, Array],
    ) -> tuple[StageFigures, ...]:
        """The figures of every entry of the plan.

        used    variables of each entry; one of several entries counts at the first.
        """
        rows: list[StageFigures] = []
        seen: set[str] = set()
        total = sum(
            v.array.storage_bytes for vs in used.values() for v in {id(v): v for v in vs}.values()
        )
        for entry in self.plan.entries:
            own = [v for v in used[entry.stage, entry.branch] if v.name not in seen]
            seen |= {variable.name for variable in own}
            parameters = sum(variable.array.storage_bytes for variable in own)
            state = [
                slot for variable in own for slot in slots.get(variable.name, ())
                if isinstance(slot, Array)
            ]
            measured = self._measured[entry.stage, entry.branch]
            rows.append(
                StageFigures(
                    parameter_bytes=parameters,
                    state_bytes=sum(slot.storage_bytes for slot in state),
                    state_tensors=tuple(slot.storage_bytes for slot in state),
                    state_itemsize=state[0].storage_bytes // max(state[0].size, 1) if state else 4,
                    accumulator_bytes=sum(
                        accumulators[v.name].storage_bytes for v in own if v.name in accumulators
                    ),
                    update_cycles=-(-self._update_cycles * parameters // total) if total else 0,
                    **measured,
                )
            )
        return tuple(rows)
