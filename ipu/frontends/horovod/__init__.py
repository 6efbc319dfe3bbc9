"""Horovod's names on our transports: `from ipu.frontends import horovod as hvd`.

Values are summed by the simulated machine, in TensorFlow's ring order, and never by MPI, whose
order is the library's. Processes are those of mpirun, or those that `fpsim poprun` has started.
The strategy for TensorFlow is `ipu.frontends.tensorflow`'s.

Source    Horovod 0.28: names and arguments; Graphcore's TensorFlow, ipu/horovod.
"""

from ipu.frontends.horovod.collectives import (
    Average,
    Sum,
    allgather,
    allreduce,
    broadcast,
    broadcast_variables,
    grouped_allreduce,
)
from ipu.frontends.horovod.runtime import (
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    require_transport,
    shutdown,
    size,
)

require_transport()

__all__ = [
    "Average", "Sum", "allgather", "allreduce", "broadcast", "broadcast_variables",
    "grouped_allreduce", "init", "is_initialized", "local_rank", "local_size", "rank", "shutdown",
    "size",
]
