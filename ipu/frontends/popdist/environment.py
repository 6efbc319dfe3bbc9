"""What poprun tells each process, read from variables of the environment.

| variable | value without poprun |
|---|---|
| POPDIST_NUM_TOTAL_REPLICAS | 1 |
| POPDIST_NUM_LOCAL_REPLICAS | 1 |
| POPDIST_REPLICA_INDEX_OFFSET | 0 |
| POPDIST_NUM_INSTANCES | 1 |
| POPDIST_INSTANCE_INDEX | 0 |
| POPDIST_LOCAL_INSTANCE_INDEX | 0 |
| POPDIST_NUM_IPUS_PER_REPLICA | 1 |

Names of functions are the vendor's (DOCUMENTED: PopDist and PopRun user guide, Python API); those
of the variables are ours.
"""

from __future__ import annotations

import os

__all__ = [
    "checkNumIpusPerReplica", "getDeviceId", "getInstanceIndex", "getLocalInstanceIndex",
    "getNumInstances", "getNumIpusPerReplica", "getNumLocalReplicas", "getNumTotalReplicas",
    "getReplicaIndexOffset", "init", "isPopdistEnvSet",
]


def isPopdistEnvSet() -> bool:
    """Whether poprun started this process.

    >>> isPopdistEnvSet()                # without poprun
    False
    """
    return "POPDIST_NUM_TOTAL_REPLICAS" in os.environ


def init() -> None:
    """Nothing is left to start: the vendor's call before any other is accepted.

    >>> init()
    """


def getNumInstances() -> int:
    """Number of processes.

    >>> getNumInstances()                # without poprun
    1
    """
    return _number("POPDIST_NUM_INSTANCES", 1)


def getInstanceIndex() -> int:
    """Number of this process, from 0.

    >>> getInstanceIndex()                # without poprun
    0
    """
    return _number("POPDIST_INSTANCE_INDEX", 0)


def getLocalInstanceIndex() -> int:
    """Number of this process among those of its computer, from 0.

    >>> getLocalInstanceIndex()                # without poprun
    0
    """
    return _number("POPDIST_LOCAL_INSTANCE_INDEX", 0)


def getNumTotalReplicas() -> int:
    """Number of replicas of all processes.

    >>> getNumTotalReplicas()                # without poprun
    1
    """
    return _number("POPDIST_NUM_TOTAL_REPLICAS", 1)


def getNumLocalReplicas() -> int:
    """Number of replicas of this process.

    >>> getNumLocalReplicas()                # without poprun
    1
    """
    return _number("POPDIST_NUM_LOCAL_REPLICAS", 1)


def getReplicaIndexOffset() -> int:
    """Number of this process's first replica among all.

    >>> getReplicaIndexOffset()                # without poprun
    0
    """
    return _number("POPDIST_REPLICA_INDEX_OFFSET", 0)


def getNumIpusPerReplica() -> int:
    """IPUs that each replica takes.

    >>> getNumIpusPerReplica()                # without poprun
    1
    """
    return _number("POPDIST_NUM_IPUS_PER_REPLICA", 1)


def checkNumIpusPerReplica(expected: int) -> bool:
    """Whether each replica takes that many IPUs.

    >>> checkNumIpusPerReplica(1), checkNumIpusPerReplica(2)  # without poprun
    (True, False)
    """
    return getNumIpusPerReplica() == expected


def getDeviceId(ipusPerReplica: int = 0) -> int:
    """Number of the first simulated IPU of this process (ASSUMED: IPUs are numbered by replica).

    ipusPerReplica    0: as poprun was told.

    >>> getDeviceId()                # without poprun
    0
    """
    return getReplicaIndexOffset() * (ipusPerReplica or getNumIpusPerReplica())


def _number(name: str, default: int) -> int:
    """A variable's value.

    Raises    ValueError for what is no whole number from 0 on.
    """
    text = os.environ.get(name, str(default))
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{name}={text!r} is not a number; start the program by fpsim poprun")
    return int(text)
