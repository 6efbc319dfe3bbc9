"""Replicas of a program: each process runs it, and their gradients are averaged before a step.

Every process is one replica. Before an optimiser, a gradient scaler or torch's clipping looks at
gradients, these are summed over the replicas in the order of the run and multiplied by fl(1/R),
once after each backward pass; so every replica takes the same step, and skips the same ones. What
programs may expect:

weights     the first replica's values at the first forward pass of a model that records gradients;
            equal afterwards, which is checked every `CHECK_EVERY` steps and at the end.
buffers     as moving statistics, are each replica's own.
data        is what the program reads: by `popdist.getInstanceIndex()` it takes its share. A
            program that does not do so trains R times on the same samples.
random      torch's generator is the program's, as in one process: a seed that is equal on all
            replicas gives equal masks. Stochastic rounding draws bits of the replica's own in
            forward and backward passes, and equal ones in sums and updates.
gradients   that a program reads itself after a backward pass are its replica's own.

Source    docs/semantics.md §2, §3 (means over replicas: one replica set).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fpsim.records.formats import BINARY32
from ipu.frontends.torch.replicas.alone import Alone, Parameters, refusing_process_groups
from ipu.frontends.torch.values import Memory
from ipu.members.members import END, Meeting, Members
from ipu.members.registers import add_registers, take_registers
from ipu.members.sums import ReplicaSums
from ipu.plan.collectives import Summands
from ipu.plan.orders import Order

__all__ = ["SeveralReplicas", "before_use_of_gradients"]

#: Steps from one comparison of the weights to the next.
CHECK_EVERY = 100


class SeveralReplicas(Alone):
    """This process's replica among those of other processes.

    memory          of the session, whose device gets the flags of the sums.
    shares_status   gradient scalers look at the status register: it is then that of all replicas.
    local           replicas of each process: more than one is for models of PopTorch alone.
    """

    def __init__(
        self, members: Members, memory: Memory, order: Order | str = Order.AUTO, *,
        shares_status: bool = False, local: int = 1,
    ) -> None:
        self.number = members.rank
        self._shares_status, self._local = shares_status, local
        self.members, self._memory = members, memory
        self._sums = ReplicaSums(members.channel, members.size, memory.device.twin, order)
        #: Parameters in the order in which they came, by which their sums are numbered.
        self._compared: dict[int, tuple[int, torch.Tensor]] = {}
        #: Those whose gradients are means already.
        self._averaged: set[int] = set()
        self._entered: set[int] = set()

    # Weights --------------------------------------------------------------------------------

    def know(self, parameters: Iterable[torch.Tensor]) -> None:
        """A model of another front end has these, and keeps them equal."""
        for parameter in parameters:
            self._entered.add(id(parameter))
            self._number(parameter)

    def enter(self, module: torch.nn.Module) -> None:
        """Give the first replica's weights to all, before the first pass that is trained on."""
        if not torch.is_grad_enabled():
            return
        for name, parameter in module.named_parameters():
            if id(parameter) in self._entered:
                continue
            if self._local > 1:
                raise ValueError(
                    f"--num-replicas {self._local * self.members.size} of --num-instances "
                    f"{self.members.size}: a model that is not PopTorch's is one replica; use "
                    f"--num-instances {self._local * self.members.size}"
                )
            self._entered.add(id(parameter))
            self._number(parameter)
            with _disable_current_modes(), torch.no_grad():
                values = _bytes(parameter)
                sent = self.members.root(values, f"parameter {name}")
                if len(sent) != len(values):
                    self.members.stop(
                        self.number,
                        f"{self.members.name(self.number)} has parameter {name} of {len(values)} "
                        f"bytes, {self.members.name(0)} of {len(sent)}; build the same model on "
                        "all replicas",
                    )
                if sent != values:
                    shape = parameter.shape
                    flat = torch.frombuffer(bytearray(sent), dtype=parameter.dtype)
                    parameter.copy_(flat.reshape(shape))

    def _number(self, parameter: torch.Tensor) -> int:
        number, _ = self._compared.setdefault(id(parameter), (len(self._compared), parameter))
        return number

    def stepped(self, step: int) -> None:
        """Compare the weights now and then."""
        if step % CHECK_EVERY == 0:
            self.check(step)

    def check(self, step: int, place: str | None = None) -> None:
        """Compare the weights of all replicas.

        place     of the program; default: its weights.

        Raises    StoppedError, on every replica, where they differ.
        """
        total = hashlib.sha256()
        with _disable_current_modes(), torch.no_grad():
            for _, parameter in self._compared.values():
                total.update(_bytes(parameter))
        self.members.check("weights", total.hexdigest(), step, place)

    # Gradients ------------------------------------------------------------------------------

    def changed(self, *, in_update: bool) -> None:
        """Gradients are about to change, and are the replica's own again.

        Raises    NotImplementedError for backward passes inside of an optimiser's step.
        """
        if in_update:
            raise NotImplementedError(
                "optimizer.step(closure) changes gradients inside of a step, after they were "
                "averaged over replicas; call loss.backward() before optimizer.step()"
            )
        self._averaged.clear()

    def average(self, parameters: Parameters, step: int) -> None:
        """Gradients become their means over the replicas, unless they are already.

        Raises    StoppedError, on every replica, where the gradients are of other parameters.
        """
        fresh = [p for p in parameters if p.grad is not None and id(p) not in self._averaged]
        if not fresh:
            return
        self._averaged.update(id(p) for p in fresh)
        with _disable_current_modes(), torch.no_grad():
            self.members.compare_programs(Meeting("the gradients", step))
            jobs = [self._summands(p) for p in fresh]
            self._compare(jobs, step)
            means = self._sums.means(jobs, step)
            with self._memory.device.naming("reduce"):
                for p, mean in zip(fresh, means, strict=True):
                    assert p.grad is not None
                    p.grad.copy_(self._memory.write(mean, p.grad.dtype))
        for device in self._sums.devices:
            add_registers(self._memory.device, take_registers(device))

    def _summands(self, parameter: torch.Tensor) -> Summands:
        gradient = parameter.grad
        assert gradient is not None
        number = self._number(parameter)
        if gradient.is_sparse:
            raise TypeError(
                f"parameter {number} of shape {tuple(parameter.shape)} has a sparse gradient, "
                "which is not averaged over replicas; use sparse=False"
            )
        fmt = self._memory.format_of(gradient) or BINARY32
        return Summands([self._memory.read(gradient, fmt)], number, f"parameter {number}")

    def _compare(self, jobs: Sequence[Summands], step: int) -> None:
        """All replicas have gradients of the same parameters; the status becomes that of all."""
        place, device = Meeting("the gradients", step), self._memory.device
        lines = [f"{j.name}: {j.tensors[0].format.name} {j.tensors[0].shape}" for j in jobs]
        self.members.agree(place, [f"the gradient of {line}" for line in lines])
        if self._shares_status:
            for word in self.members.meet(Meeting("the status", step), str(device.status_word)):
                device.status_word |= int(word)

    # The program ----------------------------------------------------------------------------

    @contextmanager
    def _noting_saves(self, step: Callable[[], int]) -> Iterator[None]:
        """The step of the program's last `torch.save` is told when another replica is lost."""
        before = torch.save

        @wraps(before)
        def save(*arguments: Any, **options: Any) -> Any:
            result = before(*arguments, **options)
            self.members.saved = step()
            return result

        torch.save = save
        try:
            yield
        finally:
            torch.save = before

    @contextmanager
    def running(self, step: Callable[[], int]) -> Iterator[None]:
        """Around the program: averages before its clippers and scalers, and leaves the others."""
        try:
            with (
                self.members.running(step),
                refusing_process_groups(),
                before_use_of_gradients(lambda p: self.average(list(p), step())),
                self._noting_saves(step),
            ):
                yield
                self.check(step(), END)
                self.members.end()
        except BaseException:
            self.members.channel.transport.close()
            raise


def _bytes(x: torch.Tensor) -> bytes:
    """The values of a tensor as they lie in memory."""
    flat = x.detach().contiguous().reshape(-1)
    values: bytes = flat.view(torch.uint8).numpy().tobytes()
    return values


@contextmanager
def before_use_of_gradients(average: Callable[[Iterable[torch.Tensor]], None]) -> Iterator[None]:
    """Clipping and gradient scalers inside see averages."""
    clippers = ("clip_grad_norm_", "clip_grad_value_")
    before: dict[str, Any] = {name: getattr(torch.nn.utils, name) for name in clippers}
    scaler = torch.amp.GradScaler
    unscale = scaler.unscale_

    def clipper(name: str) -> Callable[..., Any]:
        def clip(parameters: Any, *rest: Any, **options: Any) -> Any:
            one = isinstance(parameters, torch.Tensor)
            rows = [parameters] if one else list(parameters)
            average(rows)
            return before[name](rows, *rest, **options)

        return clip

    def unscale_averages(self: Any, optimiser: torch.optim.Optimizer) -> None:
        average(p for group in optimiser.param_groups for p in group["params"])
        unscale(self, optimiser)

    for name in clippers:
        setattr(torch.nn.utils, name, clipper(name))
    scaler.unscale_ = unscale_averages
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch.nn.utils, name, function)
        scaler.unscale_ = unscale
