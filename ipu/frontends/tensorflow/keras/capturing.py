"""Layers whose incoming gradients an optimiser gets beside those of the variables.

A training step of Keras runs inside of a capture; the optimiser that asks for captured gradients
(`supports_captured_grads`) gets them as `captured_grads` of its `apply_gradients`.

Source    graphcore/keras, keras/ipu/layers/capture_upstream_gradients.py: names and messages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.operations.capture import (
    GradientCaptureContext,
    active_capture,
    capture_upstream_gradients,
)

__all__ = ["CaptureActivationGradients", "CaptureUpstreamGradients", "capture_in_steps"]


def _captured(tensor: Any, tag: str) -> Any:
    """A tensor whose gradient is captured where a training step runs."""
    return tensor if active_capture() is None else capture_upstream_gradients(tensor, tag=tag)


class CaptureUpstreamGradients(tf.keras.layers.Wrapper):  # type: ignore[misc]
    """A layer whose gradient from the layers after it is captured.

    tag    its name among the captured ones; without it that of the layer and "_cug".
    """

    def __init__(self, layer: Any, tag: str | None = None, **kwargs: Any) -> None:
        if not isinstance(layer, tf.keras.layers.Layer):
            raise ValueError(f"layer={layer!r} is not a layer of Keras")
        self.tag = f"{layer.name}_cug" if tag is None else tag
        super().__init__(layer, **{"name": self.tag, **kwargs})

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """What the layer gives."""
        return _captured(self.layer(inputs, *args, **kwargs), self.tag)


class CaptureActivationGradients(tf.keras.layers.Wrapper):  # type: ignore[misc]
    """A layer whose gradient at the input of its activation is captured.

    tag    its name among the captured ones; without it that of the layer and "_cag".

    Raises    ValueError for a layer without an activation.
    """

    def __init__(self, layer: Any, tag: str | None = None, **kwargs: Any) -> None:
        if not isinstance(layer, tf.keras.layers.Layer):
            raise ValueError(f"layer={layer!r} is not a layer of Keras")
        activation = getattr(layer, "activation", None)
        if activation in (None, tf.keras.activations.linear):
            raise ValueError(
                f"Layer {layer.name} does not use an activation function so is not supported by "
                "CaptureActivationGradients"
            )
        self.tag = f"{layer.name}_cag" if tag is None else tag
        super().__init__(layer, **{"name": self.tag, **kwargs})
        name = f"{self.tag}_activation"
        layer.activation = lambda x: activation(_captured(x, name))

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """What the layer gives."""
        return self.layer(inputs, *args, **kwargs)


def capture_in_steps(model: Any) -> None:
    """Training steps of a model capture; nothing happens the second time."""
    step = model.train_step
    if not hasattr(step, "_captures"):
        model.train_step = _capturing(step)
    optimizer = model.optimizer
    asks = getattr(optimizer, "supports_captured_grads", False)
    if asks and not hasattr(optimizer.apply_gradients, "_captures"):
        optimizer.apply_gradients = _passing(optimizer.apply_gradients)


def _capturing(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(step)
    def train_step(data: Any) -> Any:
        with GradientCaptureContext():
            return step(data)

    train_step._captures = True  # type: ignore[attr-defined]
    return train_step


def _passing(apply: Callable[..., Any]) -> Callable[..., Any]:
    def apply_gradients(grads_and_vars: Any, *rest: Any, **named: Any) -> Any:
        capture = active_capture()
        captured = dict(capture.captured_gradients) if capture else None
        return apply(grads_and_vars, *rest, captured_grads=captured, **named)

    apply_gradients._captures = True  # type: ignore[attr-defined]
    return apply_gradients
