"""Session options of PopART for the replicas that poprun deals to this process.

Source    Graphcore, PopDist and PopRun user guide: popdist.popart.configureSessionOptions.
"""

from __future__ import annotations

from ipu.frontends.popart import SessionOptions
from ipu.frontends.popdist import environment

__all__ = ["configureSessionOptions"]


def configureSessionOptions(options: SessionOptions) -> None:
    """The options have this process's replicas, and their place among all.

    Raises    TypeError for anything else than session options.
    """
    if not isinstance(options, SessionOptions):
        raise TypeError(f"options={options!r} is no popart.SessionOptions; make one first")
    mine, every = environment.getNumLocalReplicas(), environment.getNumTotalReplicas()
    options.enableReplicatedGraphs = mine > 1
    options.replicatedGraphCount = mine
    options.enableDistributedReplicatedGraphs = every > mine
    options.globalReplicationFactor = every
    options.globalReplicaOffset = environment.getReplicaIndexOffset()
