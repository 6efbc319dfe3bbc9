"""Collectives of Horovod: sums by the simulated machine, copies as bytes.

| element type | allreduce |
|---|---|
| float16, float32 | additions of the machine in that format, one division for Average |
| integers | exact sums |
| others, float64 too | refused: the machine has no such addition |

Arguments and results are numpy arrays, or an `Array` of fpsim, which is given back as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY16, BINARY32, Format
from ipu import ops
from ipu.frontends.horovod.runtime import Runtime, running
from ipu.learn.address import CELLS
from ipu.machine.device import Device
from ipu.plan.collectives import Summands

__all__ = [
    "Average", "Op", "Sum", "allgather", "allreduce", "broadcast", "broadcast_variables",
    "grouped_allreduce",
]

_FORMATS: dict[np.dtype[Any], Format] = {
    np.dtype(np.float16): BINARY16,
    np.dtype(np.float32): BINARY32,
}


class Op(Enum):
    """What an allreduce gives."""

    SUM = "Sum"
    AVERAGE = "Average"


Sum, Average = Op.SUM, Op.AVERAGE


def allreduce(
    tensor: ArrayLike | Array, average: bool | None = None, name: str | None = None,
    op: Op | None = None,
) -> Any:
    """The sum or mean of a tensor over all processes; the mean where nothing is said.

    average    of earlier releases: True stands for op=Average, False for op=Sum.
    name       of the tensor, for messages.

    Rounding  each addition once in the tensor's format, in the order of the run (tf_ring unless
              poprun names another); the mean is then divided once by the number of processes.
    Raises    ValueError for both average and op; TypeError for types that the machine cannot add.
    """
    return grouped_allreduce([tensor], average, name, op)[0]


def grouped_allreduce(
    tensors: Sequence[ArrayLike | Array], average: bool | None = None, name: str | None = None,
    op: Op | None = None,
) -> list[Any]:
    """As `allreduce`, of several tensors that are exchanged together."""
    run, op = running(), _op(average, op)
    values = [x if isinstance(x, Array) else np.asarray(x) for x in tensors]
    jobs = []
    for x in values:
        if isinstance(x, Array) or x.dtype in _FORMATS:
            jobs.append(_job(run, x, name or ""))
        elif op is Average or x.dtype.kind not in "iu":
            raise TypeError(
                f"{op.value} of {x.dtype} is no operation of the machine; use float16 or float32"
                + ("" if op is Average else ", or integers")
            )
    step, device = run.calls // CELLS, run.sums.devices[run.channel.rank]
    sums = iter(run.sums.of(jobs, step))
    return [
        _result(next(sums), x, device, op, run.channel.size)
        if isinstance(x, Array) or x.dtype in _FORMATS
        else np.sum([_unpacked(row) for row in run.channel.gather(_packed(x), "integers")], 0)
        for x in values
    ]


def _op(average: bool | None, op: Op | None) -> Op:
    if average is not None and op is not None:
        raise ValueError(f"average={average} and op={op}: use op alone")
    if op is not None and not isinstance(op, Op):
        raise TypeError(f"op={op!r} is not modelled; use hvd.Sum or hvd.Average")
    return op or (Sum if average is False else Average)


def _job(run: Runtime, x: Array | NDArray[Any], name: str) -> Summands:
    device = run.sums.devices[run.channel.rank]
    if not isinstance(x, Array):
        fmt = _FORMATS[x.dtype]
        x = device.context(fmt).wrap(np.ascontiguousarray(x).astype(fmt.carrier))
    run.calls += 1
    return Summands([x], (run.calls - 1) % CELLS, name)


def _result(
    total: Array, x: Array | NDArray[Any], device: Device, op: Op, size: int
) -> Array | NDArray[Any]:
    if op is Average and size > 1:
        on_device = device.context(total.format).wrap(total.carrier)
        total = ops.divide.value(device, on_device, float(size))
    if isinstance(x, Array):
        return Array(total.carrier, x.context)
    values: NDArray[Any] = total.carrier.astype(x.dtype)
    return values


# Copies -----------------------------------------------------------------------------------------


def allgather(tensor: ArrayLike, name: str | None = None) -> NDArray[Any]:
    """The tensors of all processes, one after the other along the first axis.

    Shapes    equal except for the first axis, which every tensor has.
    Raises    ValueError, on every process, for other shapes or types.
    """
    local = np.asarray(tensor)
    rows = [_unpacked(row) for row in running().channel.gather(_packed(local), name or "a tensor")]
    kinds = {(str(row.dtype), row.shape[1:]) if row.ndim else None for row in rows}
    if len(kinds) > 1 or None in kinds:
        shown = ", ".join(f"{row.dtype} {row.shape}" for row in rows)
        raise ValueError(
            f"allgather of {shown}: tensors need a first axis, and one type and shape behind it"
        )
    return np.concatenate(rows)


def broadcast(tensor: ArrayLike, root_rank: int, name: str | None = None) -> NDArray[Any]:
    """The tensor of one process, on all.

    Raises    ValueError for a process that is not there.
    """
    channel = running().channel
    if not 0 <= root_rank < channel.size:
        raise ValueError(f"root_rank={root_rank} is not a process; use 0 to {channel.size - 1}")
    local = np.asarray(tensor)
    sent = _unpacked(channel.broadcast(_packed(local), root_rank, name or "a tensor"))
    if (sent.dtype, sent.shape) != (local.dtype, local.shape):
        raise ValueError(
            f"process {root_rank} broadcasts {sent.dtype} {sent.shape}, this one has {local.dtype} "
            f"{local.shape}; use one type and shape"
        )
    return sent


def broadcast_variables(variables: Iterable[Any] | Mapping[str, Any], root_rank: int) -> None:
    """Give variables the values that they have on one process.

    variables    numpy arrays, which are overwritten, or objects with `numpy` and `assign`; a
                 mapping's names are compared by their order alone.
    """
    rows: Iterable[Any] = variables.values() if isinstance(variables, Mapping) else variables
    for variable in rows:
        if isinstance(variable, np.ndarray):
            variable[...] = broadcast(variable, root_rank)
        else:
            variable.assign(broadcast(variable.numpy(), root_rank))


def _packed(x: NDArray[Any]) -> bytes:
    """Type, shape and values, little-endian."""
    if x.dtype.kind not in "biufcSU":
        raise TypeError(f"arrays of {x.dtype} are not exchanged; use numbers of numpy's own types")
    kind = x.dtype.newbyteorder("<")
    head = json.dumps([kind.str, x.shape]).encode()
    return len(head).to_bytes(4, "little") + head + x.astype(kind).tobytes()


def _unpacked(message: bytes) -> NDArray[Any]:
    end = 4 + int.from_bytes(message[:4], "little")
    kind, shape = json.loads(message[4:end])
    values = np.frombuffer(message, kind, offset=end).reshape(shape)
    return values.astype(values.dtype.newbyteorder("="))
