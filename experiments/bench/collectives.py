"""All-reduce between processes of this machine: moving the bytes, and with the machine's sums.

Four processes on loopback have 10 MB of binary16 each. `moving` sends what a ring of four sends,
2·3/4 of the tensor from each process, checked piece by piece, and adds nothing; `with sums` is the
all-reduce of trainings, whose additions the device rounds. A time is the best of five, of the
slowest process; the reference is a copy of the tensor in one process. gloo, where torch is
installed, adds in its own order and rounding, so it is a peer in time alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from fpsim.records.formats import BINARY16
from ipu.experiments.bench.timing import Size, in_words, wall_seconds
from ipu.experiments.lab.instances import TRANSPORTS, run_instances, why_not
from ipu.machine import Device
from ipu.members.channel import Channel
from ipu.members.cluster import Cluster
from ipu.members.connect import connect, leaving
from ipu.members.pieces import Label
from ipu.members.sums import ReplicaSums
from ipu.plan.collectives import Summands
from ipu.plan.orders import Order

__all__ = ["SIZES", "cases"]

PROCESSES = 4
#: 10 MB of binary16; repetitions of which the best counts.
SIZES = (Size(n=5_000_000, repeats=5), Size(n=500_000, repeats=3))
#: Seconds of 10 MB in four processes, best of five on two cores: moving, with sums.
GOALS = {"grpc": (0.35, 0.6), "mpi": (0.15, 0.35)}
WAYS = ("moving", "with sums")


@dataclass(frozen=True)
class CollectiveRecord:
    """Seconds of one all-reduce, best of `repeats`, and of a copy of the same tensor."""

    topic: str
    way: str
    processes: int
    n: int
    repeats: int
    seconds: float | None
    copy_seconds: float | None
    goal: float | None = None
    note: str = ""
    #: Several processes: wall time.
    share: ClassVar[None] = None

    def fields(self) -> dict[str, object]:
        """What is written."""
        return dict(vars(self))

    def __str__(self) -> str:
        head = f"{self.topic:18} {self.way:10} P={self.processes}"
        if self.seconds is None:
            return f"{head}  left out: {self.note}"
        text = f"{head} {in_words(1e9 * self.seconds):>12}"
        if self.copy_seconds:
            text += f" {self.seconds / self.copy_seconds:8.1f} copies"
        if self.goal is not None:
            text += f"   goal {self.goal:g} s: {'met' if self.seconds <= self.goal else 'missed'}"
        return text


def cases(size: Size, quick: bool) -> Iterator[Callable[[], CollectiveRecord]]:
    """Each transport in both ways, then gloo; what is not installed says so."""
    del quick
    taken: dict[str, list[float]] = {}
    for transport in TRANSPORTS:
        for way in WAYS:
            yield partial(_record, transport, way, size, taken)
    yield partial(_gloo_record, size)


def _record(
    transport: str, way: str, size: Size, taken: dict[str, list[float]]
) -> CollectiveRecord:
    """One way of a transport; both are measured in the same processes."""
    start = f"collectives {transport}", way, PROCESSES, size.n, size.repeats
    reason = why_not(transport)
    if reason:
        return CollectiveRecord(*start, None, None, None, reason)
    if transport not in taken:
        rows = run_instances(measure, PROCESSES, transport, n=size.n, repeats=size.repeats)
        taken[transport] = _best(rows)
    place = WAYS.index(way)
    goal = GOALS[transport][place] if size.n == SIZES[0].n else None
    return CollectiveRecord(*start, taken[transport][place], copy_seconds(size), goal)


def _gloo_record(size: Size) -> CollectiveRecord:
    start = "collectives gloo", "its own sum", PROCESSES, size.n, size.repeats
    if find_spec("torch") is None:
        return CollectiveRecord(*start, None, None, None, "torch is not installed")
    rows = run_instances(measure_gloo, PROCESSES, "grpc", n=size.n, repeats=size.repeats)
    return CollectiveRecord(*start, _best(rows)[0], copy_seconds(size))


def _best(rows: list[list[list[float]]]) -> list[float]:
    """The best round of each way; a round takes as long as its slowest process."""
    times = np.array(rows)  # process, way, round
    return [float(seconds) for seconds in times.max(axis=0).min(axis=-1)]


def copy_seconds(size: Size) -> float:
    """The best time of a copy of the tensor's codes."""
    source = np.ones(size.n, np.uint16)
    target = np.empty_like(source)
    return min(wall_seconds(partial(np.copyto, target, source)) for _ in range(size.repeats))


# In each process --------------------------------------------------------------------------------


def measure(cluster: Cluster, n: int, repeats: int) -> list[list[float]]:
    """Seconds of each round: moving, and with sums."""
    transport = connect(cluster, f"bench: collectives\nn: {n}")
    with leaving(transport):
        channel = Channel(transport)
        rng = np.random.default_rng(cluster.rank)
        x = Device().from_host(rng.standard_normal(n), BINARY16)
        sums = ReplicaSums(channel, cluster.replicas, Device, Order.TF_RING)
        move = partial(_move, channel, x.codes().tobytes())
        add = partial(sums.of, [Summands([x], 0)], 0)
        sums.of([Summands([x[:64]], 0)], 0)  # compiles
        return [[_together(channel, call) for _ in range(repeats)] for call in (move, add)]


def _together(channel: Channel, call: Callable[[], object]) -> float:
    """Seconds of a call that all processes begin together."""
    channel.barrier()
    return wall_seconds(call)


def _move(channel: Channel, codes: bytes) -> None:
    """Each chunk goes R - 1 steps around the ring twice, as it does while it is summed."""
    size, collective = channel.size, channel.begin()
    step = 2 * -(-len(codes) // (2 * size))
    view = memoryview(codes)
    after, before = (channel.rank + 1) % size, (channel.rank - 1) % size

    def label(chunk: int, hop: int) -> Label:
        n_bytes = len(view[chunk * step : (chunk + 1) * step])
        return Label(BINARY16.name, n_bytes // 2, channel.step, collective, chunk, hop)

    for hop in range(2 * (size - 1)):
        out, coming = (channel.rank - hop) % size, (channel.rank - hop - 1) % size
        channel.send(after, label(out, hop), view[out * step : (out + 1) * step])
        channel.receive(before, label(coming, hop), 2, "the benchmark's tensor")


def measure_gloo(cluster: Cluster, n: int, repeats: int) -> list[list[float]]:
    """Seconds of each round of torch.distributed's all_reduce with gloo, on binary16."""
    torch: Any = import_module("torch")
    distributed: Any = import_module("torch.distributed")
    torch.set_num_threads(1)
    host, _, port = cluster.addresses[0].rpartition(":")
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{host}:{port}", rank=cluster.rank, world_size=cluster.size
    )
    x = torch.randn(n).to(torch.float16)
    distributed.all_reduce(x.clone())
    times = []
    for _ in range(repeats):
        tensor = x.clone()
        distributed.barrier()
        start = time.perf_counter()
        distributed.all_reduce(tensor)
        times.append(time.perf_counter() - start)
    distributed.destroy_process_group()
    return [times]
