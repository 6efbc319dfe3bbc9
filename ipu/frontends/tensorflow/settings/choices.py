"""Enumerations that options of `IPUConfig` take; a dictionary of options holds their numbers.

Source    graphcore/tensorflow, tensorflow/python/ipu/config.py (names and order of the members).
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "DeviceConnectionType", "ExecutionProfileType", "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm", "SelectionOrder", "StochasticRoundingBehaviour",
]


class StochasticRoundingBehaviour(Enum):
    """Where results are rounded stochastically.

    OFF                       nowhere.
    ON                        everywhere.
    REPLICA_IDENTICAL_ONLY    where every replica computes the same: sums of gradients, updates.

    >>> StochasticRoundingBehaviour.from_bool(True)
    <StochasticRoundingBehaviour.ON: 1>
    """

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @staticmethod
    def from_bool(value: bool) -> StochasticRoundingBehaviour:
        """ON for a true value, else OFF."""
        return StochasticRoundingBehaviour.ON if value else StochasticRoundingBehaviour.OFF


class SelectionOrder(Enum):
    """Order in which the IPUs of a rack are taken."""

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class ExecutionProfileType(Enum):
    """What a profile of earlier releases has of an execution."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class DeviceConnectionType(Enum):
    """When a program attaches to the machine."""

    ALWAYS = 0
    ON_DEMAND = 1
    NEVER = 2
    PRE_COMPILE = 3


class MergeRemoteBuffersBehaviour(Enum):
    """Whether buffers in remote memory are merged."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(Enum):
    """How the compiler orders instructions."""

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4
