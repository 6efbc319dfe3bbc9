"""A training whose replicas are computed by several processes; it prints its digest.

The workers are those of the environment: TF_CONFIG, or the variables that `fpsim poprun` sets.
Without them, threads of this process are the workers. The digest is the same for any number of
workers and any transport.

Exit status: 1 for a trap and a checkpoint that cannot be written, 2 where the workers do not come
together, 3 where a worker is lost, 130 after ^C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipu.experiments.commands.options import Seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from ipu.learn.tensor import Tensor
    from ipu.members.cluster import Cluster
    from ipu.members.group import Processes
    from ipu.members.transport import Transport
    from ipu.plan.plan import Plan
    from ipu.plan.trainer import PlanTrainer

FEATURES, CLASSES = 32, 10
#: Micro-batches of an update, and samples of each on each replica.
COUNT, SAMPLES = 2, 8


@dataclass(frozen=True)
class DistributedArguments:
    """What was asked for; see the help of each option."""

    quick: bool
    order: str | None
    seed: int
    steps: int | None
    replicas: int | None
    workers: int
    nearest: bool
    checkpoint: Path | None
    save_every: int

    @property
    def n_steps(self) -> int:
        """Steps of the training."""
        return self.steps if self.steps is not None else (6 if self.quick else 100)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="6 steps in place of 100.")
@click.option(
    "--order",
    default=None,
    metavar="NAME",
    help="Order of the sum over replicas (default: FPSIM_ORDER, else auto).",
)
@click.option("--seed", type=Seed(), default=0, help="Of weights, data and random bits.")
@click.option("--steps", type=click.IntRange(0), default=None, help="Steps of the training.")
@click.option(
    "--replicas",
    type=click.IntRange(1),
    default=None,
    help="R; default: those of the environment, else two.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    help="Threads, where the environment names no workers.",
)
@click.option("--nearest", is_flag=True, help="No stochastic rounding.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder that the state is saved in, and resumed from; all workers reach it.",
)
@click.option("--save-every", type=click.IntRange(1), default=10, help="Steps between two saves.")
def command(**arguments: Any) -> int:
    """Train a small network on several workers and print its digest."""
    from fpsim.records.flags import FloatingPointTrap
    from ipu.members.cluster import Cluster
    from ipu.members.transport import JoinError, Kind, StoppedError

    options = DistributedArguments(**arguments)
    try:
        cluster = Cluster.from_environment()
        if cluster is None or cluster.transport == "local":
            return run_threads(cluster, options)
        if options.replicas is not None:
            cluster = cluster.with_replicas(options.replicas)
        return run_worker(cluster, options)
    except (JoinError, ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from None
    except StoppedError as stop:
        print(f"distributed_training: {stop}", file=sys.stderr)
        return 130 if stop.reason.kind is Kind.INTERRUPTED else 3
    except (FloatingPointTrap, OSError) as error:
        print(f"distributed_training: stopped: {error}", file=sys.stderr)
        return 1


def run_threads(cluster: Cluster | None, options: DistributedArguments) -> int:
    """All workers in this process."""
    from ipu.learn.checkpoint import interrupt_later
    from ipu.members.cluster import Cluster
    from ipu.members.local_transport import run_local

    size = options.workers if cluster is None else cluster.size
    replicas = options.replicas or (max(2, size) if cluster is None else cluster.replicas)
    order = None if cluster is None else cluster.order
    clusters = [Cluster(rank, size, replicas, order=order) for rank in range(size)]
    with interrupt_later() as interrupted:
        return max(run_local(size, lambda transport: train(
            transport, clusters[transport.rank], options, interrupted
        )))


def run_worker(cluster: Cluster, options: DistributedArguments) -> int:
    """This process as one worker of a cluster."""
    from ipu.learn.checkpoint import interrupt_later
    from ipu.members.connect import connect, leaving

    # ^C ends the wait for others at once; later it waits for the end of a step.
    transport = connect(cluster, f"program: distributed_training\n{_text(cluster, options)}")
    with leaving(transport), interrupt_later() as interrupted:
        return train(transport, cluster, options, interrupted)


def train(
    transport: Transport, cluster: Cluster, options: DistributedArguments,
    interrupted: Callable[[], bool],
) -> int:
    """Train to the end, or until a worker is interrupted; the exit status."""
    from ipu.members.group import Processes

    group = Processes(transport, cluster.replicas, interrupted=interrupted)
    training = build(group, cluster, options)
    plan = training.plan
    with _saving(group, training, options) as save:
        while training.steps < options.n_steps:
            x, labels = batch(options.seed, training.steps, plan)
            replicas = group.own(plan.replicas)
            loss = training.step(share(x, plan, replicas), share(labels, plan, replicas))
            stopped = bool(group.stopping)
            if stopped or training.steps % options.save_every == 0:
                save()
            if transport.rank == 0:
                print(f"step {training.steps} loss {loss:.6f}", flush=True)
            if stopped:
                _tell_interrupted(group, options)
                return 130
    group.finish(training)
    print(f"digest {group.digest(training)}", flush=True)
    return 0


def build(group: Processes, cluster: Cluster, options: DistributedArguments) -> PlanTrainer:
    """The training of this worker's replicas."""
    from ipu.learn.optim import SGD
    from ipu.learn.policy import FP16
    from ipu.machine import FpCtl
    from ipu.plan.plan import Plan
    from ipu.plan.trainer import PlanTrainer

    order = options.order or cluster.order or "auto"
    plan = Plan([model], count=COUNT, replicas=cluster.replicas, order=order)
    return PlanTrainer(
        SGD(0.05, 0.9), plan=plan, policy=FP16, control=FpCtl(esr=not options.nearest),
        seed=options.seed, count=True, group=group,
    )


def model(x: Tensor) -> Tensor:
    """Two layers with moving statistics and random masks."""
    from ipu.learn import nn

    hidden = nn.relu(nn.batch_norm(nn.dense(x, 64, "hidden"), "norm"))
    return nn.dense(nn.dropout(hidden, 0.1), CLASSES, "logits")


def batch(seed: int, step: int, plan: Plan) -> tuple[NDArray[Any], NDArray[Any]]:
    """The batch of all replicas: noise around a point for each class."""
    import numpy as np

    centres = np.random.default_rng([seed, 0]).standard_normal((CLASSES, FEATURES))
    rng = np.random.default_rng([seed, 1, step])
    labels = rng.integers(0, CLASSES, plan.samples(SAMPLES))
    return centres[labels] + rng.standard_normal((len(labels), FEATURES)), labels


def share(values: NDArray[np.generic], plan: Plan, replicas: range) -> NDArray[Any]:
    """The samples of a worker's replicas: micro-batch m·R + r of the batch is replica r's."""
    size = plan.micro_batch(len(values))
    blocks = values.reshape(plan.count, plan.replicas, size, *values.shape[1:])
    return blocks[:, replicas.start : replicas.stop].reshape(-1, *values.shape[1:])


def _text(cluster: Cluster, options: DistributedArguments) -> str:
    """What must be equal on all workers."""
    from ipu.plan.orders import Order

    rows = {
        "seed": options.seed, "steps": options.n_steps, "replicas": cluster.replicas,
        "order": options.order or (cluster.order or Order.AUTO).value, "nearest": options.nearest,
        "save_every": options.save_every, "checkpoint": options.checkpoint is not None,
    }
    return "\n".join(f"{name}: {value}" for name, value in rows.items())


@contextmanager
def _saving(
    group: Processes, training: PlanTrainer, options: DistributedArguments
) -> Iterator[Callable[[], None]]:
    """Go on from the latest checkpoint; yields what saves one."""
    if options.checkpoint is None:
        yield lambda: None
        return
    from ipu.members.checkpoints import Checkpoints

    with Checkpoints(options.checkpoint, group) as checkpoints:
        step = checkpoints.latest()
        if step is not None:
            x, _ = batch(options.seed, 0, training.plan)
            training.forward(x[:SAMPLES])
            checkpoints.resume(training, step)
            if group.channel.rank == 0:
                print(f"resumed after step {step}", flush=True)
        yield lambda: checkpoints.save(training)


def _tell_interrupted(group: Processes, options: DistributedArguments) -> None:
    place = "nothing was saved" if options.checkpoint is None else f"saved in {options.checkpoint}"
    who = group.transport.describe(group.stopping[0])
    print(f"distributed_training: {who} was interrupted; {place}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    from ipu.experiments.cli import run

    line = sys.argv[1:] if arguments is None else arguments
    return run(command, line, "distributed_training")


if __name__ == "__main__":
    sys.exit(main())
