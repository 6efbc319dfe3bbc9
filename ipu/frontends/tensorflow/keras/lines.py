"""Lines of Keras' layers: nodes that a layer builds are marked with where the layer was made.

TensorFlow knows of such a node only the line of `fit`: Keras itself builds the graph. The mark
`layer_line` holds name, class and line of the innermost layer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.errors import is_user_file
from ipu.frontends.tensorflow.engine.node import marked

__all__ = ["note_lines"]

_LINE = "_fpsim_made_at"


def note_lines() -> None:
    """Layers of this process know their lines; nothing happens the second time."""
    layer = tf.keras.layers.Layer
    if not hasattr(layer, _LINE):
        setattr(layer, _LINE, "")
        layer.__new__ = staticmethod(_placing(layer.__new__))
        layer.__call__ = _marking(layer.__call__)


def _placing(new: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(new)
    def place(cls: type[Any], *arguments: Any, **options: Any) -> Any:
        layer = new(cls, *arguments, **options)
        layer.__dict__[_LINE] = _caller()
        return layer

    return place


def _caller() -> str:
    """FILE:LINE of the user's program that is running, the innermost one."""
    frame = sys._getframe(2)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _marking(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def marking_call(layer: Any, *arguments: Any, **options: Any) -> Any:
        line = getattr(layer, _LINE)
        if not line or tf.executing_eagerly():
            return call(layer, *arguments, **options)
        with marked(layer_line=f"{line}, layer {layer.name} ({type(layer).__name__})"):
            return call(layer, *arguments, **options)

    return marking_call
