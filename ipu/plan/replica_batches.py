"""Replicas as one batch: their variables on one device, which computes a step for all of them.

Values, flags, cycles, products and the numbers of operations are those of one replica after the
other. Where something looks at each operation of a replica (counts, traps, a run, an observer),
and where replicas differ in more than values, there is no such batch (`why_apart`).

Source    `ipu.machine.replica_device`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.state.processor import usual_arithmetic_in
from ipu import ops
from ipu.learn import losses
from ipu.learn.loss_scale import Statistic
from ipu.learn.mode import PendingUpdates
from ipu.learn.optim import Pairs
from ipu.learn.tensor import Tensor
from ipu.learn.train import Gathered, Trainer
from ipu.learn.variables import Variable
from ipu.learn.worker import Labels, Rules, Worker
from ipu.machine.replica_device import ReplicaDevice
from ipu.machine.stacked import NotTogetherError, StackedArray, StackedValues

__all__ = ["ReplicaBatch", "batches_of", "why_apart"]

#: Replicas from which on a batch takes less time than one after the other, and most of a batch.
FEWEST, MOST = 2, 128

#: Numbers in the variables of a batch: more would leave the caches, and gain nothing.
ROOM = 1 << 22


class _BatchWorker(Worker):
    """The variables of all replicas of a batch, and what their steps do."""

    device: ReplicaDevice

    def __init__(self, device: ReplicaDevice, first: Worker) -> None:
        numbering = first.numbering
        super().__init__(
            device, first.variables.seed, first.policy, private=not numbering.identical,
            nearest=numbering.nearest,
        )
        self.numbering.of_replica = device.source = device.keys
        self.variables.regularizers = first.variables.regularizers

    def input(self, x: Any) -> Tensor:
        fmt = self.policy.default.activations
        if isinstance(x, StackedArray):
            return Tensor(self.device.cast(x, fmt), self.device, "input")
        return Tensor(self.device.stacked(x, fmt), self.device, "input")

    @staticmethod
    def cross_entropy(logits: Tensor, labels: Labels) -> Tensor:
        rows = labels.reshape(-1)
        is_usual = len(logits.shape) == 2 and labels.shape[1:] == logits.shape[:1]
        classes = logits.shape[-1] if is_usual else 0
        if rows.dtype.kind not in "iu" or not 0 <= rows.min() <= rows.max() < classes:
            for of_replica in labels:
                losses.checked_labels(logits, of_replica)
        return ops.softmax_cross_entropy(logits, labels=StackedValues(labels))


@usual_arithmetic_in()
class ReplicaBatch:
    """Some consecutive replicas of a training.

    workers    one for each.
    first      number of the first among those of this process.
    """

    def __init__(self, workers: Sequence[Worker], first: int) -> None:
        self.workers, self.first = workers, first
        numberings = [worker.numbering for worker in workers]
        common = numberings[0].common
        assert common is not None
        sources = [numbering.of_replica for numbering in numberings]
        seeds = [source.seed or 0 for source in sources if source is not None]
        self.device = ReplicaDevice(workers[0].device, common.seed, seeds)
        self.worker = _BatchWorker(self.device, workers[0])
        #: The gradients of the step, and what it notes.
        self.pairs: Pairs = ()
        self.updates = PendingUpdates()
        self._before: dict[str, Array] = {}

    def begin(self) -> None:
        """Take the replicas as they are at the start of a step."""
        workers, worker, device = self.workers, self.worker, self.device
        first = workers[0]
        device.forget()
        device.control = first.device.control
        device.partials, device.conv_partials = first.device.partials, first.device.conv_partials
        device.planner, device.conv_planner = first.device.planner, first.device.conv_planner
        worker.policy = worker.variables.policy = first.policy
        worker.numbering.step = first.numbering.step
        worker.numbering.begin()
        names = list(first.variables)
        if any(list(w.variables) != names or w.slots.keys() != first.slots.keys() for w in workers):
            raise NotTogetherError("replicas with other variables")
        for name, variable in first.variables.items():
            array = device.joined([w.variables[name].array for w in workers])
            self._before[name] = array
            if name not in worker.variables:
                worker.variables[name] = Variable(array, device, name, variable.trainable)
            worker.variables[name].array = array
        worker.slots = {
            name: tuple(
                device.joined(arrays)
                for arrays in zip(*(w.slots[name] for w in workers), strict=True)
            )
            for name in first.slots
        }

    def cut(self, batch: Any, labels: Labels, start: int, size: int) -> tuple[Any, Labels]:
        """Inputs and labels of the replicas of one micro-batch, `size` each.

        start    of the micro-batch's samples of the first replica of all.
        """
        n = len(self.workers)
        part = slice(start + self.first * size, start + (self.first + n) * size)
        numbers = batch.carrier[part] if isinstance(batch, Array) else batch[part]
        numbers = numbers.reshape(n, size, *numbers.shape[1:])
        if isinstance(batch, Array):
            numbers = StackedArray(numbers, batch.context)
        return numbers, np.asarray(labels)[part].reshape(n, size)

    def rows(self, x: Array) -> NDArray[Any]:
        """The values of each replica."""
        if isinstance(x, StackedArray):
            return x.stack
        return np.repeat(x.carrier[None], len(self.workers), axis=0)

    def gathered(self) -> list[Gathered]:
        """Gradients and what is noted, of each replica."""
        columns = [self._split(gradient) for gradient, _ in self.pairs]
        noted = [(variable.name, self._split(array)) for variable, array in self.updates.noted]
        result = []
        for r, worker in enumerate(self.workers):
            variables, updates = worker.variables, PendingUpdates()
            for name, arrays in noted:
                updates.note(variables[name], arrays[r])
            pairs = [
                (column[r], variables[variable.name])
                for column, (_, variable) in zip(columns, self.pairs, strict=True)
            ]
            result.append(Gathered(pairs, updates))
        return result

    def _split(self, x: Array) -> list[Array]:
        """An array of the batch as one on the device of each replica."""
        fmt, rows = x.format, self.rows(x)
        return [
            Array(rows[r, ...], worker.device.context(fmt))  # an array too where it is one number
            for r, worker in enumerate(self.workers)
        ]

    def give(self) -> None:
        """The replicas' devices get what operations have left behind here."""
        self.device.give_to([worker.device for worker in self.workers])
        for worker in self.workers:
            worker.numbering.numbers.update(self.worker.numbering.numbers)

    def update(self, rules: Rules, following: Any, *, applied: bool) -> None:
        """The variables of the batch take their step, by its gradients."""
        self.worker.slots = self.worker.update(
            self.pairs, self.updates, rules, following, applied=applied, observe=None
        )

    def publish(self) -> list[dict[str, tuple[Array, ...]]]:
        """The replicas' variables take their new values; the slots of each."""
        for name, variable in self.worker.variables.items():
            if variable.array is not self._before[name]:
                for worker, array in zip(self.workers, self._split(variable.array), strict=True):
                    worker.variables[name].array = array
        slots: list[dict[str, tuple[Array, ...]]] = [{} for _ in self.workers]
        for name, arrays in self.worker.slots.items():
            columns = [self._split(array) for array in arrays]
            for r, of_worker in enumerate(slots):
                of_worker[name] = tuple(column[r] for column in columns)
        return slots


def batches_of(workers: Sequence[Worker]) -> list[ReplicaBatch]:
    """The replicas of a process in batches."""
    most = _most(workers[0])
    return [ReplicaBatch(workers[i : i + most], i) for i in range(0, len(workers), most)]


def _most(worker: Worker) -> int:
    """Replicas of a batch."""
    n = sum(variable.array.size for variable in worker.variables.values())
    return max(1, min(MOST, ROOM // max(1, n)))


def why_apart(training: Trainer, statistic: Statistic) -> str:
    """Why the replicas of a training run one after the other in a step; "" where they need not."""
    workers = training.workers
    first = workers[0].device
    controls = [worker.device.control for worker in workers]
    control = controls[0]
    settings = [(d.partials, d.conv_partials, d.planner) for d in (w.device for w in workers)]
    reasons = {
        "they are few": len(workers) < FEWEST,
        "their variables are large": _most(workers[0]) < FEWEST,
        "a run looks at each operation": training.run is not None or any(
            worker.note_loss is not None for worker in workers
        ),
        "an observer looks at each update": training.observe is not None,
        "operations are counted": first.counts is not None,
        "operations may trap": control.inv or control.div0 or control.oflo,
        "operations are watched": any(
            looks is not None for worker in workers
            for looks in (worker.device.watch, worker.device.recording, worker.device.notes)
        ),
        "the loss scale counts gradients": type(statistic) is not Statistic,
        "products are in blocks": any(policy.recipe for policy in training.policy.all),
        "their devices differ": any(c != control for c in controls)
        or any(s != settings[0] for s in settings),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
