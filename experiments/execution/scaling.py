"""Time of a step over the number of replicas: an account's model, and processes of this machine.

Each replica has 16 samples, so more replicas train on more samples in one step. The model is that
of a plan's account (`ipu.plan.cycles`): cycles of the programs of a measured step, and one flat
ring that sends 2(R-1)/R of the gradients over each link. Behind LINKED replicas the ring crosses
machines and goes as slowly as its slowest link. The account has no latency; the experiment adds
2(R-1) hops, each of a declared time. All of these constants are ASSUMED, so the model says which
sizes matter and is no promise of time. With G micro-batches between two sums the same ring serves G
times the work.

Workers with their variables on the host are an account of their own, by
`ipu.frontends.processes.overlap`: gradients go out as they are computed, hosts sum them over the
network between machines, weights come back, and what the device waits for after its backward pass
is exposed.

What is measured is the simulation on this machine, with replicas in one process and in processes
over gRPC and MPI where they are installed. A simulated replica is slow and a loopback is no link:
the two pictures share an axis and no scale. Measured rows are local.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fpsim.records.evidence import Evidence, Fact
from ipu.experiments.execution.measured_plans import BATCH, MOMENTUM, RATE, STAGES, measure
from ipu.experiments.lab.instances import TRANSPORTS, run_instances, why_not
from ipu.experiments.lab.result import Result, Row, Table, UnitUsed
from ipu.experiments.training import digits
from ipu.frontends.processes.overlap import BETWEEN, HOP_BETWEEN, account, layer_of
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.tensor import Tensor
from ipu.machine import FpCtl
from ipu.machine.target import MK2
from ipu.members.cluster import Cluster
from ipu.members.connect import connect, leaving
from ipu.members.group import Processes
from ipu.members.transport import Transport
from ipu.plan.collectives import Group
from ipu.plan.cycles import HOST, LINK, Rates, timeline
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "How many replicas does a step of training pay for?"
BUDGET = 55
DEFAULT = False

_ASSUMED = Evidence.ASSUMED
LINKED = Fact(64, _ASSUMED, "replicas of one IPU that IPU-Links join into one machine; declared")
HOP = Fact(1e-6, _ASSUMED, "seconds of a hop over a link between two IPUs; declared")
#: Constants by the names that a report gives them.
CONSTANTS = {
    "replicas joined by links": LINKED, "link between IPUs, bytes/s": LINK,
    "network between machines, bytes/s": BETWEEN, "hop over a link, s": HOP,
    "hop between machines, s": HOP_BETWEEN, "host of a machine, bytes/s": HOST,
    "clock, Hz": MK2.clock,
}

REPLICAS = tuple(2**k for k in range(11))
#: Micro-batches between two sums.
COUNTS = (1, 8, 64)
#: Workers of the account of overlap, and multiples of a micro-batch that each step computes.
WORKERS, LOADS = (2, 4, 16), (1, 64, 4096)
#: A step that takes more than this share longer than one replica's is called expensive.
PAYS = 0.5
#: Replicas of measured steps, and steps of which the median counts.
MEASURED, QUICK_MEASURED, STEPS, QUICK_STEPS = (1, 2, 4, 8), (1, 2), 15, 3
#: The most processes of a transport.
MOST_PROCESSES = 4
ONE = "one process"


def run(quick: bool, seed: int) -> Result:
    figures = measure(_plan(1, 1), seed).figures
    rows = [model(figures, replicas, count) for count in COUNTS for replicas in REPLICAS]
    layers = measure(Plan(STAGES, mapping=[0] * len(STAGES), schedule="sequential",
                          check_memory=False), seed).figures
    rows += [overlapped(layers, workers, load) for load in LOADS for workers in WORKERS]
    steps = QUICK_STEPS if quick else STEPS
    local, missing = _measured(QUICK_MEASURED if quick else MEASURED, steps, seed)
    size = figures[0].accumulator_bytes
    parameters = {"network": "six dense layers on digits", "samples of a replica": BATCH,
                  "bytes of gradients": size, "seed": seed, "left out": missing}
    units = tuple(
        UnitUsed(f"{name} = {fact.value:g}", str(fact.evidence), fact.source)
        for name, fact in CONSTANTS.items()
    )
    policy = "p=f16,c=f16,part=f32, rounding=SR"
    return Result(rows, _answer(rows, local, missing), policy, parameters, units, local)


def _network(x: Tensor) -> Tensor:
    for stage in STAGES:
        x = stage(x)
    return x


def _plan(replicas: int, count: int) -> Plan:
    return Plan([_network], count=count, replicas=replicas, order="tf_ring", check_memory=False)


# The model --------------------------------------------------------------------------------------


class RingLinks(NamedTuple):
    """The links of a ring of replicas: the slowest bandwidth, and the hops of one of its rounds."""

    bandwidth: Fact
    seconds_of_hops: float

    @classmethod
    def of(cls, replicas: int) -> RingLinks:
        """The ring of so many replicas.

        All links send at once, so each of its 2(R-1) rounds waits for the slowest hop.

        >>> RingLinks.of(4).seconds_of_hops / HOP.value
        6.0
        """
        inside = replicas <= LINKED.value
        hop = HOP if inside else HOP_BETWEEN
        return cls(LINK if inside else BETWEEN, 2 * (replicas - 1) * hop.value)


def model(figures: Sequence[StageFigures], replicas: int, count: int) -> Row:
    """Seconds of a step, of its sum, and the throughput of a replica beside one alone."""
    ring, plan = RingLinks.of(replicas), _plan(replicas, count)
    rates = Rates(link=ring.bandwidth)
    alone, seconds = (
        max(e.start + e.cycles for e in timeline(p, figures, rates)) / MK2.clock.value
        for p in (_plan(1, count), plan)
    )
    hops = ring.seconds_of_hops
    total = seconds + hops
    return {"part": "model", "count": count, "replicas": replicas, "seconds": total,
            "bytes": seconds - alone, "hops": hops, "efficiency": alone / total}


def overlapped(figures: Sequence[StageFigures], workers: int, load: int) -> Row:
    """Seconds of a step of workers with variables on the host, and bytes that each moves.

    figures    of each layer; load: micro-batches that the backward pass takes at once.
    """
    done = account([
        layer_of(stage.backward_cycles * load / MK2.clock.value, stage.accumulator_bytes,
                 stage.parameter_bytes, workers)
        for stage in reversed(figures)
    ])
    share = 2 * (workers - 1) / workers
    size = sum(stage.accumulator_bytes for stage in figures)
    return {"part": "overlap", "load": load, "replicas": workers, "backward": done.computed,
            "communicated": done.communicated, "hidden": done.hidden, "exposed": done.exposed,
            "bytes_out": size, "bytes_sent": share * size,
            "bytes_back": sum(stage.parameter_bytes for stage in figures)}


# Measured on this machine -----------------------------------------------------------------------


def _measured(replicas: Sequence[int], steps: int, seed: int) -> tuple[list[Row], list[str]]:
    """Rows of one process and of each transport that is here, and what is left out."""
    rows = [_row(ONE, n, 1, step_seconds(n, steps, seed)) for n in replicas]
    missing = []
    for transport in TRANSPORTS:
        reason = why_not(transport)
        if reason:
            missing.append(reason)
            continue
        for n in (n for n in replicas if 1 < n <= MOST_PROCESSES):
            every = run_instances(in_process, n, transport, steps=steps, seed=seed)
            rows.append(_row(transport, n, n, np.max(every, axis=0).tolist()))
    return rows, missing


def _row(place: str, replicas: int, processes: int, seconds: Sequence[float]) -> Row:
    return {"part": "measured", "place": place, "replicas": replicas, "processes": processes,
            "seconds": float(np.median(seconds)), "least": min(seconds), "most": max(seconds),
            "samples_per_second": BATCH * replicas / float(np.median(seconds))}


def in_process(cluster: Cluster, steps: int, seed: int) -> list[float]:
    """`step_seconds` of the replicas of a process of its own."""
    transport = connect(cluster, f"experiment: scaling\nseed: {seed}\nsteps: {steps}")
    with leaving(transport):
        return step_seconds(cluster.replicas, steps, seed, transport)


def step_seconds(
    replicas: int, steps: int, seed: int, transport: Transport | None = None
) -> list[float]:
    """Seconds of each step after one that compiles; of all replicas, or of a transport's worker."""
    group = Processes(transport, replicas) if transport else Group()
    plan = _plan(replicas, 1)
    training = PlanTrainer(
        SGD(RATE, MOMENTUM), plan=plan, policy=FP16, control=FpCtl(esr=True), seed=seed, group=group
    )
    replicas_here, data = group.own(replicas), digits.load()
    seconds = []
    for step in range(steps + 1):
        first = step * plan.samples(BATCH) + replicas_here.start * BATCH
        samples = np.arange(first, first + len(replicas_here) * BATCH) % len(data.labels)
        start = time.perf_counter()
        training.step(data.images[samples], data.labels[samples])
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


# The answer --------------------------------------------------------------------------------------


def _answer(rows: Sequence[Row], local: Sequence[Row], missing: Sequence[str]) -> str:
    table = Result(rows, "", "")
    paid = []
    for count in COUNTS:
        of_count = table.select(part="model", count=count)
        most = max(int(str(r["replicas"])) for r in of_count if float(str(r["efficiency"])) >= PAYS)
        paid.append(f"{most} for {count}")
    last = table.select(part="model", count=COUNTS[0], replicas=REPLICAS[-1])[0]
    text = (
        f"By the declared model a replica keeps at least {PAYS:.0%} of its throughput up to these "
        f"numbers of replicas, by micro-batches between two sums: {', '.join(paid)}. Of "
        f"{REPLICAS[-1]} replicas with {COUNTS[0]} micro-batch it keeps "
        f"{float(str(last['efficiency'])):.1%}, and hops take "
        f"{float(str(last['hops'])) / float(str(last['seconds'])):.0%} of the step."
    )
    loaded = table.select(part="overlap", load=LOADS[-1], replicas=WORKERS[0])[0]
    share = float(str(loaded["hidden"])) / float(str(loaded["communicated"]))
    text += (
        f" With variables on the host, {WORKERS[0]} workers with {LOADS[-1]} times the samples "
        f"hide {share:.0%} of their communication behind the backward pass."
    )
    for row in local:
        if row["processes"] == max(int(str(r["processes"])) for r in local) != 1:
            alone = next(r for r in local
                         if r["place"] == ONE and r["replicas"] == row["replicas"])
            text += f" {_speed(alone, row)}"
    return f"{text} Left out: {'; '.join(missing)}." if missing else text


def _speed(alone: Row, row: Row) -> str:
    """How much faster processes are than one, or that these steps do not tell.

    A step took between its least and its largest time, so a ratio lies between those of the ends.
    """
    median, least, most = (
        np.array([float(str(r[column])) for r in (alone, row)])
        for column in ("seconds", "least", "most")
    )
    low, high = least[0] / most[1], most[0] / least[1]
    text = (
        f"Measured here, a step of {row['replicas']} simulated replicas takes "
        f"{1e3 * median[0]:.0f} ms in one process, and with {row['processes']} processes over "
        f"{row['place']}"
    )
    if low > float(str(row["processes"])):
        return f"{text} less than its share: other work ran beside it, so this tells nothing."
    if low <= 1.0 <= high:
        return f"{text} {1e3 * median[1]:.0f} ms: steps differ too much to tell which is faster."
    return f"{text} {median[0] / median[1]:.2f} times that speed ({low:.2f} to {high:.2f})."


# What is shown -----------------------------------------------------------------------------------


def tables(result: Result) -> list[Table]:
    """Measured steps, and the account of overlap; the model is drawn."""
    lines = [
        [str(r["place"]), str(r["replicas"]), str(r["processes"]),
         f"{1e3 * float(str(r['seconds'])):.1f}", f"{float(str(r['samples_per_second'])):.0f}"]
        for r in result.local
    ]
    heads = ["replicas in", "replicas", "processes", "ms of a step, median", "samples per second"]
    note = "MEASURED on this machine: the speed of the simulation, not of an IPU."
    return [Table("Measured steps", heads, lines, note), _overlap_table(result)]


def _overlap_table(result: Result) -> Table:
    lines = [
        [str(r["load"]), str(r["replicas"]),
         *(f"{1e6 * float(str(r[name])):.1f}" for name in ("backward", "communicated", "hidden",
                                                           "exposed")),
         *(f"{float(str(r[name])) / 1e3:.0f}" for name in ("bytes_out", "bytes_sent",
                                                           "bytes_back"))]
        for r in result.select(part="overlap")
    ]
    heads = ["samples, times 16", "workers", "backward, us", "communication, us", "hidden, us",
             "exposed, us", "to the host, kB", "to others, kB", "back, kB"]
    note = ("ASSUMED bandwidths and hops: an account of lengths, no promise of time. The update "
            "on the host has no length.")
    return Table("Workers with variables on the host, one step", heads, lines, note)


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, GREEN, ORANGE, new_figure

    figure, (times, efficiency, measured) = new_figure(16, 4.8, mosaic="ABC")
    for count, colour in zip(COUNTS, (ORANGE, BLUE, GREEN), strict=True):
        selection: Row = {"part": "model", "count": count}
        x, label = result.column("replicas", **selection), f"G = {count}"
        times.plot(x, 1e6 * result.column("seconds", **selection), "o-", color=colour, label=label)
        percents = 100 * result.column("efficiency", **selection)
        efficiency.plot(x, percents, "o-", color=colour, label=label)
    times.set(title="Model: time of a step", ylabel="microseconds", yscale="log")
    efficiency.set(title="Model: throughput of a replica", ylim=(0, 105),
                   ylabel="% of one replica alone")
    for axes in (times, efficiency):
        _replica_axis(axes, REPLICAS[::2])
        axes.axvline(LINKED.value, color="#444444", linewidth=0.9, linestyle=(0, (5, 2)))
        axes.annotate("network between\nmachines behind", (LINKED.value * 1.15, 0.97), fontsize=9,
                      va="top", xycoords=("data", "axes fraction"))
        axes.legend(fontsize=9, loc="lower left" if axes is efficiency else "upper left")
    _plot_measured(measured, result)
    return figure


def _replica_axis(axes: Axes, ticks: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.minorticks_off()
    axes.set_xlabel("R, replicas")


def _plot_measured(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import BLACK, PURPLE, SKY, THEORY

    names = {ONE: ("in one process", BLACK), "grpc": ("a process each, gRPC", SKY),
             "mpi": ("a process each, MPI", PURPLE)}
    table = Result(result.local, "", "")
    for place, (label, colour) in names.items():
        x = table.column("replicas", place=place)
        if len(x):
            times = 1e3 * table.column("seconds", place=place)
            axes.plot(x, times, "o-", color=colour, label=label)
    x = table.column("replicas", place=ONE)
    axes.plot(x, 1e3 * table.column("seconds", place=ONE)[0] * x, label="R times one", **THEORY)
    _replica_axis(axes, [int(n) for n in x])
    axes.set(title="Measured: simulated step on this machine", ylabel="milliseconds",
             ylim=(0, None))
    axes.legend(fontsize=9)
