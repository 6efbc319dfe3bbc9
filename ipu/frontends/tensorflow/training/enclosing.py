"""The loop that a program is building: what accumulates gradients has to know it.

Source    graphcore/tensorflow, driver/passes/gradient_accumulation_verifier.cc: messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_util_v2

__all__ = [
    "building_loop", "building_pipeline", "check_accumulation", "check_checkpoints",
    "check_no_pipeline",
]

#: Iterations of the loop; 0: not known; None: no loop.
_iterations: ContextVar[int | None] = ContextVar("iterations", default=None)
#: The schedule of the pipeline; "": no pipeline.
_schedule: ContextVar[str] = ContextVar("schedule", default="")


@contextmanager
def building_loop(iterations: object) -> Iterator[None]:
    """The nodes built inside are those of a loop's body.

    iterations    their number, where it is known before the program runs.
    """
    token = _iterations.set(iterations if isinstance(iterations, int) else 0)
    try:
        yield
    finally:
        _iterations.reset(token)


@contextmanager
def building_pipeline(schedule: str = "Grouped", ipus: int = 2) -> Iterator[None]:
    """The nodes built inside are those of a pipeline, which accumulates by itself.

    schedule    its name; ipus: how many IPUs its stages take.
    """
    token = _schedule.set(f"{schedule} on {ipus} IPU{'s' * (ipus > 1)}")
    try:
        yield
    finally:
        _schedule.reset(token)


def check_checkpoints() -> None:
    """Refuse a checkpoint of recomputation in a pipeline that cannot recompute from it.

    Raises    ValueError.
    """
    schedule, _, ipus = _schedule.get().partition(" on ")
    wanted = "Sequential" if ipus == "1 IPU" else "Grouped"
    if schedule and schedule != wanted:
        raise ValueError(
            f"pipeline_schedule={schedule} on {ipus}: with a recomputation checkpoint the schedule "
            "has to be Grouped for several IPUs and Sequential for one"
        )


def check_no_pipeline(name: str) -> None:
    """Refuse an optimiser that accumulates where a pipeline does.

    Raises    ValueError.
    """
    if _schedule.get():
        raise ValueError(
            f"{name} inside a pipeline: pipelines accumulate gradients by themselves; give the "
            "optimizer_function the optimiser that it wraps, and the number of mini-batches as "
            "gradient_accumulation_count"
        )


def check_accumulation(count: int) -> None:
    """Refuse to accumulate outside a loop, and in one whose iterations do not divide.

    Raises    tf.errors.FailedPreconditionError.
    """
    iterations = _iterations.get()
    if iterations is None and not _in_while_body():
        raise tf.errors.FailedPreconditionError(
            None, None,
            "Detected a gradient accumulation operation which is not inside a training loop. The "
            "model with the gradient accumulation operation needs to be wrapped in a training "
            "loop.",
        )
    if iterations is not None and iterations % count:
        raise tf.errors.FailedPreconditionError(
            None, None,
            f"Detected a gradient accumulation operation with {count} number of mini batches "
            f"inside a loop with {iterations} iterations.\nIt is required that the number of mini "
            "batches to accumulate evenly divides the number of loop iterations.",
        )


def _in_while_body() -> bool:
    """Whether the current graph lies in the body of TensorFlow's own loop."""
    graph = tf.compat.v1.get_default_graph()
    while isinstance(graph, FuncGraph):
        if control_flow_util_v2.in_while_loop_defun(graph):
            return True
        graph = graph.outer_graph
    return False
