"""`tensorflow.python.ipu.horovod` for one process: ranks and collectives.

Source    graphcore/tensorflow, tensorflow/python/ipu/horovod; Horovod's API.
"""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.workers import strategies as ipu_horovod_strategy
from ipu.frontends.tensorflow.workers.strategies import refuse

__all__ = [
    "allgather", "allreduce", "broadcast", "init", "ipu_horovod_strategy", "local_rank",
    "local_size", "rank", "shutdown", "size",
]  # fmt: skip

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE")

_started = False


def init() -> None:
    """Start; a process of several is refused.

    Raises    NotImplementedError.
    """
    global _started
    refuse(max((int(os.environ.get(name) or 1) for name in _SIZES), default=1))
    _started = True


def shutdown() -> None:
    """End."""
    global _started
    _started = False


def _of_one(value: int) -> int:
    if not _started:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return value


def size() -> int:
    """Processes."""
    return _of_one(1)


def rank() -> int:
    """Number of this process."""
    return _of_one(0)


def local_size() -> int:
    """Processes of this computer."""
    return _of_one(1)


def local_rank() -> int:
    """Number of this process on its computer."""
    return _of_one(0)


def allreduce(tensor: Any, *_: Any, **__: Any) -> Any:
    """The sum or mean of one tensor."""
    _of_one(1)
    return tf.convert_to_tensor(tensor)


def broadcast(tensor: Any, root_rank: int, *_: Any, **__: Any) -> Any:
    """The root's tensor."""
    if _of_one(0) != root_rank:
        raise ValueError(f"root_rank={root_rank} is not a process; use 0")
    return tf.convert_to_tensor(tensor)


def allgather(tensor: Any, *_: Any, **__: Any) -> Any:
    """The tensors of all processes along the first axis."""
    return allreduce(tensor)
