"""Errors of programs: the user's line, nodes without a kernel, traps in ten lines."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import Node

__all__ = ["MachineError", "UnsupportedNodeError", "user_line"]

_INSTALLED = (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"])
_OURS = str(Path(__file__).parents[2])
_LIBRARY = sysconfig.get_paths()["stdlib"]


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
    """FILE:LINE of the user's program that built a node, the innermost one."""
    frames = [frame for frame in op.traceback if _is_user(frame.filename)]
    if not frames:
        return "a line that TensorFlow did not keep"
    return f"{frames[-1].filename}:{frames[-1].lineno}"


def _is_user(filename: str) -> bool:
    if filename.startswith((*_INSTALLED, _OURS, _LIBRARY, "<")):
        return False
    return "/tensorflow/python/" not in filename
