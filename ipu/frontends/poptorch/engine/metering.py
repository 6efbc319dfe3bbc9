"""Metering: what the first update of a model costs, as the figures of its plan's stages.

Cycles are those of the device's declared model, by the marks of stages; bytes are those of the
tensors that cross stages and of what autograd's nodes save, in the formats that they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ipu.frontends.poptorch.engine.machine import PoptorchMachine
from ipu.frontends.poptorch.engine.tape import Tape
from ipu.frontends.poptorch.engine.update import Updater
from ipu.frontends.poptorch.optim import slots_of
from ipu.frontends.poptorch.outputs import flatten
from ipu.plan.explain import check_fit
from ipu.plan.loop import MicroBatchLoop, Spent
from ipu.plan.memory import Holding, StageFigures
from ipu.plan.metering import Costs, put_spent, stage_figures
from ipu.plan.plan import Plan

__all__ = ["Meter"]


class Meter:
    """Measures micro-batch 0 of replica 0 and the update, of the first round.

    names      of the model's parameters, by identity.
    figures    of every stage, when the first round is over.
    """

    def __init__(self, plan: Plan, machine: PoptorchMachine, names: dict[int, str]) -> None:
        self.plan, self._machine, self._names = plan, machine, names
        self.figures: tuple[StageFigures, ...] | None = None
        self._rows: list[dict[str, int]] = [{} for _ in range(plan.n_stages)]
        self._used: list[list[torch.Tensor]] = [[] for _ in range(plan.n_stages)]
        self._stages: dict[int, int] = {}
        self._update_cycles = 0

    def tape(self) -> Tape:
        """What is told of the calls of the measured micro-batch."""
        return Tape(self._bytes)

    def _bytes(self, x: torch.Tensor) -> int:
        """Of a tensor in the format that it holds."""
        fmt = self._machine.session.memory.format_of(x)
        size = x.element_size() if fmt is None else -(-fmt.bits // 8)
        return int(x.numel() * size)

    def forward_done(
        self, tape: Tape, loss: torch.Tensor | None, arguments: Any, outputs: Any,
        updater: Updater | None, loop: MicroBatchLoop,
    ) -> None:
        """The forward pass of the measured micro-batch is over.

        loss, updater    that a training has.
        loop             that has its cycles and temporaries.

        Raises    OutOfMemoryError for a model that does not fit its IPUs.
        """
        last = self.plan.n_stages - 1
        fed = sum(map(self._bytes, flatten(arguments)))
        for stage, row in enumerate(self._rows):
            if stage < len(tape.used):
                self._used[stage] = list(tape.used[stage].values())
                for parameter in self._used[stage]:
                    self._stages.setdefault(id(parameter), stage)
            inputs = sum(crossing.bytes for crossing in tape.entering(stage))
            row["input_bytes"] = inputs + (0 if stage else fed)
            row["output_bytes"] = sum(crossing.bytes for crossing in tape.leaving(stage))
            if self.plan.training:
                row["saved_bytes"] = row["input_bytes"] + tape.saved_bytes(
                    stage, loss if stage == last else None, [] if stage else flatten(arguments)
                )
        self._rows[0]["infeed_bytes"] = fed
        self._rows[last]["outfeed_bytes"] = sum(map(self._bytes, flatten(outputs)))
        self.check(loop, updater)

    def check(self, loop: MicroBatchLoop, updater: Updater | None) -> None:
        """Refuse a model that does not fit its IPUs by what has run so far, temporaries too.

        Raises    OutOfMemoryError.
        """
        self._put(loop)
        check_fit(self.plan, self._figures(updater), self._machine.device.target)

    def _put(self, loop: MicroBatchLoop) -> None:
        for (phase, stage, _), spent in loop.spent.items():
            put_spent(self._rows[stage], phase, spent, self._machine.device.target)

    def stage_of(self, parameter: torch.Tensor) -> int:
        """The first stage that takes a parameter."""
        return self._stages.get(id(parameter), 0)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """A block around the update."""
        device = self._machine.device
        before = Spent.start(device)
        yield
        self._update_cycles = (Spent.by(device) - before).cycles(device.target)

    def round_done(self, loop: MicroBatchLoop, updater: Updater | None) -> None:
        """The first round is over: the figures are known."""
        self._put(loop)
        self.figures = self._figures(updater)
        meter = self._machine.session.meter
        if meter is not None and updater is not None:
            holdings = {
                key: holding for row in self._holdings(updater).values()
                for key, holding in row.items()
            }
            meter.tell(holdings, self._update_cycles, self.plan.count * self.plan.replicas)
        self._machine.session.note_costs(self, Costs(self.plan, self.figures))

    def _figures(self, updater: Updater | None) -> tuple[StageFigures, ...]:
        rows = {(stage, 0): row for stage, row in enumerate(self._rows)}
        return stage_figures(self.plan, rows, self._holdings(updater), self._update_cycles)

    def _holdings(self, updater: Updater | None) -> dict[tuple[int, int], dict[int, Holding]]:
        """What the variables of each stage hold."""
        trained = {} if updater is None else _trained(updater)
        return {
            (stage, 0): {
                id(p): Holding(
                    self._bytes(p), *trained.get(id(p), (0, (), 4)), self._names.get(id(p), "")
                )
                for p in used
            }
            for stage, used in enumerate(self._used)
        }


def _trained(updater: Updater) -> dict[int, tuple[int, tuple[int, ...], int]]:
    """Bytes of accumulator and state of each trained parameter, and of an element of the state."""
    trained = {}
    for group in updater.groups:
        kinds = [d for name, d in slots_of(updater.optimizer, group).items() if name != "step"]
        for p in group["params"]:
            if p.requires_grad:
                state = tuple(p.numel() * dtype.itemsize for dtype in kinds)
                accumulator = p.numel() * group["accum_type"].itemsize
                trained[id(p)] = accumulator, state, kinds[0].itemsize if kinds else 4
    return trained
