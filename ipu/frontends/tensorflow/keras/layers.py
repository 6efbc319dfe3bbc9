"""Layers of Keras that the vendor added, by the vendor's names.

Source    graphcore/tensorflow, tensorflow/python/ipu/keras/layers: names, arguments; the later
          package of additions: the long names of the normalisations.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.keras.capturing import (
    CaptureActivationGradients,
    CaptureUpstreamGradients,
)
from ipu.frontends.tensorflow.missing import refusing
from ipu.frontends.tensorflow.operations.normalization import channels_of, normalised
from ipu.frontends.tensorflow.operations.rand import dropout
from ipu.frontends.tensorflow.pipelining.ops import recomputation_checkpoint

__all__ = [
    "CaptureActivationGradients", "CaptureUpstreamGradients", "Dropout", "GroupNorm",
    "GroupNormalization", "InstanceNorm", "InstanceNormalization", "LayerNorm",
    "LayerNormalization", "RecomputationCheckpoint",
]

#: Names of the vendor's modules without a layer here.
_MISSING = (
    "AssumeEqualAcrossReplicas", "CTCInferenceLayer", "CTCPredictionsLayer", "EffectiveTransformer",
    "Embedding", "GRU", "LSTM", "PopnnGRU", "PopnnLSTM", "SerialDense",
)

__getattr__ = refusing("ipu.keras.layers", _MISSING, __all__)


class RecomputationCheckpoint(tf.keras.layers.Layer):  # type: ignore[misc]
    """Tensors that recomputation starts from; no bit changes."""

    def call(self, inputs: Any) -> Any:
        """The inputs."""
        return recomputation_checkpoint(inputs, name=self.name)


class Dropout(tf.keras.layers.Layer):  # type: ignore[misc]
    """In training sets a share of the elements to zero; see `rand_ops.dropout`."""

    def __init__(self, rate: float, noise_shape: Any = None, seed: Any = None, **kwargs: Any):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"The rate must be in the range [0, 1), but was {rate}")
        self.rate, self.noise_shape, self.seed = rate, noise_shape, seed

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The inputs, or what is left of them."""
        if training is None:
            training = tf.keras.backend.learning_phase()
        if not tf.is_tensor(training):
            return self._dropped(inputs) if training else tf.identity(inputs)
        return tf.cond(
            tf.cast(training, tf.bool), lambda: self._dropped(inputs), lambda: tf.identity(inputs)
        )

    def _dropped(self, inputs: Any) -> Any:
        return dropout(inputs, seed=self.seed, rate=self.rate, noise_shape=self.noise_shape)

    def get_config(self) -> dict[str, Any]:
        """What `from_config` builds the layer from."""
        options = {"rate": self.rate, "noise_shape": self.noise_shape, "seed": self.seed}
        return {**super().get_config(), **options}


class GroupNorm(tf.keras.layers.Layer):  # type: ignore[misc]
    """Whitens groups of channels, then scales and shifts each channel.

    dtype                    of beta and gamma; the inputs keep theirs.
    channel_strided_input    whether a group takes every groups-th channel, else neighbours.

    Raises    ValueError for another channels_axis than 1 and the last, and groups that do not
              divide the channels.
    """

    def __init__(
        self, dtype: Any = tf.float32, groups: int = 2, channels_axis: int = -1,
        center: bool = True, scale: bool = True, epsilon: float = 1e-6,
        beta_initializer: Any = None, gamma_initializer: Any = None,
        channel_strided_input: bool = True, name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype, name=name, autocast=False)
        self.groups, self.channels_axis = groups, channels_axis
        self.center, self.scale, self.epsilon = center, scale, epsilon
        self.beta_initializer = beta_initializer or "zeros"
        self.gamma_initializer = gamma_initializer or "ones"
        self.channel_strided_input = channel_strided_input

    def _groups_of(self, channels: int) -> int:
        return self.groups

    def build(self, input_shape: Any) -> None:
        """Make beta and gamma."""
        shape = tf.TensorShape(input_shape)
        _, channels = channels_of(shape, self.channels_axis)
        self.groups = self._groups_of(channels)
        channels_of(shape, self.channels_axis, self.groups)
        for name, is_wanted in (("beta", self.center), ("gamma", self.scale)):
            if is_wanted:
                start = getattr(self, f"{name}_initializer")
                setattr(self, name, self.add_weight(name, (channels,), initializer=start))
        super().build(input_shape)

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The normalised inputs, by their own statistics also after training."""
        _, channels = channels_of(inputs.shape, self.channels_axis)
        gamma = self.gamma if self.scale else tf.ones((channels,), self.dtype)
        beta = self.beta if self.center else tf.zeros((channels,), self.dtype)
        return normalised(
            inputs, gamma, beta, self.groups, self.channels_axis, self.epsilon,
            self.channel_strided_input,
        )


class InstanceNorm(GroupNorm):
    """Group norm with a group for each channel."""

    def __init__(
        self, dtype: Any = tf.float32, channels_axis: int = -1, center: bool = True,
        scale: bool = True, epsilon: float = 1e-6, beta_initializer: Any = None,
        gamma_initializer: Any = None, name: str | None = None,
    ) -> None:
        super().__init__(
            dtype, 1, channels_axis, center, scale, epsilon, beta_initializer, gamma_initializer,
            name=name,
        )

    def _groups_of(self, channels: int) -> int:
        return channels


class LayerNorm(InstanceNorm):
    """Group norm with one group."""

    def _groups_of(self, channels: int) -> int:
        return 1


GroupNormalization, InstanceNormalization = GroupNorm, InstanceNorm
LayerNormalization = LayerNorm
