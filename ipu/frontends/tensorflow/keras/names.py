"""`tensorflow.python.ipu.keras`, which is `tf.keras.ipu` too: layers, optimisers, stages."""

from __future__ import annotations

from ipu.frontends.tensorflow.keras import layers, optimizers
from ipu.frontends.tensorflow.keras.stages import (
    FunctionalLayerPipelineStageAssignment,
    PipelineStage,
)

__all__ = ["FunctionalLayerPipelineStageAssignment", "PipelineStage", "layers", "optimizers"]

#: The vendor's name is a package; its modules are found by their own names.
__path__: list[str] = []
