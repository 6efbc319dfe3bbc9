"""`tensorflow.python.ipu.optimizers`: every optimiser under one name."""

from __future__ import annotations

from ipu.frontends.tensorflow.training.accumulation import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
)
from ipu.frontends.tensorflow.training.cross_replica import CrossReplicaOptimizer
from ipu.frontends.tensorflow.training.map_gradient import MapGradientOptimizer
from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod
from ipu.frontends.tensorflow.training.wrapper import IpuOptimizer

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer", "CrossReplicaGradientAccumulationOptimizerV2",
    "CrossReplicaOptimizer", "GradientAccumulationOptimizer", "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod", "IpuOptimizer", "MapGradientOptimizer",
]  # fmt: skip

#: Programs also import the modules of this name's package: they are found by their vendor's names.
__path__: list[str] = []
