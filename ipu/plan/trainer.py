"""The training step under a plan: stages on several IPUs, in replicas that hold equal weights.

Each replica runs the programs of the plan on micro-batches of its own and accumulates; the
accumulated gradients are summed over replicas, multiplied by fl(1/R), unscaled and applied, once a
step. The bits depend on the model, data, formats, control bits, seed, the numbers of micro-batches
and replicas, the accumulation and the order of the sum over replicas, and on nothing else of a
plan. One process computes all replicas, or the processes of a group some of them each.

Source    docs/semantics.md §2 and §8; Graphcore's TensorFlow, pipelining_ops.py and
          cross_replica_optimizer.py (sum, then the mean, then the optimiser).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.records.formats import Format
from fpsim.state.processor import usual_arithmetic
from ipu.learn import train
from ipu.learn.accumulate import Reduction
from ipu.learn.address import averaging
from ipu.learn.loss_scale import LossScale, Statistic
from ipu.learn.optim import Observer, Optimizer
from ipu.learn.policy import FP32, PolicyLike
from ipu.learn.tensor import Tensor
from ipu.learn.train import Gathered
from ipu.learn.training_run import TrainingRun
from ipu.learn.variables import Variable
from ipu.learn.worker import Labels, Worker
from ipu.machine.control import POWER_ON, FpCtl
from ipu.machine.cost.planner import Planner
from ipu.machine.device import Device
from ipu.machine.stacked import NotTogetherError
from ipu.machine.target import MK2, Target
from ipu.plan.collectives import Group, Summands
from ipu.plan.explain import check_fit, explain
from ipu.plan.loop import MicroBatchLoop
from ipu.plan.memory import StageFigures
from ipu.plan.metering import Costs, StageMeter
from ipu.plan.orders import Order, Ring, buckets
from ipu.plan.pipeline import Batch, Pipeline
from ipu.plan.plan import Plan
from ipu.plan.replica_batches import ReplicaBatch, batches_of, why_apart
from ipu.plan.sharding import gathered_slots, shards_of, write_back
from ipu.plan.stage import as_values

__all__ = ["PlanTrainer", "Trainer", "chain"]


def chain(plan: Plan) -> Callable[[Tensor], Tensor]:
    """The stages of a plan as one model, without a cut."""

    def model(x: Tensor) -> Tensor:
        values: tuple[object, ...] = (x,)
        for position in plan.positions:
            values = tuple(value for run in position for value in as_values(run(*values)))
        (logits,) = values
        assert isinstance(logits, Tensor)
        return logits

    return model


class PlanTrainer(train.Trainer):
    """A training by a plan, with the rules of `ipu.learn.train.Trainer`.

    plan         stages, schedule, micro-batches, replicas.
    replica_identical_only    with ESR, only what every replica must compute alike rounds
                 stochastically: the sums over replicas and the updates.
    private_updates    updates draw random bits of their replica, as with unequal seeds on the
                 machine: the weights of the replicas drift apart.
    group        the processes that compute the replicas; None: this one computes all.

    The other arguments are those of `ipu.learn.train.Trainer`; the plan accumulates.

    >>> from ipu.learn.nn import dense, relu
    >>> from ipu.learn.optim import SGD
    >>> stages = [lambda x: relu(dense(x, 4, "first")), lambda x: dense(x, 2, "second")]
    >>> trainer = PlanTrainer(SGD(0.1), plan=Plan(stages, count=4))
    >>> x, labels = np.eye(8), np.arange(8) % 2
    >>> loss = trainer.step(x, labels)
    >>> whole = PlanTrainer(SGD(0.1), plan=Plan([lambda x: stages[1](stages[0](x))], count=4))
    >>> loss == whole.step(x, labels)
    True
    """

    #: Why the replicas ran one after the other in the last step; "" where they ran together.
    apart = ""
    #: What could not run together in a step before.
    _refused = ""
    #: Replicas that run together, and those whose gradients are applied next.
    _batches: list[ReplicaBatch] | None = None
    _joined: list[ReplicaBatch] | None = None

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        plan: Plan,
        policy: PolicyLike | str = FP32,
        control: FpCtl = POWER_ON,
        loss_scale: LossScale | float | None = None,
        seed: int = 0,
        rounding_seed: int | None = None,
        random: str = "philox",
        observe: Observer | None = None,
        target: Target | str = MK2,
        preset: str = "window",
        f32_denormals: str = "flush",
        max_nan: str = "number",
        sums: str = "spread",
        conv_partials: Format | str | None = None,
        planner: Planner | None = None,
        count: bool = False,
        disable_sr_for_amp_vertices: bool = False,
        replica_identical_only: bool = False,
        private_updates: bool = False,
        group: Group | None = None,
        run: TrainingRun | None = None,
    ) -> None:
        _check_choices(
            plan, observe, random, replica_identical_only=replica_identical_only,
            private_updates=private_updates,
        )
        self.plan = plan
        self.group = group or Group()
        #: What the first step has cost, stage by stage; None before it.
        self.figures: tuple[StageFigures, ...] | None = None
        self.replica_identical_only = replica_identical_only
        self.private_updates = private_updates
        self._measuring: tuple[StageMeter, Pipeline] | None = None
        super().__init__(
            chain(plan), optimizer, policy=policy, control=control, loss_scale=loss_scale,
            accumulation=plan.accumulation, seed=seed, rounding_seed=rounding_seed,
            observe=observe, target=target, preset=preset, f32_denormals=f32_denormals,
            max_nan=max_nan, sums=sums, conv_partials=conv_partials, planner=planner, count=count,
            disable_sr_for_amp_vertices=disable_sr_for_amp_vertices, run=run,
        )
        if plan.shard_state and len(self.own_replicas) < plan.replicas:
            warnings.warn(
                "shard_state=True: in a group every process updates whole variables, which gives "
                "the same bits; only the account counts shards",
                RuntimeWarning,
                stacklevel=2,
            )
        elif plan.shard_state and not optimizer.elementwise:
            warnings.warn(
                f"{type(optimizer).__name__} is no elementwise rule: its state is not sharded",
                RuntimeWarning,
                stacklevel=2,
            )

    def _make_workers(self, device: Callable[[], Device], seed: int) -> list[Worker]:
        def worker(replica: int) -> Worker:
            return Worker(
                device(), seed, self.policy, replica, private=self.private_updates,
                nearest=self.replica_identical_only,
            )

        replicas = self.own_replicas
        self.group.prepare(worker)
        return [worker(replica) for replica in replicas]

    @property
    def own_replicas(self) -> range:
        """The replicas that this process computes."""
        return self.group.own(self.plan.replicas)

    def built(self) -> dict[str, str]:
        plan = self.plan
        assert isinstance(plan.order, Order)
        return {
            "replicas": f"{plan.replicas}",
            "order of the sum over replicas": f"{plan.order.value}, {Ring(plan.ring).value}",
            "buffer_size": f"{plan.buffer_size}",
            "shared_gradients": plan.shared_gradients,
            "replica_identical_only": str(self.replica_identical_only),
            "private_updates": str(self.private_updates),
        }

    def forward(self, x: ArrayLike | Array) -> Tensor:
        """Logits of a batch by the first replica; the first call creates all variables."""
        for worker in self.workers[1:]:
            if not worker.variables:
                self.build(worker, x)
        return super().forward(x)

    def build(self, worker: Worker, x: ArrayLike | Array) -> None:
        """Create the variables of a worker that has none, from a batch of inputs."""
        with worker.evaluating():
            self._logits(x, worker)

    # The step -------------------------------------------------------------------------------

    def step(self, x: ArrayLike | Array, labels: Labels) -> float:
        """One step of training, as `ipu.learn.train.Trainer.step`.

        In a group the batch is that of this process: micro-batch m of its l-th replica is number
        m·L + l. The loss is the mean over all replicas.
        """
        with self.group.step(self, x):
            return super().step(x, labels)

    @usual_arithmetic
    def _gradients(
        self, x: ArrayLike | Array, labels: Labels, statistic: Statistic
    ) -> tuple[float, list[Gathered]]:
        """Loss and scaled gradients of a batch, of each replica."""
        self._joined = None
        self.apart = self._why_apart(statistic)
        if not self.apart:
            try:
                return self._gradients_together(x, labels, statistic)
            except NotTogetherError as reason:
                self.apart = self._refused = str(reason)
        meter = StageMeter(self.plan, self.device) if self.figures is None else None
        pipelines = self._pipelines(x, labels, statistic, meter)
        self._measuring = None if meter is None else (meter, pipelines[0])
        loop = MicroBatchLoop(
            self.plan, [worker.device for worker in self.workers], self.own_replicas[0],
            measures=meter is not None,
        )
        with ExitStack() as stack:
            for pipeline in pipelines:
                stack.enter_context(pipeline.worker.all_or_none())
            loop.run(len(pipelines), lambda m, replica: pipelines[replica].run(m, loop))
            if meter is not None:
                meter.spent(loop)
            gathered = [pipeline.gathered() for pipeline in pipelines]
            table = [
                [float(pipeline.losses[m]) for pipeline in pipelines]
                for m in range(self.plan.count)
            ]
            losses = self.group.agree(np.array(table), statistic)
            if self.plan.replicas > 1:
                gathered = self._reduced(gathered)
        return float(np.mean(losses)), gathered

    def _why_apart(self, statistic: Statistic) -> str:
        if self.figures is None:
            return "the first step is measured"
        if self.plan.shard_state:
            return "their state is sharded"
        return self._refused or why_apart(self, statistic)

    def _gradients_together(
        self, x: ArrayLike | Array, labels: Labels, statistic: Statistic
    ) -> tuple[float, list[Gathered]]:
        """The same, of many replicas at once.

        Raises    NotTogetherError, and nothing has changed, where they run one after the other.
        """
        plan, n = self.plan, len(self.workers)
        batch = self._checked_batch(x)
        next(train.cut(batch, labels, plan.count * n))
        size = len(batch) // (plan.count * n)
        if self._batches is None:
            self._batches = batches_of(self.workers)
        table = np.empty((plan.count, n))
        for replicas in self._batches:
            columns = slice(replicas.first, replicas.first + len(replicas.workers))
            table[:, columns] = self._run_together(replicas, batch, labels, size, statistic)
        losses = self.group.agree(table, statistic)
        if plan.replicas > 1:
            of_all = [row for replicas in self._batches for row in replicas.gathered()]
            sums = self._sums(of_all)
            for replicas in self._batches:
                replicas.pairs = [
                    (self._mean(total, replicas.worker, variable), variable)
                    for total, (_, variable) in zip(sums, replicas.pairs, strict=True)
                ]
        for replicas in self._batches:
            replicas.give()
        self._joined, self._measuring = self._batches, None
        of_all = [row for replicas in self._batches for row in replicas.gathered()]
        return float(np.mean(losses)), of_all

    def _run_together(
        self, replicas: ReplicaBatch, batch: Any, labels: Labels, size: int, statistic: Statistic
    ) -> list[NDArray[Any]]:
        """The losses of each micro-batch; the gradients are noted.

        size    samples of a micro-batch.
        """
        plan, stride = self.plan, len(self.workers) * size
        replicas.begin()
        cuts = [Batch(*replicas.cut(batch, labels, m * stride, size)) for m in range(plan.count)]
        assert self.accumulation is not None
        pipeline = Pipeline(
            plan, replicas.worker, cuts, self.loss_scale, statistic, self.accumulation
        )
        loop = MicroBatchLoop(plan, [replicas.device], self.own_replicas[0] + replicas.first)
        loop.run(1, lambda m, _: pipeline.run(m, loop))
        replicas.pairs, replicas.updates = pipeline.gathered()
        return [replicas.rows(pipeline.losses[m]) for m in range(plan.count)]

    def _checked_batch(self, x: ArrayLike | Array) -> Any:
        batch = x if isinstance(x, Array) else np.asarray(x)
        if batch.ndim == 0:
            raise ValueError("a batch of shape () holds no samples; pass one or more")
        self.plan.micro_batch(len(batch), len(self.own_replicas))
        return batch

    def _pipelines(
        self, x: ArrayLike | Array, labels: Labels, statistic: Statistic, meter: StageMeter | None
    ) -> list[Pipeline]:
        """A pipeline for each replica, whose micro-batch m is number m·L + l of the batch."""
        batch, replicas = self._checked_batch(x), self.own_replicas
        share = self.plan.count * len(replicas)
        batches = [Batch(*pair) for pair in train.cut(batch, labels, share)]
        assert self.accumulation is not None
        return [
            Pipeline(
                self.plan, worker, batches[i :: len(replicas)], self.loss_scale, statistic,
                self.accumulation, meter.note if meter and i == 0 else None,
            )
            for i, worker in enumerate(self.workers)
        ]

    def _reduced(self, gathered: Sequence[Gathered]) -> list[Gathered]:
        """The mean over replicas, on each of them."""
        sums = self._sums(gathered)
        return [
            Gathered(
                [
                    (self._mean(total, worker, variable), variable)
                    for total, (_, variable) in zip(sums, of.pairs, strict=True)
                ],
                of.updates,
            )
            for worker, of in zip(self.workers, gathered, strict=True)
        ]

    def _sums(self, gathered: Sequence[Gathered]) -> list[Array]:
        """The sum over replicas of each variable's gradients."""
        plan, numberings = self.plan, [worker.numbering for worker in self.workers]
        first = gathered[0].pairs
        kinds = [(gradient.format, gradient.storage_bytes) for gradient, _ in first]
        joined = buckets(kinds, plan.buffer_size)
        jobs = [
            Summands(
                [_joined([of.pairs[v][0] for v in bucket]) for of in gathered], bucket[0],
                first[bucket[0]][1].name,
            )
            for bucket in joined
        ]
        totals = []
        sums = self.group.sums(jobs, numberings, plan.order, plan.ring)
        for bucket, sum_ in zip(joined, sums, strict=True):
            start = 0
            for v in bucket:
                gradient = first[v][0]
                part = sum_.reshape(-1)[start : start + gradient.size]
                totals.append(part.reshape(gradient.shape))
                start += gradient.size
        return totals

    @usual_arithmetic
    def _mean(self, sum_: Array, worker: Worker, variable: Variable) -> Array:
        total = worker.device.context(sum_.format).wrap(sum_.carrier)
        with worker.numbering.in_use(), averaging(variable):
            return worker.device.multiply(total, 1 / self.plan.replicas)

    def _update(
        self, gathered: Sequence[Gathered], following: LossScale, *, applied: bool
    ) -> list[dict[str, tuple[Array, ...]]]:
        """The slots of each replica after its variables have taken their step.

        Raises    OutOfMemoryError in the first step of a plan that does not fit the target.
        """
        if self._joined is not None:
            try:
                return self._updated_together(self._joined, following, applied=applied)
            except NotTogetherError as reason:
                self.apart = self._refused = str(reason)
        if self._measuring is None:
            return self._updated(gathered, following, applied=applied)
        meter, pipeline = self._measuring
        with meter.updating():
            slots = self._updated(gathered, following, applied=applied)
        accumulators = {variable.name: gradient for gradient, variable in gathered[0].pairs}
        figures = meter.figures(pipeline.used, slots[0], accumulators)
        check_fit(self.plan, figures, self.device.target)
        if applied:
            self.figures = figures
            if self.run is not None:
                self.run.note_costs(self, Costs(self.plan, figures))
        return slots

    def _updated_together(
        self, batches: Sequence[ReplicaBatch], following: LossScale, *, applied: bool
    ) -> list[dict[str, tuple[Array, ...]]]:
        for replicas in batches:
            replicas.update(self, following, applied=applied)
        for replicas in batches:
            replicas.give()
        return [slots for replicas in batches for slots in replicas.publish()]

    def _updated(
        self, gathered: Sequence[Gathered], following: LossScale, *, applied: bool
    ) -> list[dict[str, tuple[Array, ...]]]:
        plan = self.plan
        with self._named_updates():
            here = len(self.workers) == plan.replicas
            if not (plan.shard_state and self.optimizer.elementwise and here):
                return super()._update(gathered, following, applied=applied)
            shards = [
                shards_of(worker, of_worker.pairs, r, plan)
                for r, (worker, of_worker) in enumerate(zip(self.workers, gathered, strict=True))
            ]
            after = [
                worker.update(
                    shard.pairs, of_worker.updates, self, following, applied=applied, observe=None,
                    slots=shard.slots,
                )
                for worker, of_worker, shard in zip(self.workers, gathered, shards, strict=True)
            ]
            write_back(self.workers, shards)
            return gathered_slots(self.workers, shards, after)

    def explain(self) -> str:
        """The plan's use of time and memory, by the figures of the first step.

        Raises    RuntimeError before the first step.
        """
        if self.figures is None:
            raise RuntimeError("no step has been measured yet; call trainer.step(x, labels) first")
        return explain(self.plan, self.figures, self.device.target)

    @contextmanager
    def _named_updates(self) -> Iterator[None]:
        for replica, worker in zip(self.own_replicas, self.workers, strict=True):
            worker.device.program = f"replica {replica}, update"
        try:
            yield
        finally:
            for worker in self.workers:
                worker.device.program = ""


#: The old name of `PlanTrainer`, for one version.
Trainer = PlanTrainer


def _joined(gradients: Sequence[Array]) -> Array:
    """Several gradients of one format as one flat tensor."""
    if len(gradients) == 1:
        return gradients[0]
    flat = np.concatenate([gradient.carrier.reshape(-1) for gradient in gradients])
    return Array(flat, gradients[0].context)


def _check_choices(plan: Plan, observe: Observer | None, random: str, **switches: bool) -> None:
    """Refuse what a training by a plan cannot do."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan={plan!r} is not a plan; use Plan([stage, …], count=…)")
    if not plan.training:
        raise ValueError("plan has training=False; a PlanTrainer needs the backward stages too")
    if random != "philox":
        raise ValueError(
            f"random={random!r} goes on from operation to operation, and a plan moves these; "
            "a plan needs Philox: leave random out, or use ipu.learn.train.Trainer"
        )
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name}={value!r} is not a bool; use True or False")
    if plan.shard_state and observe is not None:
        raise ValueError(
            "observe= is called with whole updates, and shard_state=True has parts of them; "
            "leave one out, the bits are equal"
        )
    if plan.shared_gradients == "stage":
        _check_stage_sums(plan)


def _check_stage_sums(plan: Plan) -> None:
    """Sums stage by stage exist without running means; they depend on the schedule."""
    if plan.reduction is Reduction.RUNNING_MEAN:
        raise ValueError(
            "shared_gradients='stage' adds the parts of a gradient at different times, which a "
            "running mean cannot; use reduction='sum' or 'mean'"
        )
    warnings.warn(
        "shared_gradients='stage': the gradients of variables that stages share are summed in the "
        "order of the schedule, so the bits depend on the plan",
        RuntimeWarning,
        stacklevel=4,
    )
