"""Captured gradients: what flows back into an operation, kept by a name beside the gradients.

Source    graphcore/tensorflow, tensorflow/python/ipu/ops/grad_util_ops.py and eager/backprop.py:
          names, arguments, messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any

import tensorflow as tf

__all__ = [
    "GradientCaptureContext", "GradientCaptureTape", "active_capture", "capture_upstream_gradients",
]

_active: list[GradientCaptureContext] = []


class GradientCaptureContext:
    """Gradients that flow back into the operations captured inside, by tag."""

    def __init__(self) -> None:
        self._captured: dict[str, list[Any]] = {}

    def __enter__(self) -> GradientCaptureContext:
        _active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _active.remove(self)

    def _keep(self, tag: str, gradients: list[Any]) -> None:
        if tag in self._captured:
            raise ValueError(
                f"tag={tag!r} has captured gradients already; capture each operation under its own"
            )
        self._captured[tag] = gradients

    @property
    def captured_gradients(self) -> Mapping[str, list[Any]]:
        """By tag, one for each captured tensor; there once gradients were computed."""
        return MappingProxyType(self._captured)


class GradientCaptureTape(tf.GradientTape, GradientCaptureContext):  # type: ignore[misc]
    """A tape that captures gradients too."""

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        tf.GradientTape.__init__(self, persistent, watch_accessed_variables)
        GradientCaptureContext.__init__(self)

    def __enter__(self) -> GradientCaptureTape:
        tf.GradientTape.__enter__(self)
        GradientCaptureContext.__enter__(self)
        return self

    def __exit__(self, *details: Any) -> None:
        GradientCaptureContext.__exit__(self, *details)
        tf.GradientTape.__exit__(self, *details)


def active_capture() -> GradientCaptureContext | None:
    """The innermost context."""
    return _active[-1] if _active else None


def capture_upstream_gradients(*args: Any, tag: str = "") -> Any:
    """The arguments as they are; gradients that flow into them are kept under the tag.

    Raises    RuntimeError outside of a GradientCaptureTape or GradientCaptureContext.
    """
    context = active_capture()
    if context is None:
        raise RuntimeError(
            "capture_upstream_gradients may only be used within the context of "
            "GradientCaptureTape or GradientCaptureContext."
        )

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def identity(*tensors: Any) -> Any:
        def gradient(*upstream: Any) -> Any:
            context._keep(tag, list(upstream))
            return list(upstream) if len(upstream) > 1 else upstream[0]

        return [tf.identity(tensor) for tensor in tensors], gradient

    outputs = identity(*args)
    return outputs if len(args) > 1 else tf.nest.flatten(outputs)[0]
