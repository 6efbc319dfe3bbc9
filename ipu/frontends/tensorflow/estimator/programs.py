"""The program of an estimator for one mode: a loop over the model function, compiled once.

Training carries the sum of the losses in binary32. With one iteration a launch there is no loop,
and a host call gets its tensors from the launch, each as soon as it is computed: gradients leave
layer by layer, and what the host does with them goes on beside the rest of the backward pass.

Source    graphcore/tensorflow, tensorflow/python/ipu/ipu_estimator.py: structure and messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow import loops
from ipu.frontends.tensorflow.compiler import compiled_node
from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.engine.functions import called_graphs
from ipu.frontends.tensorflow.engine.node import MARK, Node
from ipu.frontends.tensorflow.engine.subnormals import noted_on_host
from ipu.frontends.tensorflow.estimator.calls import Spec, call_model_fn, unpacked
from ipu.frontends.tensorflow.estimator.run_config import RunConfig
from ipu.frontends.tensorflow.estimator.specs import IPUEstimatorSpec, ModeKeys
from ipu.frontends.tensorflow.feeds import IPUInfeedQueue, IPUOutfeedQueue
from ipu.frontends.tensorflow.scopes import ipu_scope
from ipu.frontends.tensorflow.settings.notes import note
from ipu.frontends.tensorflow.training.cross_replica import cross_replica_sum

__all__ = ["ON_HOST", "ModelProgram", "arguments_of", "compiled"]

#: What is not modelled of a host call.
ON_HOST = (
    "host_call: TensorFlow computes it on the host, in the tensors' types and to nearest; neither "
    "flags nor cycles of it are counted"
)


@dataclass
class ModelProgram:
    """A model function, and what it left behind when it was traced.

    host_call       (function, tensors): the tensors as the host gets them.
    hooks           that the model function asked for; chief_hooks are the first worker's.
    """

    model_fn: Callable[..., Any]
    config: RunConfig
    params: dict[str, Any]
    infeed: IPUInfeedQueue
    outfeed: IPUOutfeedQueue
    hooks: list[Any] = field(default_factory=list)
    chief_hooks: list[Any] = field(default_factory=list)
    _host_function: Callable[..., Any] | None = None
    _host_tensors: list[Any] = field(default_factory=list)
    _metrics_function: Callable[..., Any] | None = None

    @property
    def iterations(self) -> int:
        """Iterations of one launch."""
        return self.config.ipu_run_config.iterations_per_loop

    # Training -------------------------------------------------------------------------------

    def training(self) -> tuple[Any, Any]:
        """The mean loss of a launch, and what a session runs to train.

        Several workers average gradients and loss, each step in one order.
        """
        strategy = self.config.train_distribute
        if strategy is None:
            return self._trained()
        with strategy.estimator_scope():
            loss, done = self._trained()
        with tf.control_dependencies([done]):  # after the gradients, on every worker
            return strategy.reduce(tf.distribute.ReduceOp.MEAN, loss), done

    def _trained(self) -> tuple[Any, Any]:
        if self.iterations == 1:
            loss, *tensors = compiled(self._single, streams=True)
        else:
            (loss,), tensors = compiled(self._repeated), []
        if self._host_function is None:
            return loss, loss
        note(ON_HOST)
        done = self._host_function(*noted_on_host(tensors))
        current().host_call = _traffic(tensors)
        if not isinstance(done, tf.Operation | tf.Tensor):
            raise TypeError(f"`host_call` return value must be Operation or Tensor, given: {done}")
        return loss, done

    def _single(self) -> Any:
        total = self._training_step(tf.constant(0.0), *arguments_of(self.infeed._dequeue()))
        return [self._mean(total), *self._host_tensors]

    def _repeated(self) -> Any:
        total = loops.repeat(
            self.iterations, _spread(self._training_step, 1), [tf.constant(0.0)], self.infeed
        )
        if self._host_function is not None:
            raise ValueError("host_call is not allowed for iterations_per_loop > 1")
        return self._mean(total)

    def _training_step(self, total: Any, args: Any, kwargs: Any) -> Any:
        spec = self._spec(args, kwargs, ModeKeys.TRAIN)
        self.hooks += spec.training_hooks or []
        self.chief_hooks += getattr(spec, "training_chief_hooks", None) or []
        if isinstance(spec, IPUEstimatorSpec) and spec.host_call is not None:
            self._host_function, self._host_tensors = spec.host_call
        with tf.control_dependencies([spec.train_op]):
            total = total + _scalar(spec.loss)
        graph = tf.compat.v1.get_default_graph()
        _check_global_step(graph)
        if self.config.ipu_run_config.num_replicas > 1:
            _check_replicated(graph)
        return total

    def _mean(self, total: Any) -> Any:
        """The mean over a loop's iterations and the replicas."""
        replicas = self.config.ipu_run_config.num_replicas
        if replicas > 1:
            total = cross_replica_sum(total)
        return total / (self.iterations * replicas)

    # Evaluation and prediction --------------------------------------------------------------

    def evaluation(self) -> tuple[Any, dict[str, tuple[Any, Any]]]:
        """The mean loss of a launch, and metrics by name: (value, what updates it)."""
        (loss,) = compiled(self._evaluating)
        if self._metrics_function is None:
            with tf.control_dependencies([loss]):
                metrics, none = self.outfeed.dequeue(), tf.no_op()
            return loss, {n: (tf.reduce_mean(v[-1]), none) for n, v in metrics.items()}
        with tf.control_dependencies([loss]):
            args, kwargs = arguments_of(self.outfeed.dequeue())
        return loss, self._metrics_function(*args, **kwargs)

    @property
    def computes_metrics_on_host(self) -> bool:
        """Whether metrics are updated on the host, batch by batch."""
        return self._metrics_function is not None

    def _evaluating(self) -> Any:
        total = loops.repeat(
            self.iterations, _spread(self._evaluation_step, 1), [tf.constant(0.0)], self.infeed
        )
        return self._mean(total)

    def _evaluation_step(self, total: Any, args: Any, kwargs: Any) -> Any:
        spec = self._spec(args, kwargs, ModeKeys.EVAL)
        self.hooks += spec.evaluation_hooks or []
        on_host = getattr(spec, "eval_metrics", None)
        if not spec.eval_metric_ops and not on_host:
            raise ValueError(
                "EstimatorSpec must contain either eval_metric_ops or eval_metrics when evaluating"
            )
        if spec.eval_metric_ops and on_host:
            raise ValueError("EstimatorSpec cannot contain both eval_metric_ops and eval_metrics")
        if on_host:
            self._metrics_function, values = on_host
        else:
            assert spec.eval_metric_ops is not None
            # An update gives the new value; whether `value` is read before it is not said.
            values = {name: spec.eval_metric_ops[name][1] for name in sorted(spec.eval_metric_ops)}
        return total + _scalar(spec.loss), self.outfeed.enqueue(values)

    def prediction(self) -> Any:
        """The predictions of a launch, stacked."""
        done = compiled(self._predicting)
        with tf.control_dependencies([done]):
            return self.outfeed.dequeue()

    def _predicting(self) -> Any:
        return loops.repeat(self.iterations, _spread(self._prediction_step, 0), [], self.infeed)

    def _prediction_step(self, args: Any, kwargs: Any) -> Any:
        spec = self._spec(args, kwargs, ModeKeys.PREDICT)
        self.hooks += spec.prediction_hooks or []
        return self.outfeed.enqueue(spec.predictions)

    def _spec(self, args: Any, kwargs: Any, mode: str) -> Spec:
        features, labels = unpacked(args, kwargs)
        return call_model_fn(self.model_fn, features, labels, mode, self.params, self.config)


def compiled(function: Callable[..., Any], *, streams: bool = False) -> Any:
    """The program of a function, whose variables are resources.

    streams    results behind the first are there as soon as they are computed.
    """
    with ipu_scope("/device:IPU:0"):
        return compiled_node(function, streams=streams)


def _scalar(loss: Any) -> Any:
    """A loss in binary32."""
    if loss.shape.num_elements() != 1:
        raise ValueError(f"Loss must be scalar, given: {loss}")
    return tf.reshape(tf.cast(loss, tf.float32), [])


def _traffic(tensors: list[Any]) -> dict[str, int]:
    """Tensors that a step streams to the host, and weights that come back, by their data types."""
    weights = tf.compat.v1.trainable_variables()
    out, back = ([t.shape.num_elements() or 0 for t in group] for group in (tensors, weights))
    return {
        "tensors": len(tensors),
        "bytes_out": sum(n * t.dtype.size for n, t in zip(out, tensors, strict=True)),
        "bytes_back": sum(n * v.dtype.size for n, v in zip(back, weights, strict=True)),
    }


def arguments_of(element: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An element as arguments: by name, if it is a dictionary."""
    if isinstance(element, dict):
        return (), element
    return (tuple(element) if isinstance(element, list | tuple) else (element,)), {}


def _spread(step: Callable[..., Any], carried: int) -> Callable[..., Any]:
    """A body of a loop: so many carried values, then the element's parts."""

    def body(*values: Any, **named: Any) -> Any:
        return step(*values[:carried], values[carried:], named)

    return body


# What a training may not do ----------------------------------------------------------------------


def _check_global_step(graph: Any) -> None:
    for op in graph.get_operations():
        if op.type == "AssignAddVariableOp" and "global_step" in op.inputs[0].name:
            raise ValueError(
                "Illegal increment of the `global_step` variable in the `model_fn`. This is "
                "usually caused by passing it as an argument to the `Optimizer.minimize()` "
                "function. Please remove this argument as the IPUEstimator itself is responsible "
                "for incrementing it."
            )


def _check_replicated(graph: Any) -> None:
    reduced = (b"CrossReplicaSum", b"CrossReplicaMean")
    for op in _operations(graph):
        attributes = op.node_def.attr
        if f"{MARK}kernel" in attributes and attributes[f"{MARK}kernel"].s in reduced:
            return
    raise ValueError(
        "This is not a valid replicated training graph because no IpuCrossReplicaSum or "
        "IpuCrossReplicaMean operations were found. Did you remember to use the "
        "`tensorflow.python.ipu.optimizers.CrossReplicaOptimizer`?"
    )


def _operations(graph: Any) -> Iterator[Any]:
    """The operations of a graph and of the functions that it calls."""
    for op in graph.get_operations():
        yield op
        for inner, _ in called_graphs(Node(op)):
            yield from _operations(inner)
