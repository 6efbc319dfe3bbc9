"""Errors of programs: the user's line, nodes without a kernel, traps in ten lines."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import MARK, Node

__all__ = ["MachineError", "UnsupportedNodeError", "is_user_file", "user_line"]

_INSTALLED = (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"])
_OURS = str(Path(__file__).parents[2])
_LIBRARY = sysconfig.get_paths()["stdlib"]
#: The mark of `keras.lines`.
_LAYER = f"{MARK}layer_line"


class UnsupportedNodeError(NotImplementedError):
    """A graph has a node that the machine has no kernel for; nothing was executed."""


class MachineError(tf.errors.InternalError, FloatingPointError):  # type: ignore[misc]
    """A floating-point exception stopped the machine.

    is_in_lines    all lines of the message are for the user.
    """

    is_in_lines = True

    def __init__(self, node: Node, trap: BaseException) -> None:
        self.trap = trap
        super().__init__(None, None, "\n".join(_told(node, str(trap).splitlines())))

    def __str__(self) -> str:
        return str(self.message)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.message).partition(chr(10))[0]!r})"


def _told(node: Node, trap: list[str]) -> list[str]:
    """At most ten lines: what, where in the graph, where in the user's program, the registers."""
    lines = [f"Tiles in excepted state: {trap[0]}", f"in node {node.name} ({node.type})"]
    if node.forward is not None:
        lines.append(f"a gradient of {node.forward.name} ({node.forward.type})")
    lines.append(f"built at {user_line(node.op)}")
    if node.forward is not None:
        lines.append(f"its forward node at {user_line(node.forward)}")
    return [*lines, *trap[1:]][:10]


def user_line(op: Any) -> str:
    """FILE:LINE of the user's program that built a node, the innermost one.

    Of what a layer of Keras builds it is the line of the layer's own code if the program has that,
    else where the layer was made, with its name.
    """
    frames = list(op.traceback)
    layer = op.node_def.attr[_LAYER].s.decode() if _LAYER in op.node_def.attr else ""
    if layer:
        inside = max((i for i, f in enumerate(frames) if _calls_layer(f)), default=-1)
        frames = frames[inside + 1 :]
    users = [frame for frame in frames if is_user_file(frame.filename)]
    if users:
        return f"{users[-1].filename}:{users[-1].lineno}"
    return layer or "a line that TensorFlow did not keep"


def _calls_layer(frame: Any) -> bool:
    return bool(frame.name == "__call__" and frame.filename.endswith("/engine/base_layer.py"))


def is_user_file(filename: str) -> bool:
    """Whether a file belongs to the user's program."""
    if filename.startswith((*_INSTALLED, _OURS, _LIBRARY, "<")):
        return False
    return "/tensorflow/python/" not in filename
