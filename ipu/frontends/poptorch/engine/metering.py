"""Metering: what the first update of a model costs, as the figures of its plan's stages.

Cycles are those of the device's declared model; bytes are those of the tensors that cross stages
and of what autograd's nodes save, in the formats that they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ipu.frontends.poptorch.engine.flight import Flight
from ipu.frontends.poptorch.engine.machine import Machine
from ipu.frontends.poptorch.optim import slots_of
from ipu.frontends.poptorch.outputs import flatten
from ipu.plan.cycles import compute_cycles
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase, Program

__all__ = ["Meter"]

_FIELDS = {Phase.FORWARD: "forward_cycles", Phase.BACKWARD: "backward_cycles"}


class Meter:
    """Measures micro-batch 0 of replica 0 and the update, of the first round.

    figures    of every stage, when the first round is over.
    """

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self.plan, self._machine = plan, machine
        self.figures: tuple[StageFigures, ...] | None = None
        self._rows: list[dict[str, int]] = [{} for _ in range(plan.n_stages)]
        self._used: list[list[torch.Tensor]] = [[] for _ in range(plan.n_stages)]
        self._update_cycles = 0

    def _spent(self) -> tuple[int, int]:
        device = self._machine.device
        return device.ledger.cycles, device.vector_cycles

    def _since(self, before: tuple[int, int]) -> int:
        now = self._spent()
        return compute_cycles(now[0] - before[0], now[1] - before[1], self._machine.device.target)

    @contextmanager
    def program(self, program: Program) -> Iterator[None]:
        """A block around a program."""
        before = self._spent()
        yield
        if self.figures is None:
            self._rows[program.stage][_FIELDS[program.phase]] = self._since(before)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """A block around the update."""
        before = self._spent()
        yield
        if self.figures is None:
            self._update_cycles = self._since(before)

    # Bytes ----------------------------------------------------------------------------------

    def _bytes(self, x: torch.Tensor) -> int:
        """Of a tensor in the format that it holds."""
        fmt = self._machine.session.memory.format_of(x)
        size = x.element_size() if fmt is None else -(-fmt.bits // 8)
        return int(x.numel() * size)

    def forward_done(self, flight: Flight) -> None:
        """The forward pass of the measured micro-batch is over, its tape is there."""
        if self.figures is not None:
            return
        cuts, n = flight.cuts, self.plan.n_stages
        inlets = [list(own.values()) for own in cuts.inlets] + [[]] * (n - len(cuts.inlets))
        seen: set[int] = set()
        for stage in range(n):
            own = list(cuts.used[stage].values()) if stage < len(cuts.used) else []
            self._used[stage] = [p for p in own if id(p) not in seen]
            seen |= {id(p) for p in own}
            crossing = _crossing(flight, inlets, stage)
            row = self._rows[stage]
            row["input_bytes"] = sum(self._bytes(x) for x in crossing["in"])
            row["output_bytes"] = sum(self._bytes(x) for x in crossing["out"])
            if self.plan.training:
                ends = crossing["out"] + ([flight.losses.final] if stage == n - 1 else [])
                skip = {x.untyped_storage().data_ptr() for x in [*crossing["in"], *own]}
                row["saved_bytes"] = row["input_bytes"] + self._saved(
                    ends, cuts.start(stage) if stage < len(cuts.inlets) else 0, skip
                )
        self._rows[0]["infeed_bytes"] = sum(map(self._bytes, flatten(flight.arguments)))
        self._rows[0]["input_bytes"] += self._rows[0]["infeed_bytes"]
        if self.plan.training:
            self._rows[0]["saved_bytes"] += self._rows[0]["infeed_bytes"]
        self._rows[-1]["outfeed_bytes"] = sum(map(self._bytes, flatten(flight.outputs)))
        if not self.plan.training:
            self.figures = self._figures({}, {})

    def _saved(self, ends: list[torch.Tensor], start: int, skip: set[int]) -> int:
        """Bytes that the nodes of a stage save, each memory once."""
        todo = [x.grad_fn for x in ends if x.grad_fn is not None]
        seen: set[Any] = set()
        sizes: dict[int, int] = {}
        while todo:
            node = todo.pop()
            if node in seen or node._sequence_nr() < start:
                continue
            seen.add(node)
            for x in _saved_tensors(node):
                where = x.untyped_storage().data_ptr()
                if where not in skip:
                    sizes[where] = max(sizes.get(where, 0), self._bytes(x))
            todo += [each for each, _ in node.next_functions if each is not None]
        return sum(sizes.values())

    # Figures --------------------------------------------------------------------------------

    def updated(self, updater: Any) -> None:
        """The first update is over: the figures are known."""
        if self.figures is not None:
            return
        state, accumulators = {}, {}
        for group in updater.groups:
            slots = slots_of(updater.optimizer, group)
            for p in group["params"]:
                state[id(p)] = [
                    p.numel() * (2 if dtype == torch.float16 else 4)
                    for name, dtype in slots.items() if name != "step"
                ]
                size = 2 if group["accum_type"] == torch.float16 else 4
                accumulators[id(p)] = p.numel() * size
        self.figures = self._figures(state, accumulators)

    def _figures(
        self, state: dict[int, list[int]], accumulators: dict[int, int]
    ) -> tuple[StageFigures, ...]:
        weights = [sum(map(self._bytes, own)) for own in self._used]
        total = sum(weights)
        rows = []
        for own, size, row in zip(self._used, weights, self._rows, strict=True):
            tensors = tuple(n for p in own for n in state.get(id(p), ()))
            rows.append(StageFigures(
                parameter_bytes=size, state_bytes=sum(tensors), state_tensors=tensors,
                accumulator_bytes=sum(accumulators.get(id(p), 0) for p in own),
                update_cycles=-(-self._update_cycles * size // total) if total else 0, **row,
            ))
        return tuple(rows)


def _crossing(flight: Flight, inlets: list[Any], stage: int) -> dict[str, list[torch.Tensor]]:
    """Tensors that come into a stage and leave it; one that later stages take passes through."""

    def origins(stages: range) -> list[torch.Tensor]:
        by_id = {id(each.origin): each.origin for s in stages for each in inlets[s]}
        return list(by_id.values())

    later = origins(range(stage + 1, len(inlets)))
    start = flight.cuts.start(stage) if stage < len(flight.cuts.inlets) else 0
    passing = [x for x in later if _number(x) < start]
    taken = {id(x): x for x in [*origins(range(stage, stage + 1)), *passing]}
    begin = flight.cuts.start(stage + 1) if stage + 1 < len(flight.cuts.inlets) else 1 << 62
    return {"in": list(taken.values()), "out": [x for x in later if _number(x) < begin]}


def _number(x: torch.Tensor) -> int:
    assert x.grad_fn is not None
    return int(x.grad_fn._sequence_nr())


def _saved_tensors(node: Any) -> list[torch.Tensor]:
    """What a node keeps for its backward pass."""
    kept = []
    for name in dir(node):
        if not name.startswith("_saved_"):
            continue
        try:
            value = getattr(node, name)
        except RuntimeError:  # written since: the backward pass will tell
            continue
        values = value if isinstance(value, (list, tuple)) else (value,)
        kept += [x for x in values if isinstance(x, torch.Tensor)]
    return kept + list(getattr(node, "saved_tensors", ()))
