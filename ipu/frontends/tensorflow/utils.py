"""`utils`: seeds of the machine, and configuration as programs wrote it before `IPUConfig`."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.settings.choices import (
    DeviceConnectionType,
    ExecutionProfileType,
    SelectionOrder,
)
from ipu.frontends.tensorflow.settings.legacy import (
    auto_select_ipus,
    configure_ipu_system,
    create_ipu_config,
    select_ipus,
    set_convolution_options,
    set_floating_point_behaviour_options,
    set_matmul_options,
    set_norm_options,
    set_recomputation_options,
)

__all__ = [
    "DeviceConnectionType", "ExecutionProfileType", "SelectionOrder", "auto_select_ipus",
    "configure_ipu_system", "create_ipu_config", "get_num_of_ipus_in_device",
    "move_variable_initialization_to_cpu", "reset_ipu_seed", "running_on_ipu_model", "select_ipus",
    "set_convolution_options", "set_floating_point_behaviour_options", "set_matmul_options",
    "set_norm_options", "set_recomputation_options",
]


def reset_ipu_seed(
    seed: int, device: str = "/device:IPU:0", cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> Any:
    """Random bits, those of stochastic rounding among them, follow this seed from now on.

    In TensorFlow 1 it returns the operation that does so.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed={seed!r} is not an integer")
    reseed = _Reseed(seed)
    if tf.executing_eagerly():
        reseed()
        return None
    return tf.numpy_function(reseed, [], [])


def get_num_of_ipus_in_device(ipu_device: str = "/device:IPU:0", device: str = "cpu") -> int:
    """IPUs of the program's TensorFlow device."""
    return current().n_ipus


def running_on_ipu_model() -> bool:
    """Whether TF_POPLAR_FLAGS asks for the vendor's model of an IPU; this one is neither."""
    return "--use_ipu_model" in os.environ.get("TF_POPLAR_FLAGS", "")


def move_variable_initialization_to_cpu(graph: Any = None) -> None:
    """Nothing: TensorFlow initialises variables on the host here, whatever their scope."""


class _Reseed:
    def __init__(self, seed: int) -> None:
        self._seed = seed % 2**64

    def __call__(self) -> None:
        current().reseed(self._seed)
