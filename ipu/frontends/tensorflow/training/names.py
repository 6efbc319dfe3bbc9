"""`tensorflow.python.ipu.optimizers`: every optimiser under one name."""

from __future__ import annotations

from ipu.frontends.tensorflow.training import accumulation as gradient_accumulation_optimizer
from ipu.frontends.tensorflow.training import cross_replica as cross_replica_optimizer
from ipu.frontends.tensorflow.training import map_gradient as map_gradient_optimizer
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
    "cross_replica_optimizer", "gradient_accumulation_optimizer", "map_gradient_optimizer",
]

#: The vendor's name is a package; its modules are found by their own names.
__path__: list[str] = []
