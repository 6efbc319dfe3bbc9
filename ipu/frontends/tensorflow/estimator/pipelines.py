"""`ipu_pipeline_estimator`: an estimator whose model function names the stages of a pipeline.

A launch runs iterations_per_loop mini-batches: as many updates as gradient_accumulation_count goes
into them. The loss is summed by the pipeline and averaged on the host, in binary32.

Source    graphcore/tensorflow, tensorflow/python/ipu/ipu_pipeline_estimator.py: names, structure
          and messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.estimator.calls import names
from ipu.frontends.tensorflow.estimator.estimator import IPUEstimator
from ipu.frontends.tensorflow.estimator.programs import ModelProgram, arguments_of, compiled
from ipu.frontends.tensorflow.estimator.specs import ModeKeys
from ipu.frontends.tensorflow.pipelining.ops import pipeline
from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod

__all__ = ["IPUPipelineEstimator", "IPUPipelineEstimatorSpec"]

_MEAN = GradientAccumulationReductionMethod.MEAN


class IPUPipelineEstimatorSpec:
    """What the model function of a pipeline returns.

    computational_stages    functions; the first gets the element of the data set.
    eval_metrics_fn         gets the last outputs of all mini-batches, on the host; returns metrics
                            by name, "loss" among them.
    loss_accumulator_dtype  of the sum of the losses; None: the loss's own.
    pipeline_op_kwargs      other arguments of `pipelining_ops.pipeline`.

    Raises    ValueError for what the mode needs and was not passed.
    """

    def __init__(
        self, mode: str, computational_stages: Sequence[Any],
        gradient_accumulation_count: int | None = None,
        eval_metrics_fn: Callable[..., Any] | None = None,
        optimizer_function: Callable[..., Any] | None = None,
        device_mapping: Sequence[int] | None = None, loss_accumulator_dtype: Any = None,
        training_hooks: Sequence[Any] | None = None, evaluation_hooks: Sequence[Any] | None = None,
        prediction_hooks: Sequence[Any] | None = None, reduction_method: Any = _MEAN,
        **pipeline_op_kwargs: Any,
    ) -> None:
        needed = {
            "optimizer_function": (mode == ModeKeys.TRAIN, optimizer_function, " when training"),
            "eval_metrics_fn": (mode == ModeKeys.EVAL, eval_metrics_fn, " when evaluating"),
            "gradient_accumulation_count": (True, gradient_accumulation_count, ""),
        }
        for name, (is_needed, value, when) in needed.items():
            if is_needed and not value:
                raise ValueError(f"`IPUPipelineEstimatorSpec` must contain `{name}`{when}")
        if "accumulate_outfeed" in pipeline_op_kwargs:
            raise ValueError(
                "The `accumulate_outfeed` pipeline keyword argument cannot be passed to the "
                "`IPUPipelineEstimatorSpec`."
            )
        assert gradient_accumulation_count is not None
        self.mode, self.computational_stages = mode, computational_stages
        self.gradient_accumulation_count = gradient_accumulation_count
        self.eval_metrics_fn, self.optimizer_function = eval_metrics_fn, optimizer_function
        self.device_mapping, self.reduction_method = device_mapping, reduction_method
        self.loss_accumulator_dtype = loss_accumulator_dtype
        self.training_hooks, self.evaluation_hooks = training_hooks, evaluation_hooks
        self.prediction_hooks, self.pipeline_op_kwargs = prediction_hooks, pipeline_op_kwargs

    @property
    def hooks(self) -> list[Any]:
        """Those of the mode."""
        return list(getattr(self, f"{_HOOKS[self.mode]}_hooks") or ())


_HOOKS = {
    ModeKeys.TRAIN: "training", ModeKeys.EVAL: "evaluation", ModeKeys.PREDICT: "prediction",
}


class PipelineProgram(ModelProgram):
    """The pipeline of a model function."""

    _built: IPUPipelineEstimatorSpec

    def _trained(self) -> tuple[Any, Any]:
        done = compiled(lambda: self._pipeline(ModeKeys.TRAIN))
        with tf.control_dependencies([done]):
            losses = self.outfeed.dequeue()
        mean = tf.reduce_mean(tf.cast(losses, tf.float32))
        return mean / self._built.gradient_accumulation_count, done

    def evaluation(self) -> tuple[Any, dict[str, tuple[Any, Any]]]:
        """The loss of a launch, and metrics by name: (value, what updates it)."""
        done = compiled(lambda: self._pipeline(ModeKeys.EVAL))
        self._metrics_function = self._built.eval_metrics_fn
        assert self._metrics_function is not None
        with tf.control_dependencies([done]):
            args, kwargs = arguments_of(self.outfeed.dequeue())
        metrics = self._metrics_function(*args, **kwargs)
        if not isinstance(metrics, dict):
            raise TypeError(f"The `eval_metrics_fn` must return a dict, but got {type(metrics)}.")
        if "loss" not in metrics:
            raise KeyError("The dict returned from `eval_metrics_fn` must contain 'loss'.")
        others = {name: _updated(value) for name, value in metrics.items() if name != "loss"}
        return metrics["loss"], others

    def prediction(self) -> Any:
        """The predictions of a launch, stacked."""
        done = compiled(lambda: self._pipeline(ModeKeys.PREDICT))
        with tf.control_dependencies([done]):
            predictions = self.outfeed.dequeue()
        if not isinstance(predictions, list | tuple):
            return predictions
        if len(predictions) != 1:
            raise ValueError(
                "The last computational stage must return exactly one prediction tensor, but got "
                f"{len(predictions)}"
            )
        return predictions[0]

    def _pipeline(self, mode: str) -> Any:
        spec = self._built = self._called(mode)
        self.hooks += spec.hooks
        of_training: dict[str, Any] = {
            "optimizer_function": spec.optimizer_function, "outfeed_loss": True,
            "accumulate_outfeed": True, "accumulate_outfeed_dtype": spec.loss_accumulator_dtype,
            "reduction_method": spec.reduction_method,
        }
        return pipeline(
            spec.computational_stages, spec.gradient_accumulation_count,
            repeat_count=self._repetitions(spec), infeed_queue=self.infeed,
            outfeed_queue=self.outfeed, device_mapping=spec.device_mapping,
            **(of_training if mode == ModeKeys.TRAIN else {}), **spec.pipeline_op_kwargs,
        )

    def _repetitions(self, spec: IPUPipelineEstimatorSpec) -> int:
        count = spec.gradient_accumulation_count
        if self.iterations % count:
            rule = "cannot be less than" if self.iterations < count else "must be divisible by"
            raise ValueError(
                f"`IPURunConfig.iterations_per_loop` (got {self.iterations}) {rule} "
                f"`gradient_accumulation_count` (got {count})"
            )
        return self.iterations // count

    def _called(self, mode: str) -> IPUPipelineEstimatorSpec:
        """What the model function returns."""
        named = names(self.model_fn)
        if named & {"features", "labels"}:
            raise ValueError(
                "The `model_fn` used with `IPUPipelineEstimator` must not have `features` or "
                "`labels` arguments. They are instead passed to the first pipeline stage function."
            )
        offered = {"mode": mode, "params": dict(self.params), "config": self.config}
        spec = self.model_fn(**{key: value for key, value in offered.items() if key in named})
        if not isinstance(spec, IPUPipelineEstimatorSpec):
            raise TypeError(
                "The `model_fn` used with `IPUPipelineEstimator` must return "
                "`IPUPipelineEstimatorSpec`."
            )
        devices = len(set(spec.device_mapping or range(len(spec.computational_stages))))
        shards = self.config.ipu_run_config.num_shards
        if not shards / 2 < devices <= shards:
            raise ValueError(
                f"This pipeline requires {devices} devices, but `IPURunConfig.num_shards` was set "
                f"to {shards} (num_shards/2 < pipeline_devices <= num_shards)."
            )
        return spec


def _updated(metric: Any) -> tuple[Any, Any]:
    """The value of a metric, and what updates it; a tensor is its own."""
    return metric if isinstance(metric, tuple) else (metric, tf.no_op())


class IPUPipelineEstimator(IPUEstimator):
    """An estimator whose programs are pipelines.

    model_fn    gets mode, params and config, as far as it names them, and returns an
                IPUPipelineEstimatorSpec.

    Raises      as `IPUEstimator`; ValueError where stages, IPUs, iterations and counts do not go
                together.
    """

    _program = PipelineProgram

    def __init__(
        self, model_fn: Callable[..., Any], model_dir: str | None = None, config: Any = None,
        params: Mapping[str, Any] | None = None, warm_start_from: str | None = None,
    ) -> None:
        super().__init__(model_fn, model_dir, config, params, warm_start_from)
