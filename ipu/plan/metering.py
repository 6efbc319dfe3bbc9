"""Metering: what one step of a real training costs, as the figures of a plan's stages.

Cycles and bytes do not depend on the data, so one micro-batch is measured, and one update. Products
cost what the device's ledger says, elementwise work what its vector cycles say; saved bytes are
those of the tape. Both are declared models, never promised time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fpsim.array import Array
from ipu import ops
from ipu.learn.tensor import Tensor, nodes
from ipu.learn.variables import Variable
from ipu.machine.device import Device
from ipu.machine.target import Target
from ipu.ops.saved import memory
from ipu.plan.loop import MicroBatchLoop, Spent
from ipu.plan.memory import Holding, StageFigures
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase, Program
from ipu.plan.stage import Flight, used_variables

__all__ = ["CYCLES", "Costs", "StageMeter", "put_spent", "stage_figures"]

#: Variables that figures name.
_LARGEST = 3
#: Fields of `StageFigures` by phase.
CYCLES = {
    Phase.FORWARD: "forward_cycles", Phase.BACKWARD: "backward_cycles",
    Phase.RECOMPUTE: "recompute_cycles",
}



def put_spent(row: dict[str, Any], phase: Phase, spent: Spent, target: Target) -> None:
    """Put what a phase of a stage took into its row: cycles, and the largest temporary."""
    row[CYCLES[phase]] = spent.cycles(target)
    row["work_bytes"] = max(row.get("work_bytes", 0), spent.temporary)
    if phase is not Phase.RECOMPUTE:
        row[f"{phase.value}_exchange"] = spent.operands
        row[f"{phase.value}_saving"] = spent.saving


def _saved(tensors: Sequence[Tensor], elsewhere: set[int]) -> tuple[int, int]:
    """Bytes that tapes keep beside inputs and weights, and those of them that are never recomputed.

    The latter are masks of dropout and explicit checkpoints.
    """
    saved: dict[int, int] = {}
    checkpoint: dict[int, int] = {}
    for node in nodes(*tensors):
        for item in node.saved:
            if isinstance(item, Array):
                key, nbytes = memory(item)
                if key in elsewhere:
                    continue
                saved[key] = nbytes
                if node.primitive is ops.recomputation_checkpoint:
                    checkpoint[key] = nbytes
            elif isinstance(item, np.ndarray):
                saved[id(item)] = checkpoint[id(item)] = item.nbytes
    return sum(saved.values()), sum(checkpoint.values())


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

    def note(self, program: Program, flight: Flight) -> None:
        """A forward program of the first micro-batch is over."""
        self._measured[program.stage, program.branch].update(self._activations(program, flight))

    def spent(self, loop: MicroBatchLoop) -> None:
        """The micro-batches are over."""
        for (phase, stage, branch), spent in loop.spent.items():
            put_spent(self._measured[stage, branch], phase, spent, self.device.target)

    def _activations(self, program: Program, flight: Flight) -> dict[str, int]:
        outputs = flight.outputs[program.branch]
        tensors = [value for value in outputs if isinstance(value, Tensor)]
        received = {id(x): x for x in flight.arguments if isinstance(x, Tensor)}.values()
        inputs = sum(x.array.storage_bytes for x in received)
        elsewhere = {memory(x.stored)[0] for x in (*received, *used_variables(tensors))}
        saved, checkpoint = _saved(tensors, elsewhere)
        row = {"input_bytes": inputs, "saved_bytes": inputs + saved, "checkpoint_bytes": checkpoint}
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
        before = Spent.start(self.device)
        yield
        self._update_cycles = (Spent.by(self.device) - before).cycles(self.device.target)

    def figures(
        self, used: Mapping[tuple[int, int], Sequence[Variable]],
        slots: Mapping[str, tuple[Array, ...]], accumulators: Mapping[str, Array],
    ) -> tuple[StageFigures, ...]:
        """The figures of every entry of the plan.

        used    variables of each entry.
        """
        holdings = {
            key: {v.name: _holding(v, slots, accumulators) for v in variables}
            for key, variables in used.items()
        }
        return stage_figures(self.plan, self._measured, holdings, self._update_cycles)


def _holding(
    variable: Variable, slots: Mapping[str, tuple[Array, ...]], accumulators: Mapping[str, Array]
) -> Holding:
    state = [slot for slot in slots.get(variable.name, ()) if isinstance(slot, Array)]
    sum_ = accumulators.get(variable.name)
    return Holding(
        variable.array.storage_bytes, 0 if sum_ is None else sum_.storage_bytes,
        tuple(slot.storage_bytes for slot in state),
        state[0].storage_bytes // max(state[0].size, 1) if state else 4,
    )


class Costs(NamedTuple):
    """A program's plan and what its stages cost."""

    plan: Plan
    figures: tuple[StageFigures, ...]


def stage_figures(
    plan: Plan, measured: Mapping[tuple[int, int], Mapping[str, Any]],
    holdings: Mapping[tuple[int, int], Mapping[Any, Holding]], update_cycles: int,
) -> tuple[StageFigures, ...]:
    """The figures of every entry of a plan.

    measured         of each stage and branch: fields of `StageFigures`.
    holdings         of each, its variables; one of several entries counts at the first.
    update_cycles    of all variables; each entry has its share by bytes.

    >>> holdings = {(0, 0): {"w": Holding(6)}, (1, 0): {"w": Holding(6)}}
    >>> own = stage_figures(Plan([abs, abs], count=4), {}, holdings, 10)
    >>> [(figures.parameter_bytes, figures.update_cycles) for figures in own]
    [(6, 10), (0, 0)]
    """
    total = sum({
        name: holding.values for row in holdings.values() for name, holding in row.items()
    }.values())
    counted: set[Any] = set()
    rows = []
    for entry in plan.entries:
        key = entry.stage, entry.branch
        first = {n: h for n, h in holdings.get(key, {}).items() if n not in counted}
        counted |= first.keys()
        values = sum(holding.values for holding in first.values())
        state = tuple(size for holding in first.values() for size in holding.state)
        rows.append(StageFigures(
            parameter_bytes=values, state_bytes=sum(state), state_tensors=state,
            state_itemsize=next((h.itemsize for h in first.values() if h.state), 4),
            accumulator_bytes=sum(holding.accumulator for holding in first.values()),
            variables=tuple(first.values()),
            update_cycles=-(-update_cycles * values // total) if total else 0,
            largest=tuple(
                (holding.name or str(name), holding.total) for name, holding in
                sorted(first.items(), key=lambda item: -item[1].total)[:_LARGEST]
            ),
            **measured.get(key, {}),
        ))
    return tuple(rows)
