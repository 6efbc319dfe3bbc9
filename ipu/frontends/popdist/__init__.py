"""PopDist's names: which replicas of a run this process has. `fpsim poprun` starts the processes.

Source    Graphcore, PopDist and PopRun user guide: Python API.
"""

from ipu.frontends.popdist.environment import (
    checkNumIpusPerReplica,
    getDeviceId,
    getInstanceIndex,
    getLocalInstanceIndex,
    getNumInstances,
    getNumIpusPerReplica,
    getNumLocalReplicas,
    getNumTotalReplicas,
    getReplicaIndexOffset,
    init,
    isPopdistEnvSet,
)

__all__ = [
    "checkNumIpusPerReplica", "getDeviceId", "getInstanceIndex", "getLocalInstanceIndex",
    "getNumInstances", "getNumIpusPerReplica", "getNumLocalReplicas", "getNumTotalReplicas",
    "getReplicaIndexOffset", "init", "isPopdistEnvSet",
]
