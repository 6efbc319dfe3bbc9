"""Models of Keras on several replicas: what steps return, and how many steps a replica takes.

steps_per_execution counts the mini-batches of all replicas. Replica r takes mini-batches r, r + R,
r + 2R … of the data; predictions come back in the order of the data.

Source    graphcore/keras, keras/ipu/extensions/model_extensions.py: reductions of metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.training.cross_replica import cross_replica_mean, cross_replica_sum
from ipu.frontends.tensorflow.training.gathering import concatenated, of_last_replica, stacked

__all__ = ["METRICS", "gather_steps", "steps_of_a_replica"]

#: What becomes of the metrics of several replicas.
METRICS: dict[str, Callable[[Any], Any]] = {
    "NONE": of_last_replica, "LIST": stacked, "SUM": cross_replica_sum, "MEAN": cross_replica_mean,
}  # fmt: skip


class _Share:
    """Steps of one replica, where Keras reads those of an execution."""

    def __init__(self, steps: Any, replicas: int) -> None:
        self._steps, self._replicas = steps, replicas

    def numpy(self) -> Any:
        return self._steps.numpy() // self._replicas

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        return tf.convert_to_tensor(self._steps, dtype, name=name) // self._replicas

    def __sub__(self, other: Any) -> Any:
        return tf.convert_to_tensor(self) - tf.cast(other, self._steps.dtype)


@contextmanager
def steps_of_a_replica(model: Any, replicas: int) -> Iterator[None]:
    """What Keras builds inside takes one replica's share of the steps of an execution.

    Raises    ValueError where the replicas do not divide them.
    """
    steps = model._steps_per_execution
    if replicas == 1:
        yield
        return
    count = int(steps.numpy())
    if count % replicas:
        raise ValueError(
            f"an execution of {count} mini-batches cannot be dealt to {replicas} replicas; give "
            f"compile() a steps_per_execution, and the data a number of batches, that {replicas} "
            "divides"
        )
    object.__setattr__(model, "_steps_per_execution", _Share(steps, replicas))
    try:
        yield
    finally:
        object.__setattr__(model, "_steps_per_execution", steps)


def gather_steps(model: Any, reduction: Callable[[], str]) -> None:
    """Steps of a model return what all replicas have; nothing happens the second time.

    reduction    names what becomes of metrics when a step is traced.
    """

    def metrics(results: Any) -> Any:
        with marked(metric="replicas"):
            return tf.nest.map_structure(METRICS[reduction()], results)

    def predictions(results: Any) -> Any:
        return tf.nest.map_structure(concatenated, results)

    for name, gather in (
        ("train_step", metrics), ("test_step", metrics), ("predict_step", predictions),
    ):  # fmt: skip
        step = getattr(model, name)
        if not hasattr(step, "_gathers"):
            setattr(model, name, _gathering(step, gather))
    # Keras reads metrics from the host's variables, which are those of one replica.
    object.__setattr__(model, "_validate_and_get_metrics_result", lambda logs: logs)


def _gathering(step: Callable[..., Any], gather: Callable[[Any], Any]) -> Callable[..., Any]:
    @wraps(step)
    def gathering(data: Any) -> Any:
        return gather(step(data))

    gathering._gathers = True  # type: ignore[attr-defined]
    return gathering
