"""What a training takes its device from, and tells what it does; `ipu.run.machine` gives one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ipu.learn.loss_scale import LossScale
from ipu.learn.optim import Optimizer, Update
from ipu.machine.device import Device

__all__ = ["TrainingRun"]


@runtime_checkable
class TrainingRun(Protocol):
    """The run of one training.

    device    of its first replica; those of others are its twins.
    policy    formats by layer.
    seed      of the initial values and of the device's random bits.
    """

    device: Device
    policy: Any

    @property
    def seed(self) -> int: ...

    @property
    def checks_memory(self) -> bool:
        """Whether a step that one IPU cannot hold is refused."""

    def check_free(self) -> None:
        """Refuse a second training.

        Raises    RuntimeError.
        """

    def optimizer_of(self, optimizer: Optimizer) -> Optimizer:
        """The optimiser with the changes of the run."""

    def loss_scale_of(self, scale: LossScale) -> LossScale:
        """The loss scale with the changes of the run."""

    def order(self, layers: Sequence[str]) -> None:
        """The policy learns the order of layers with weights, which last2 asks for."""

    def attach(self, training: Any) -> None:
        """This training computes on the device; its first worker tells of losses."""

    def begin_step(self, x: Any, labels: Any) -> None:
        """A step of a batch begins."""

    def note_update(self, update: Update) -> None:
        """A variable takes a step."""

    def note_costs(self, program: Any, costs: Any) -> None:
        """What a training by a plan takes of time and memory."""

    def end_step(self) -> None:
        """A step is over."""
