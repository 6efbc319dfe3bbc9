"""Names that programs use and TensorFlow 2.21 has no longer, or would download for.

`tf.estimator` and `tf.keras.ipu` are ours; `tf.keras.datasets` reads the folder that FPSIM_DATA
names.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.estimator.exporters import SERVING
from ipu.frontends.tensorflow.missing import no_name

__all__ = ["add_names"]

_OURS = "ipu.frontends.tensorflow"
#: Names of TensorFlow 2's `tf.estimator` that stand in `tf.compat.v1.train` too.
_OF_SESSIONS = (
    "CheckpointSaverHook", "CheckpointSaverListener", "FeedFnHook", "FinalOpsHook",
    "GlobalStepWaiterHook", "LoggingTensorHook", "NanLossDuringTrainingError", "NanTensorHook",
    "ProfilerHook", "SecondOrStepTimer", "SessionRunArgs", "SessionRunContext", "SessionRunHook",
    "SessionRunValues", "StepCounterHook", "StopAtStepHook", "SummarySaverHook", "VocabInfo",
)
#: Where programs of TensorFlow 2.6 find the class of Keras' optimisers.
_OPTIMIZER_V2 = "tensorflow.python.keras.optimizer_v2.optimizer_v2"
_SETS = ("cifar10", "fashion_mnist", "mnist")


class _Estimator(ModuleType):
    """Our `tf.estimator`, imported when a name of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = importlib.import_module(f"{_OURS}.estimator.training")
        if name in SERVING:
            raise NotImplementedError(
                f"tf.estimator.{name} writes a SavedModel for serving, which is not modelled; pass "
                "a tf.estimator.Exporter of your own: its export gets checkpoint_path"
            )
        if name in module.__all__:
            return getattr(module, name)
        if name in _OF_SESSIONS:
            return getattr(tf.compat.v1.train, name)
        raise AttributeError(no_name("tf.estimator", name, sorted(module.__all__)))


def add_names() -> None:
    """Give TensorFlow these names, for version 1 and 2."""
    kinds = importlib.import_module(f"{_OURS}.keras.optimizer_v2")
    importlib.import_module(_OPTIMIZER_V2).OptimizerV2 = kinds.OptimizerV2  # type: ignore[attr-defined]
    importlib.import_module(f"{_OURS}.keras.functions").extend_models()
    importlib.import_module(f"{_OURS}.checkpoints").extend_checkpoints()
    for module in (tf, tf.compat.v1):
        module.estimator = _Estimator("tensorflow.estimator")
    keras: Any
    every = (importlib.import_module(name) for name in ("tf_keras", "tensorflow.keras"))
    for keras in (tf.keras, tf.compat.v1.keras, *every):
        keras.ipu = importlib.import_module(f"{_OURS}.keras.names")
        for name in _SETS:
            ours = importlib.import_module(f"{_OURS}.datasets.{name}")
            getattr(keras.datasets, name).load_data = ours.load_data
