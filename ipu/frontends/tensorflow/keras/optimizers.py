"""`ipu.keras.optimizers`: optimisers of Keras around other ones, by the vendor's names."""

from __future__ import annotations

from ipu.frontends.tensorflow.keras.automatic import ALSOptimizer
from ipu.frontends.tensorflow.keras.wrapping import CrossReplicaOptimizer, MapGradientOptimizer

__all__ = ["ALSOptimizer", "CrossReplicaOptimizer", "MapGradientOptimizer"]
