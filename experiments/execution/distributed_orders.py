"""Sums of four replicas' gradients in every order of a plan, over threads and over processes.

A transport carries codes and only the device adds, so the bits of an order depend neither on the
number of processes that compute the replicas nor on what carries the bytes: each order is computed
in one process, over threads, and, where they are installed, over gRPC and MPI. Errors are in unit
roundoffs u of the format, relative to the root mean square of the exact sums.

What MPI_Allreduce and gloo do with the same numbers stands beside them as a warning: they add in an
order of their own, which a library may choose by size, by the number of processes and by its
version, and they round to nearest alone. Their rows are local: another machine may not repeat them.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16, BINARY32, Array, Context
from fpsim.records.formats import Format
from ipu.experiments.execution.digit_gradients import NETWORK, MicroBatches
from ipu.experiments.execution.reduction_orders import exact_mean
from ipu.experiments.lab.instances import TRANSPORTS, run_instances, why_not
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.result import Result, Row, Table
from ipu.learn.address import Numbering
from ipu.learn.policy import FP32
from ipu.machine import Device, FpCtl
from ipu.members.channel import Channel
from ipu.members.cluster import Cluster
from ipu.members.connect import connect, leaving
from ipu.members.local_transport import run_local
from ipu.members.sums import ReplicaSums
from ipu.members.transport import Transport
from ipu.plan.collectives import Summands, reduce_sum
from ipu.plan.orders import Order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Do processes change the bits of a sum of gradients, and what would MPI and gloo do?"
BUDGET = 55
DEFAULT = False

FORMATS = {"FP16": BINARY16, "FP32": BINARY32}
#: Format and rounding; the register rounds FP16 stochastically, FP32 goes to nearest.
WAYS = (("FP16", "RNE"), ("FP16", "SR"), ("FP32", "RNE"))
ORDERS = (Order.TF_RING, Order.CLOCKWISE_RING, Order.TREE, Order.MEET_IN_MIDDLE_RING)
REPLICAS = 4
BATCH, SCALE, STEPS = 16, 2.0**10, 10
#: Libraries whose sums are shown as a warning, and what they are called.
MPI, GLOO = "MPI_Allreduce", "gloo"
WARNING = (
    "Warning: these sums are not used. Their order is the library's, may change with the size, the "
    "number of processes and the version, and rounds to nearest alone."
)
MISSING_GLOO = "gloo is not installed; it comes with torch"

Values = NDArray[np.float64]


def run(quick: bool, seed: int) -> Result:
    values = gradients(seed)
    exact = REPLICAS * exact_mean(values)
    sums = {(way, order): in_one_process(values, seed, *way, order)
            for way in WAYS for order in ORDERS}
    expected = {name_of(*key): _digest(array) for key, array in sums.items()}
    rows = [*_errors(sums, exact), *_between(sums)]
    for n in (2, 4):
        every = run_local(n, partial(digests, values=values, seed=seed))
        rows += equalities("threads", n, every, expected)
    local, missing = _over_processes((4,) if quick else (2, 4), values, seed, expected, sums, exact)
    parameters = {"network": NETWORK, "replicas": REPLICAS, "micro-batch": BATCH,
                  "loss scale": SCALE, "steps before": STEPS, "parameters": values.shape[1],
                  "seed": seed, "left out": missing}
    answer = _answer(rows, local, missing)
    units = units_of(_device(seed, "SR"))
    return Result(rows, answer, "f16|f32, rounding=RNE|SR", parameters, units, local)


def gradients(seed: int) -> Values:
    """Gradients of each replica: (replicas, parameters)."""
    return MicroBatches.of(FP32, seed, REPLICAS, BATCH, STEPS).gradients(SCALE)


def _device(seed: int, rounding: str) -> Device:
    return Device(control=FpCtl(esr=rounding == "SR"), seed=seed)


def in_one_process(values: Values, seed: int, name: str, rounding: str, order: Order) -> Array:
    """The sum of all replicas as a training in one process has it."""
    devices = [_device(seed, rounding) for _ in values]
    tensors = [
        d.from_host(x, FORMATS[name]) for d, x in zip(devices, _rounded(values, name), strict=True)
    ]
    numberings = [Numbering(device, r) for r, device in enumerate(devices)]
    return reduce_sum(tensors, numberings, 0, order)


def _rounded(values: Values, name: str) -> Values:
    """Values of the format, to nearest, so that the sums alone are rounded stochastically."""
    return np.asarray(Device().from_host(values, FORMATS[name]).values, np.float64)


def name_of(way: tuple[str, str], order: Order) -> str:
    """One sum in words: format, rounding, order."""
    return " ".join([*way, order.value])


def _digest(x: Array) -> str:
    return hashlib.sha256(x.codes().tobytes()).hexdigest()[:16]


# Over threads and processes ---------------------------------------------------------------------


def digests(transport: Transport, values: Values, seed: int) -> dict[str, str]:
    """Digests of all sums, as this worker of the transport has them."""
    channel = Channel(transport)
    share = REPLICAS // channel.size
    replicas = range(channel.rank * share, (channel.rank + 1) * share)
    table = {}
    for name, rounding in WAYS:
        rounded = _rounded(values, name)
        tensors = [_device(seed, rounding).from_host(rounded[r], FORMATS[name]) for r in replicas]
        for order in ORDERS:
            make = partial(_device, seed, rounding)
            total = ReplicaSums(channel, REPLICAS, make, order).of([Summands(tensors, 0)], 0)[0]
            table[name_of((name, rounding), order)] = _digest(total)
    return table


def equalities(
    transport: str, processes: int, every: Sequence[dict[str, str]], expected: dict[str, str]
) -> list[Row]:
    """For each sum, whether all workers have the bits of one process."""
    return [
        {"part": "place", "transport": transport, "processes": processes, "sum": name,
         "equal": all(digests[name] == digest for digests in every)}
        for name, digest in expected.items()
    ]


def _over_processes(
    counts: Sequence[int], values: Values, seed: int, expected: dict[str, str],
    sums: dict[tuple[tuple[str, str], Order], Array], exact: Values,
) -> tuple[list[Row], list[str]]:
    """Rows of the transports and libraries that are here, and what is left out with the reason."""
    rows: list[Row] = []
    missing = []
    libraries: dict[str, dict[str, list[int]]] = {}
    with tempfile.TemporaryDirectory(prefix="fpsim-orders-") as folder:
        path = str(Path(folder, "gradients.npy"))
        np.save(path, values)
        for transport in TRANSPORTS:
            reason = why_not(transport)
            if reason:
                missing.append(reason)
                continue
            for n in counts:
                every = run_instances(in_process, n, transport, REPLICAS, path=path, seed=seed)
                digests_of = [results["digests"] for results in every]
                rows += equalities(transport, n, digests_of, expected)
                if transport == "mpi" and n == REPLICAS:
                    libraries[MPI] = every[0]["codes"]
        if find_spec("torch") is None:
            missing.append(MISSING_GLOO)
        else:
            libraries[GLOO] = run_instances(gloo_sums, REPLICAS, "grpc", path=path)[0]
    for library, codes in libraries.items():
        rows += against(library, codes, sums, exact)
    return rows, missing


def in_process(cluster: Cluster, path: str, seed: int) -> dict[str, Any]:
    """`digests` in a process of its own; where MPI carries them, its own sums as well."""
    transport = connect(cluster, f"experiment: distributed_orders\nseed: {seed}")
    with leaving(transport):
        values = np.load(path)
        sums = digests(transport, values, seed)
        codes = mpi_sums(values[cluster.rank]) if cluster.transport == "mpi" else {}
        return {"digests": sums, "codes": codes}


# The libraries' own sums, as a warning ------------------------------------------------------------


def mpi_sums(values: Values) -> dict[str, list[int]]:
    """Codes of MPI_Allreduce's sum of all processes' values; MPI's standard has no binary16."""
    mpi: Any = import_module("mpi4py.MPI")
    x = _rounded(values, "FP32").astype(np.float32)
    total = np.empty_like(x)
    mpi.COMM_WORLD.Allreduce(x, total, mpi.SUM)
    return {"FP32": total.view(np.uint32).tolist()}


def gloo_sums(cluster: Cluster, path: str) -> dict[str, list[int]]:
    """Codes of the sums of torch.distributed's all_reduce with gloo."""
    torch: Any = import_module("torch")
    distributed: Any = import_module("torch.distributed")
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{cluster.addresses[0]}", rank=cluster.rank,
        world_size=cluster.size,
    )
    values, codes = np.load(path), {}
    for name, kind, code in (("FP16", np.float16, np.uint16), ("FP32", np.float32, np.uint32)):
        x = torch.from_numpy(_rounded(values, name)[cluster.rank].astype(kind))
        distributed.all_reduce(x)
        codes[name] = x.numpy().view(code).tolist()
    distributed.destroy_process_group()
    return codes


def against(
    library: str, codes: dict[str, list[int]],
    sums: dict[tuple[tuple[str, str], Order], Array], exact: Values,
) -> Iterator[Row]:
    """How many of a library's sums differ from each order to nearest, and their error."""
    for ((name, rounding), order), total in sums.items():
        if name not in codes or rounding != "RNE":
            continue
        fmt = FORMATS[name]
        codes_of_run = np.array(codes[name], fmt.code_dtype)
        values = np.asarray(Context(fmt).unpack(codes_of_run).values, np.float64)
        yield {"part": "library", "library": library, "format": name, "order": order.value,
               "differ": float((codes_of_run != total.codes()).mean()),
               "error": error_of(values, exact, fmt)}


# Rows ---------------------------------------------------------------------------------------------


def error_of(values: Values, exact: Values, fmt: Format) -> float:
    """Root mean square of the error in u, relative to the root mean square of the exact sums."""
    unit = np.sqrt((exact**2).mean()) * fmt.eps / 2
    return float(np.sqrt(((values - exact) ** 2).mean()) / unit)


def _errors(sums: dict[tuple[tuple[str, str], Order], Array], exact: Values) -> Iterator[Row]:
    for ((name, rounding), order), total in sums.items():
        values = np.asarray(total.values, np.float64)
        error = error_of(values, exact, FORMATS[name])
        yield {"part": "order", "format": name, "rounding": rounding, "order": order.value,
               "error": error, "digest": f"x{_digest(total)}"}


def _between(sums: dict[tuple[tuple[str, str], Order], Array]) -> Iterator[Row]:
    """The share of sums that differ between two orders."""
    for way in WAYS:
        for one, other in combinations(ORDERS, 2):
            differ = (sums[way, one].codes() != sums[way, other].codes()).mean()
            yield {"part": "between", "format": way[0], "rounding": way[1], "order": one.value,
                   "other": other.value, "differ": float(differ)}


# The answer ---------------------------------------------------------------------------------------


def _answer(rows: Sequence[Row], local: Sequence[Row], missing: Sequence[str]) -> str:
    places = [row for row in (*rows, *local) if row["part"] == "place"]
    wrong = [row for row in places if not row["equal"]]
    ways = list(dict.fromkeys(f"{row['processes']} {_carried(row)}" for row in places))
    sums = f"{len(places)} sums, {len(WAYS) * len(ORDERS)} by each of {', '.join(ways)}"
    opening = f"No. All of {sums}, have the bits of one process."
    if wrong:
        opening = f"Yes: {len(wrong)} of {sums}, differ from one process."
    between = [float(str(r["differ"])) for r in rows
               if r["part"] == "between" and r["rounding"] == "RNE"]
    text = (
        f"{opening} Orders themselves differ from each other in {min(between):.0%} to "
        f"{max(between):.0%} of the sums to nearest."
    )
    for library in (MPI, GLOO):
        text += _warning(library, local)
    return f"{text} Left out: {'; '.join(missing)}." if missing else text


def _carried(row: Row) -> str:
    return {"threads": "threads", "grpc": "processes over gRPC", "mpi": "processes over MPI"}[
        str(row["transport"])
    ]


def _warning(library: str, local: Sequence[Row]) -> str:
    """What a library would have done: the order that it is nearest to, and the worst."""
    rows = [row for row in local if row["part"] == "library" and row["library"] == library]
    if not rows:
        return ""
    parts = []
    for name in dict.fromkeys(str(row["format"]) for row in rows):
        levels = sorted(
            (float(str(r["differ"])), str(r["order"])) for r in rows if r["format"] == name
        )
        (least, nearest), (most, farthest) = levels[0], levels[-1]
        parts.append(f"in {name} from {nearest} in {least:.0%} and from {farthest} in {most:.0%}")
    return f" Warning: {library}, which is not used, would have differed {', '.join(parts)}."


# What is shown ------------------------------------------------------------------------------------


def tables(result: Result) -> list[Table]:
    """Equality by place; libraries as a warning."""
    rows = [row for row in (*result.rows, *result.local) if row["part"] == "place"]
    keys = list(dict.fromkeys((row["transport"], row["processes"]) for row in rows))
    lines = []
    for transport, n in keys:
        of_transport = [
            row for row in rows if (row["transport"], row["processes"]) == (transport, n)
        ]
        equal = sum(bool(row["equal"]) for row in of_transport)
        lines.append([f"{n} {_carried(of_transport[0])}", f"{equal} of {len(of_transport)}"])
    place = Table("Sums with the bits of one process", ["replicas computed by", "equal"], lines)
    libraries = [row for row in result.local if row["part"] == "library"]
    if not libraries:
        return [place]
    heads = ["library", "format", "beside the order", "sums that differ", "its error in u"]
    cells = [
        [str(r["library"]), str(r["format"]), str(r["order"]),
         f"{float(str(r['differ'])):.1%}", f"{float(str(r['error'])):.3g}"]
        for r in libraries
    ]
    return [place, Table("What libraries would have done", heads, cells, WARNING)]


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (errors, differences) = new_figure(13, 4.8, mosaic="AB")
    _plot_errors(errors, result)
    _plot_differences(differences, result)
    return figure


def _plot_errors(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import BLUE, GREEN, ORANGE, RED

    names = [order.value for order in ORDERS]
    for i, ((name, rounding), colour) in enumerate(zip(WAYS, (ORANGE, BLUE, GREEN), strict=True)):
        where: Row = {"part": "order", "format": name, "rounding": rounding}
        errors = [result.column("error", order=order, **where)[0] for order in names]
        axes.plot(errors, np.arange(len(names)) + 0.16 * (i - 1), "o", color=colour,
                  label=f"{name}, {rounding}")
    extra = []
    for row in result.local:
        label = f"{row.get('library')} (not used)"
        if row["part"] == "library" and label not in extra:
            extra.append(label)
        if row["part"] == "library":
            colour = ORANGE if row["format"] == "FP16" else GREEN
            axes.plot([row["error"]], [len(names) + extra.index(label)], "X", color=colour)
    axes.set_yticks(range(len(names) + len(extra)), [*names, *extra])
    for tick in axes.get_yticklabels()[len(names) :]:
        tick.set_color(RED)
    axes.set_ylim(len(names) + len(extra) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set(title=f"Error of the sum of {REPLICAS} replicas", xlim=(0, None),
             xlabel="root mean square, in u of the format")
    axes.legend(fontsize=9)


def _plot_differences(axes: Axes, result: Result) -> None:
    """Share of the sums that differ, FP32 to nearest: orders beside each other and libraries."""
    from ipu.experiments.pictures.looks import DARK_INK
    from ipu.run.pages.drawing import RED

    names = [order.value for order in ORDERS]
    libraries = [
        row for row in result.local if row["part"] == "library" and row["format"] == "FP32"
    ]
    extra = list(dict.fromkeys(str(row["library"]) for row in libraries))
    grid = np.zeros((len(names) + len(extra), len(names)))
    for row in result.select(part="between", format="FP32"):
        i, j = names.index(str(row["order"])), names.index(str(row["other"]))
        grid[i, j] = grid[j, i] = row["differ"]
    for row in libraries:
        i, j = len(names) + extra.index(str(row["library"])), names.index(str(row["order"]))
        grid[i, j] = float(str(row["differ"]))
    axes.pcolormesh(
        grid, cmap="Blues", vmin=0, vmax=max(2 * grid.max(), 0.1), edgecolors="white", linewidth=2
    )
    for (i, j), share in np.ndenumerate(grid):
        axes.annotate(f"{share:.0%}", (j + 0.5, i + 0.5), ha="center", va="center", fontsize=9.5,
                      color=DARK_INK)
    axes.set_xticks(np.arange(len(names)) + 0.5, [name.replace("_", "\n", 1) for name in names])
    axes.set_yticks(np.arange(len(grid)) + 0.5, [*names, *(f"{one} (not used)" for one in extra)])
    for tick in axes.get_yticklabels()[len(names) :]:
        tick.set_color(RED)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set_title("FP32 to nearest: sums that differ")
