"""`popart.SessionOptions`: what it says of pipelines, replicas and places of tensors is a plan.

Modelled are the options whose effect a plan has; another name is refused with those that are there.

Source    graphcore/popart, include/popart/sessionoptions.hpp: names and defaults; replicas of a
          distributed run: the documents on PopDist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipu.frontends.popart.checking import Checked
from ipu.frontends.popart.locations import TensorLocationSettings
from ipu.plan.plan import Plan

__all__ = ["SessionOptions"]

#: Kinds of tensors of a plan, by the settings of their places.
_KINDS = {
    "activation": "activations", "weight": "weights", "optimizerState": "state",
    "accumulator": "accumulators",
}


class SessionOptions(Checked):
    """Options of a session, as far as a plan has them.

    >>> options = SessionOptions()
    >>> options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    >>> options.plan([abs, abs]).replicas
    2
    """

    enableReplicatedGraphs: bool = False
    replicatedGraphCount: int = 1
    enableDistributedReplicatedGraphs: bool = False
    globalReplicationFactor: int = 1
    globalReplicaOffset: int = 0
    enablePipelining: bool = False
    enableGradientAccumulation: bool = False
    accumulationFactor: int = 1
    defaultPrefetchBufferingDepth: int = 1
    numIOTiles: int = 0
    activationTensorLocationSettings: TensorLocationSettings
    weightTensorLocationSettings: TensorLocationSettings
    optimizerStateTensorLocationSettings: TensorLocationSettings
    accumulatorTensorLocationSettings: TensorLocationSettings

    def __init__(self) -> None:
        super().__init__(**{_place(kind): TensorLocationSettings() for kind in _KINDS})

    def getGlobalReplicationFactor(self) -> int:
        """Replicas of all processes.

        Raises    ValueError where the replicas of this process are no part of them.
        """
        mine = self.replicatedGraphCount if self.enableReplicatedGraphs else 1
        if not self.enableDistributedReplicatedGraphs:
            return mine
        if self.globalReplicationFactor % mine:
            raise ValueError(
                f"globalReplicationFactor={self.globalReplicationFactor} is no multiple of "
                f"replicatedGraphCount={mine}; use equal shares for all processes"
            )
        return self.globalReplicationFactor

    def plan(self, stages: Sequence[Callable[..., Any]], training: bool = True) -> Plan:
        """The plan of these stages, one on each IPU, by these options.

        Raises    ValueError as `ipu.plan.Plan`, and for sharding without replicas.
        """
        state = self.optimizerStateTensorLocationSettings
        return Plan(
            stages, schedule="popart" if self.enablePipelining else "sequential",
            count=self.accumulationFactor if self.enableGradientAccumulation else 1,
            replicas=self.getGlobalReplicationFactor(), training=training,
            offload=tuple(
                kind for name, kind in _KINDS.items() if getattr(self, _place(name)).is_remote
            ),
            shard_state=state.is_sharded,
            shard_minimum=state.minElementsForReplicatedTensorSharding,
            prefetch=self.defaultPrefetchBufferingDepth, io_tiles=self.numIOTiles,
        )


def _place(kind: str) -> str:
    return f"{kind}TensorLocationSettings"
