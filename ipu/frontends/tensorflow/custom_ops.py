"""`custom_ops`: code that is compiled for Poplar, which the simulation cannot execute.

The names are there, so that programs which import them run; a call is refused.

Source    graphcore/tensorflow, tensorflow/python/ipu/ops/custom_ops.py: names and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["codelet_expression_op", "cpu_user_operation", "precompiled_user_op"]

_INSTEAD = (
    "write it with TensorFlow's operations, or call tf.numpy_function, which runs on the host"
)


def precompiled_user_op(
    inputs: Any, library_path: str, gp_path: str = "", outs: Any = None, name: str = "UserOp",
    op_name: str = "Build", separate_gradients: bool = False, **options: Any,
) -> NoReturn:
    """Refused: the library builds a Poplar graph.

    Raises    NotImplementedError.
    """
    raise NotImplementedError(
        f"precompiled_user_op: library_path={library_path!r} holds code for Poplar, which the "
        f"simulation cannot execute; {_INSTEAD}"
    )


def cpu_user_operation(
    inputs: Any, library_path: str, outs: Any = None, name: str = "UserOp",
    op_name: str = "Callback", separate_gradients: bool = False, **options: Any,
) -> NoReturn:
    """Refused: the library is written for the vendor's callbacks.

    Raises    NotImplementedError.
    """
    raise NotImplementedError(
        f"cpu_user_operation: library_path={library_path!r} is compiled for callbacks of the "
        f"vendor's, which the simulation does not have; {_INSTEAD}"
    )


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> NoReturn:
    """Refused: where a fused codelet rounds is not known.

    Raises    NotImplementedError.
    """
    name = getattr(vertex_expression, "__name__", repr(vertex_expression))
    raise NotImplementedError(
        f"codelet_expression_op: {name} becomes a fused codelet, whose roundings are not known; "
        f"{_INSTEAD}"
    )
