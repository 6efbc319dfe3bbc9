"""The machine of a model: a session of the PyTorch front end, in which its micro-batches run.

A program that runs inside of a session (`fpsim.torch.machine`, `fpsim torch`) computes in that one,
with its policy; else each model has a session of its own, whose control bits follow the options.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import torch

from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.session import Session
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.run.options import RunOptions
from ipu.run.places import Place, number

__all__ = ["PoptorchMachine"]


class PoptorchMachine:
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
            self.session = Session(device, RunOptions(seed=seed, ties="all", count=True))

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
            with opening:
                yield
        finally:
            device.control = before

    @property
    def seed(self) -> int:
        """Of the device's random bits."""
        seed: int = self.device.source.seed or 0
        return seed

    @contextmanager
    def taking(self, micro_batch: int, replica: int) -> Iterator[None]:
        """The operations inside are of a micro-batch of one of this process's replicas.

        Dropout masks belong to it: the host's generator begins with its place.
        """
        session, generator = self.session, torch.default_generator
        global_replica = self.first_replica + replica
        place = Place(session.step, micro_batch, global_replica, f"host {self.seed}", "other")
        flow = session.layers.exchange(Layers.new_flow(micro_batch))
        random, before = generator.get_state(), session.replica
        generator.manual_seed(number(place, 0) >> 1)
        session.replica = global_replica
        try:
            yield
        finally:
            session.layers.exchange(flow)
            generator.set_state(random)
            session.replica = before

    @contextmanager
    def without_trace(self) -> Iterator[None]:
        """What is computed inside moves no random bits of what comes later."""
        clock = self.session.clock
        with clock.replaying(clock.mark()):
            yield
