"""Memory of a training without a plan: what one IPU would hold in its first step.

A declared account: bytes of tensors in their own formats, without code. Weights, gradients or
accumulators and the optimiser's state are there all the time, what the tape keeps until the
backward pass, the largest temporary of a product in it. A plan (`ipu.plan`) has more choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fpsim.array import Array
from ipu.learn.tensor import Tensor, nodes
from ipu.learn.variables import Variable
from ipu.machine.memory import OutOfMemoryError, room_of
from ipu.machine.target import Target
from ipu.ops.saved import memory

__all__ = ["check_step", "tape_bytes"]

#: Variables that a refusal names.
_NAMED = 3


def tape_bytes(loss: Tensor, variables: Sequence[Variable]) -> int:
    """Bytes that the backward pass of a loss needs beside the variables, each memory once."""
    elsewhere = {memory(variable.stored)[0] for variable in variables}
    sizes: dict[int, int] = {}
    for node in nodes(loss):
        for item in node.saved:
            if isinstance(item, Array):
                key, nbytes = memory(item)
                sizes[key] = nbytes
            elif isinstance(item, np.ndarray):
                sizes[id(item)] = item.nbytes
    return sum(nbytes for key, nbytes in sizes.items() if key not in elsewhere)


def check_step(
    target: Target, tape: int, temporary: int, pairs: Sequence[tuple[Array, Variable]],
    slots: Mapping[str, Sequence[Array]],
) -> None:
    """Refuse a training whose first step one IPU cannot hold.

    tape, temporary    bytes that wait for the backward pass, and of the largest temporary.

    Raises    OutOfMemoryError that says how much, what fills it, and what would help.
    """
    states = {v.name: sum(s.storage_bytes for s in slots.get(v.name, ())) for _, v in pairs}
    kinds = {
        "weights": sum(v.array.storage_bytes for _, v in pairs),
        "gradients": sum(g.storage_bytes for g, _ in pairs), "state": sum(states.values()),
        "activations": tape, "work": temporary,
    }
    lives = {"weights": "always", "gradients": "always", "state": "always",
             "activations": "from forward to backward", "work": "in a program"}
    peak, room = sum(kinds.values()), room_of(target)
    if peak <= room:
        return
    filled = ", ".join(
        f"{kind} {size} ({lives[kind]})"
        for kind, size in sorted(kinds.items(), key=lambda row: -row[1]) if size
    )
    totals = {
        v.name: v.array.storage_bytes + g.storage_bytes + states[v.name] for g, v in pairs
    }
    largest = sorted(totals.items(), key=lambda row: -row[1])[:_NAMED]
    named = ", ".join(f"{name} {size}" for name, size in largest)
    of_batches = 2 * (tape + temporary) > peak
    batch = "smaller batches, recompute" if of_batches else "offload the state, more stages"
    raise OutOfMemoryError(
        f"out of memory: a step needs {peak} bytes on one IPU, target={target.name} has {room}; "
        f"{filled}; largest variables, with gradients and state: {named}; use an "
        f"ipu.plan.PlanTrainer ({batch} or shard it over replicas), or check_memory=False to run "
        "it all the same"
    )
