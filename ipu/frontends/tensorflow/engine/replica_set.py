"""The replicas of a program, of which this process runs some: what they do together.

Replicas are dealt consecutively: process p of P runs p·L … p·L + L - 1. What replicas do together
every process computes whole, from the values of all replicas and at the places of one process; so
weights, metrics and random bits are those of one process with all replicas. Each process sends its
values to every other one, P - 1 times the bytes of its replicas.

Source    docs/semantics.md §2, §3 (replicas of one set).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.codes import from_codes, to_codes
from ipu.frontends.tensorflow.engine.values import numbers
from ipu.members.members import Meeting, Members
from ipu.plan.orders import Order, check_order

__all__ = ["ALONE", "ReplicaProcesses", "ReplicaSet", "dealt"]


class ReplicaSet:
    """All replicas are this process's.

    rank, size    this process, and how many there are.
    order         of the additions over replicas.
    """

    rank, size, order = 0, 1, Order.AUTO

    def check(self, replicas: int) -> None:
        """Refuse a number of replicas of this process.

        Raises    ValueError.
        """

    def every(self, local: Sequence[Any], what: str, step: int) -> list[Any]:
        """The values of all replicas, by number.

        local   those of this process's replicas: of one type and shape.
        what    names the node; step is its step, for messages.
        """
        return list(local)


ALONE = ReplicaSet()


@dataclass
class Dealt:
    """Processes to which a PopDistStrategy has dealt the replicas of this program's launches."""

    processes: int = 1

    def refuse_graphs(self) -> NoReturn:
        """Say what a program of TensorFlow 1 does in the place of a PopDistStrategy."""
        raise NotImplementedError(
            "a graph of TensorFlow 1 under a PopDistStrategy is not modelled; train by fit or run "
            "of the strategy in TensorFlow 2, or leave the strategy and poprun out and run all "
            "replicas in one process: auto_select_ipus = their number"
        )


dealt = Dealt()


class ReplicaProcesses(ReplicaSet):
    """Replicas of several processes.

    members    between them.
    local      replicas that poprun deals to each; None: as many as a program takes.
    """

    def __init__(self, members: Members, order: Order = Order.AUTO) -> None:
        self.members, self.order = members, order
        self.rank, self.size = members.rank, members.size
        self.local: int | None = None

    def check(self, replicas: int) -> None:
        """As poprun has dealt them, and as the order needs them."""
        if self.local not in (None, replicas):
            raise ValueError(
                f"the program runs on {replicas} replicas of this process, and poprun deals "
                f"{self.local} to it; use popdist.tensorflow.set_ipu_config(config)"
            )
        check_order(self.order, replicas * self.size)

    def every(self, local: Sequence[Any], what: str, step: int) -> list[Any]:
        """As those of one process.

        Raises    StoppedError, on every process, where another one has come to another node.
        """
        kind, payload = _packed(local)
        place = Meeting(f"{what} of {kind}", step)
        values: list[Any] = []
        with self.members.telling(lambda: step):
            self.members.compare_programs(place)
            rows = self.members.meet_bytes(place, payload)
        for rank, row in enumerate(rows):
            values += local if rank == self.rank else _unpacked(local, row)
        return values


def _packed(values: Sequence[Any]) -> tuple[str, bytes]:
    """Type and shape of the values, and their codes one after the other, little-endian."""
    first = values[0]
    if isinstance(first, Array):
        codes = [to_codes(x.carrier, x.format) for x in values]
        kind = first.format.name
    else:
        codes = [numbers(x) for x in values]
        kind = codes[0].dtype.name
    wire = codes[0].dtype.newbyteorder("<")
    payload = b"".join(x.astype(wire).tobytes() for x in codes)
    return f"{kind} {list(codes[0].shape)}", payload


def _unpacked(templates: Sequence[Any], payload: bytes) -> list[Any]:
    """The values of another process, of the kind of this one's."""
    first = templates[0]
    is_array = isinstance(first, Array)
    dtype = np.dtype(first.format.code_dtype) if is_array else numbers(first).dtype
    shape = (len(templates), *numbers(first).shape)
    codes = np.frombuffer(payload, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    if not is_array:
        return list(codes)
    return [first.like(from_codes(code, first.format)) for code in codes]
