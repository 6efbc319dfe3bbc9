"""The machine of a model: a session of the PyTorch front end, in which micro-batches take turns.

A program that runs inside of a session (`fpsim.torch.machine`, `fpsim torch`) computes in that one,
with its policy; else each model has a session of its own, whose control bits follow the options.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from ipu.frontends.poptorch.engine.cuts import functions_cut
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.mode import MachineMode
from ipu.frontends.torch.session import Session
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.run.places import Place, number

__all__ = ["Machine", "Turn"]


@dataclass
class Turn:
    """Where a micro-batch of a replica stands while others run.

    replica   its number among those of all processes.
    flow      its modules and nodes.
    random    state of the host's generator: dropout masks belong to the micro-batch.
    """

    replica: int
    flow: dict[str, Any]
    random: torch.Tensor


class Machine:
    """A session, entered when a model is called.

    control           what the options switch on, in the session of a program too.
    seed, partials    of a session of its own.
    """

    def __init__(self, control: FpCtl, seed: int, partials: str) -> None:
        self._control = control
        #: Number of this process's first replica among all.
        self.first_replica = 0
        if Session._open is not None:
            self.session = Session._open
        else:
            device = Device(control=control, seed=seed, partials=partials, count=True)
            self.session = Session(device, "f32", ties="all")
        self.mode = MachineMode(self.session)

    @property
    def device(self) -> Device:
        return self.session.device

    @property
    def layers(self) -> Layers:
        return self.session.layers

    @contextmanager
    def running(self) -> Iterator[None]:
        """Operations inside are computed by the machine."""
        device, before = self.device, self.device.control
        wanted = self._control
        device.control = replace(
            before, esr=before.esr or wanted.esr, inv=before.inv or wanted.inv,
            div0=before.div0 or wanted.div0, oflo=before.oflo or wanted.oflo,
            nanoo=before.nanoo or wanted.nanoo,
        )
        opening = nullcontext() if Session._open is self.session else self.session
        try:
            with opening, functions_cut():
                yield
        finally:
            device.control = before

    @property
    def seed(self) -> int:
        """Of the device's random bits."""
        seed: int = self.device.source.seed or 0
        return seed

    def turn(self, micro_batch: int, replica: int) -> Turn:
        """A micro-batch of one of this process's replicas, at its beginning."""
        own = self.first_replica + replica
        place = Place(self.session.step, micro_batch, own, f"host {self.seed}", "other")
        generator = torch.Generator().manual_seed(number(place, 0) >> 1)
        return Turn(own, Layers.new_flow(micro_batch), generator.get_state())

    @contextmanager
    def taking(self, turn: Turn, program: str) -> Iterator[None]:
        """The operations inside are of this micro-batch; `program` tells traps where."""
        session, generator = self.session, torch.default_generator
        flow = session.layers.exchange(turn.flow)
        random, replica, shown = generator.get_state(), session.replica, self.device.program
        generator.set_state(turn.random)
        session.replica, self.device.program = turn.replica, program
        try:
            yield
        finally:
            turn.flow = session.layers.exchange(flow)
            turn.random = generator.get_state()
            generator.set_state(random)
            session.replica, self.device.program = replica, shown

    @contextmanager
    def without_trace(self) -> Iterator[None]:
        """What is computed inside moves no random bits of what comes later."""
        clock = self.session.clock
        with clock.replaying(clock.mark()):
            yield
