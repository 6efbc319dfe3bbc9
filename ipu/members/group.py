"""Processes: the group of a training whose replicas are computed by several processes.

Replicas are dealt consecutively: process p of P computes p·L … p·L + L - 1, L = R/P. The bits are
those of one process: the additions of a sum have their addresses (`ipu.plan.collectives`),
wherever they are computed, and everything else of a step belongs to one replica or is equal on all.

A step is published after its last sum, so all processes stand at step t or t + 1 when one of them
ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.state.processor import usual_arithmetic
from ipu.learn import train
from ipu.learn.address import Numbering
from ipu.learn.checkpoint import take
from ipu.learn.loss_scale import Statistic
from ipu.learn.loss_scale.histogram import EdgeHistogram
from ipu.learn.variables import Variable
from ipu.learn.worker import Worker
from ipu.members.allreduce import all_reduce
from ipu.members.channel import Channel
from ipu.members.handshake import digest
from ipu.members.members import Meeting, Members
from ipu.members.pieces import HEADER
from ipu.members.registers import add_registers, from_text, to_text
from ipu.members.transport import Transport
from ipu.plan.collectives import Group, Summands
from ipu.plan.orders import Order, Ring
from ipu.plan.trainer import PlanTrainer

__all__ = ["Processes"]

#: Steps from one comparison of the variables to the next.
CHECK_EVERY = 100
#: Bytes that a message may have in any training.
_ROOM = 1 << 24


class Processes(Group):
    """The processes of a training, over a transport.

    replicas      R; the number of processes divides it.
    check_every   steps after which the digests of variables and slots are compared.
    interrupted   asked in every step; where it is true on any process, `stopping` is true on all
                  after that step.

    >>> from ipu.members.local_transport import run_local
    >>> def work(transport):
    ...     processes = Processes(transport, replicas=4)
    ...     return transport.rank, processes.replicas // transport.size
    >>> run_local(2, work)
    [(0, 2), (1, 2)]
    >>> try:
    ...     run_local(2, lambda transport: Processes(transport, replicas=3))
    ... except ValueError as error:
    ...     print(error)
    replicas=3 is no multiple of the 2 processes; use 2
    """

    def __init__(
        self, transport: Transport, replicas: int, *, check_every: int = CHECK_EVERY,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        if replicas < 1 or replicas % transport.size:
            raise ValueError(
                f"replicas={replicas} is no multiple of the {transport.size} processes; use "
                f"{max(replicas // transport.size, 1) * transport.size}"
            )
        if check_every < 1:
            raise ValueError(f"check_every={check_every}: use 1 step or more")
        self.members = Members(Channel(transport))
        self.channel = self.members.channel
        self.replicas = replicas
        self.check_every = check_every
        self.interrupted = interrupted
        #: Processes that were asked to stop in the last step.
        self.stopping: tuple[int, ...] = ()
        self._worker: Callable[[int], Worker] | None = None
        self._stand_ins: dict[int, Numbering] = {}
        self._started = False

    @property
    def transport(self) -> Transport:
        """Of the channel."""
        return self.channel.transport

    @property
    def saved(self) -> int | None:
        """Step of the last complete checkpoint."""
        return self.members.saved

    @saved.setter
    def saved(self, step: int | None) -> None:
        self.members.saved = step

    @property
    def owners(self) -> list[int]:
        """The process of each replica."""
        return [r * self.channel.size // self.replicas for r in range(self.replicas)]

    # The parts of a step ----------------------------------------------------------------------

    def own(self, replicas: int) -> range:
        if replicas != self.replicas:
            raise ValueError(
                f"the plan has replicas={replicas}, the group has {self.replicas}; use one number"
            )
        share = replicas // self.channel.size
        return range(self.channel.rank * share, (self.channel.rank + 1) * share)

    def prepare(self, worker: Callable[[int], Worker]) -> None:
        if self._worker is not None:
            raise ValueError("a group is of one training; make another one for this")
        replicas = self.own(self.replicas)
        self._worker = worker
        others = [r for r in range(self.replicas) if r not in replicas]
        self._stand_ins = {replica: worker(replica).numbering for replica in others}

    @contextmanager
    def step(self, training: train.Trainer, x: ArrayLike | Array) -> Iterator[None]:
        with self.members.running(lambda: training.steps):
            if not self._started:
                self._start(training, x)
                self.members.program = training.program
            self.channel.step = training.steps
            yield
            if training.steps % self.check_every == 0:
                self.check(training)

    def agree(self, losses: NDArray[Any], statistic: Statistic) -> NDArray[Any]:
        self.members.compare_programs(Meeting("the losses", self.channel.step))
        numbers = np.array([*_counts(statistic), int(self.interrupted())], np.int64)
        text = numbers.tobytes() + losses.astype("<f8").tobytes()
        rows = self.channel.gather(text, "the losses", equal=True)
        size = numbers.nbytes
        split = [(np.frombuffer(row[:size], np.int64), row[size:]) for row in rows]
        if isinstance(statistic, EdgeHistogram):
            statistic.upper = sum(int(counts[0]) for counts, _ in split)
            statistic.lower = sum(int(counts[1]) for counts, _ in split)
        self.stopping = tuple(rank for rank, (counts, _) in enumerate(split) if counts[-1])
        shape = losses.shape
        return np.concatenate([np.frombuffer(row, "<f8").reshape(shape) for _, row in split], 1)

    def sums(
        self, jobs: Sequence[Summands], numberings: Sequence[Numbering], order: Order | str,
        ring: Ring | str,
    ) -> list[Array]:
        here = dict(zip(self.own(self.replicas), numberings, strict=True))
        everyone = here | self._stand_ins
        for stand_in in self._stand_ins.values():
            stand_in.step = numberings[0].step
        return all_reduce(self.channel, self.owners, jobs, everyone, order, ring)

    # Before the first step, and now and then ----------------------------------------------------

    def _start(self, training: train.Trainer, x: ArrayLike | Array) -> None:
        """Compare plans and variables; root's values are those of all."""
        assert isinstance(training, PlanTrainer)
        built = bool(training.worker.variables)
        worker = training.worker if built else self._scratch(training, x)
        variables = worker.variables
        kinds = [f"variable {name}: {v.dtype.name} {v.shape}" for name, v in variables.items()]
        about = [f"{name}: {text}" for name, text in self.built(training).items()]
        about += [f"number of micro-batches: {training.plan.count}"]
        self.members.compare([*about, f"step: {training.steps}", *kinds])
        if built and not training.steps:
            self._broadcast(training)
        if not (training.private_updates and training.steps):
            values = digest(v.array for v in variables.trainable)
            self.members.compare([f"digest of the initial values: {values}"])
        largest = max((v.array.storage_bytes for v in variables.values()), default=0)
        self.transport.limit = HEADER + max(_ROOM, largest, training.plan.buffer_size)
        self._started = True

    def built(self, training: train.Trainer) -> dict[str, str]:
        """What the training was built from, in the words of the first replica."""
        first = self._stand_ins.get(0, training.worker.numbering).device
        return {**take(training).built, "bits": repr(first.source)}

    def _scratch(self, training: PlanTrainer, x: ArrayLike | Array) -> Worker:
        """A worker with the variables that the first step is going to create."""
        assert self._worker is not None
        replicas = self.own(self.replicas)
        worker = self._worker(replicas[0])
        batch = x if isinstance(x, Array) else np.asarray(x)
        size = training.plan.micro_batch(len(batch), len(replicas))
        training.build(worker, batch[:size])
        return worker

    def _broadcast(self, training: PlanTrainer) -> None:
        """The first worker's values of the trainable variables are those of all replicas."""
        for variable in training.worker.variables.trainable:
            array = variable.array
            codes = to_codes(array.carrier, array.format)
            wire = codes.dtype.newbyteorder("<")
            text = self.members.root(codes.astype(wire).tobytes(), variable.name)
            codes_of_root = np.frombuffer(text, wire).astype(codes.dtype).reshape(codes.shape)
            for worker in training.workers:
                target = worker.variables[variable.name]
                context = worker.device.context(array.format)
                target.assign(context.wrap(from_codes(codes_of_root, array.format), copy=False))

    def check(self, training: train.Trainer) -> None:
        """Compare what must be equal on all replicas: trainable variables and slots.

        Raises    StoppedError, on every worker, with both digests.
        """
        if isinstance(training, PlanTrainer) and training.private_updates:
            return  # the weights of the replicas drift apart, as they were asked to
        rows = [_shared_digest(worker) for worker in training.workers]
        other = next((row for row in rows if row != rows[0]), rows[0])
        if other != rows[0]:
            other = f"{other[:12]} and {rows[0]}"
        self.members.check("variables", other, training.steps)

    def settle(self, training: train.Trainer) -> None:
        """Bring flags, status and counts of sums to the replicas that they belong to."""
        rows = self.channel.gather(to_text(self._stand_ins), "registers")
        workers = dict(zip(self.own(self.replicas), training.workers, strict=True))
        for row in rows:
            for replica, taken in from_text(row).items():
                if replica in workers:
                    add_registers(workers[replica].device, taken)

    def digest(self, training: train.Trainer) -> str:
        """SHA-256 of variables and slots of all replicas, the same on every process."""
        rows = []
        for worker in training.workers:
            slots = [x for name in sorted(worker.slots) for x in worker.slots[name]]
            rows.append(digest([*(v.array for v in worker.variables.values()), *slots]))
        every = self.channel.gather("".join(rows).encode(), "digests", equal=True)
        return hashlib.sha256(b"".join(every)).hexdigest()

    @usual_arithmetic
    def mean(self, variables: Sequence[Variable]) -> NDArray[Any]:
        """The mean over all replicas of a variable that is private: of this process's replicas.

        Rounding  computed in binary64 from replica 0 on, rounded once to the variable's format.
        """
        first = variables[0].array
        values = np.stack([v.array.carrier for v in variables]).astype("<f8")
        rows = self.channel.gather(values.tobytes(), variables[0].name, equal=True)
        every = np.concatenate([np.frombuffer(r, "<f8").reshape(values.shape) for r in rows])
        total = np.zeros(first.shape)
        for replica in every:
            total = total + replica
        mean = total / self.replicas
        return variables[0].device.from_host(mean, first.format).values

    def finish(self, training: train.Trainer) -> None:
        """After the last step: compare, settle, and wait for the others."""
        with self.members.running(lambda: training.steps):
            self.channel.step = training.steps
            self.check(training)
            self.settle(training)


def _counts(statistic: Statistic) -> list[int]:
    """What is summed over processes."""
    if isinstance(statistic, EdgeHistogram):
        return [statistic.upper, statistic.lower]
    if type(statistic) is not Statistic:
        raise TypeError(
            f"{type(statistic).__name__} has no sum over processes; use a loss scale of ipu.learn"
        )
    return []


def _shared_digest(worker: Worker) -> str:
    variables = worker.variables.trainable
    slots = [x for v in variables for x in worker.slots.get(v.name, ())]
    return digest([*(v.array for v in variables), *slots])
