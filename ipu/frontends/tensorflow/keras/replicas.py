"""Models of Keras on several replicas: what steps return, and how many steps a replica takes.

steps_per_execution counts the mini-batches of a replica, so a launch takes that many for each of
them. Replica r takes mini-batches r, r + R, r + 2R … of the data; predictions come back in the
order of the data. A number of batches that the replicas do not divide loses the rest.

Source    graphcore/keras, keras/ipu/extensions/model_extensions.py: reductions of metrics;
          data_adapter.py: steps of a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf
from tf_keras.src.engine.data_adapter import DataHandler

from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.settings.notes import note
from ipu.frontends.tensorflow.training.cross_replica import cross_replica_mean, cross_replica_sum
from ipu.frontends.tensorflow.training.gathering import concatenated, of_last_replica, stacked

__all__ = ["METRICS", "deal_steps", "gather_steps", "steps_of_a_replica"]

#: What becomes of the metrics of several replicas.
METRICS: dict[str, Callable[[Any], Any]] = {
    "NONE": of_last_replica, "LIST": stacked, "SUM": cross_replica_sum, "MEAN": cross_replica_mean,
}


def deal_steps(replicas_of: Callable[[Any], int]) -> None:
    """Keras' handlers of data count the steps of a replica; nothing happens the second time.

    replicas_of    replicas of a model in this process.
    """
    infer = DataHandler._infer_steps
    if hasattr(infer, "_deals"):
        return

    @wraps(infer)
    def dealt(handler: Any, steps: Any, dataset: Any) -> int | None:
        count, replicas = infer(handler, steps, dataset), replicas_of(handler._model)
        return count if count is None else steps_of_a_replica(count, replicas)

    dealt._deals = True  # type: ignore[attr-defined]
    DataHandler._infer_steps = dealt


def steps_of_a_replica(count: int, replicas: int) -> int:
    """Steps of each replica that take a number of mini-batches; the rest is left out, and told.

    Raises    ValueError where there is no mini-batch for each.
    """
    steps, rest = divmod(count, replicas)
    if steps == 0:
        raise ValueError(
            f"the data has {count} mini-batches, and each of the {replicas} replicas takes one in "
            f"a step; use {replicas} mini-batches or more"
        )
    if rest:
        note(
            f"{count} mini-batches are dealt to {replicas} replicas, each takes {steps}; the last "
            f"{rest} of them are left out"
        )
    return steps


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
    ):
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
