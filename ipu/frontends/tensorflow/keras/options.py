"""Options of Keras models on the machine: accumulation, pipelines, queues.

A pipeline of Keras accumulates; where its stages run changes no bit (`pipelining.ops`).

Source    graphcore/keras, keras/ipu/extensions/model_extensions.py: names, arguments, messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.engine.machine import replicas_on
from ipu.frontends.tensorflow.engine.measuring import Request, requested
from ipu.frontends.tensorflow.feeds import IPUInfeedQueue, IPUOutfeedQueue
from ipu.frontends.tensorflow.keras.replicas import METRICS
from ipu.frontends.tensorflow.keras.stages import (
    assignments_of,
    checked_assignments,
    marking_stages,
    note_stages,
    stages_of,
    summary_lines,
)
from ipu.frontends.tensorflow.pipelining.checks import planned
from ipu.frontends.tensorflow.pipelining.options import PipelineSchedule, RecomputationMode
from ipu.frontends.tensorflow.settings.notes import note
from ipu.frontends.tensorflow.training.accumulation import check_state_placement
from ipu.frontends.tensorflow.training.composites import Accumulators
from ipu.frontends.tensorflow.training.cross_replica import cross_replica_mean
from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod
from ipu.plan.plan import Plan
from ipu.plan.schedule import smallest_count

__all__ = [
    "Options",
    "add_setters",
    "all_replicas_of",
    "explained",
    "marking_pipeline",
    "options_of",
    "prepare_training",
    "replicas_of",
]

Method = GradientAccumulationReductionMethod


@dataclass(frozen=True)
class Options:
    """What was set for a model.

    count        mini-batches of one update; None: each one.
    pipelined    whether the model has a pipeline; stages: the stage of each layer.
    """

    count: int | None = None
    method: Method = Method.SUM
    dtype: Any = None
    pipelined: bool = False
    schedule: PipelineSchedule = PipelineSchedule.Grouped
    mapping: Sequence[int] | None = None
    stages: tuple[int, ...] | None = None
    recomputation: RecomputationMode | None = None
    offload_state: bool | None = None
    shard_state: bool = False
    #: Of a pipeline's activations, accumulators and weights; depth of its infeed.
    offloads: Mapping[str, bool | None] = field(default_factory=dict)
    prefetch: int = 3
    #: What becomes of the metrics of several replicas.
    metrics: str = "NONE"


def options_of(model: Any) -> Options:
    """The options of a model."""
    return getattr(model, "_fpsim_options", Options())


def _set(model: Any, **changes: Any) -> None:
    object.__setattr__(model, "_fpsim_options", replace(options_of(model), **changes))
    for kind in ("train", "test", "predict"):  # built again with the new options
        setattr(model, f"{kind}_function", None)


#: Options of `pipelining_ops.pipeline` that move tensors and change no number.
_PLACEMENT = {
    "offload_activations": "activations", "offload_gradient_accumulation_buffers": "accumulators",
    "offload_weights": "weights",
}
#: Those that change numbers of one stage alone.
_OF_STAGES = (
    "backward_propagation_stages_poplar_options", "forward_propagation_stages_poplar_options",
    "weight_update_poplar_options",
)


def _count(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"gradient_accumulation_steps_per_replica={value!r} is not a number of mini-batches; "
            "use an integer greater than 0"
        )
    return value


def _unknown(named: dict[str, Any], method: str) -> None:
    for name in _OF_STAGES:
        if named.get(name):
            raise NotImplementedError(
                f"{name}: stages of Keras share their options here; set partialsType in IPUConfig, "
                "or build the pipeline with pipelining_ops.pipeline"
            )
    if named:
        raise TypeError(f"{method}() got an unexpected keyword argument '{next(iter(named))}'")


def set_gradient_accumulation_options(
    self: Any, gradient_accumulation_steps_per_replica: int | None = None,
    gradient_accumulation_reduction_method: Method | str = "sum",
    use_v2_gradient_accumulation_optimizer: bool = False,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False, dtype: Any = None, **named: Any,
) -> None:
    """Update after so many mini-batches; steps_per_execution has to hold whole updates.

    use_v2_gradient_accumulation_optimizer    is read: one optimiser does it here.
    """
    _unknown(named, "set_gradient_accumulation_options")
    check_state_placement(offload_weight_update_variables, replicated_optimizer_state_sharding)
    _set(
        self, count=_count(gradient_accumulation_steps_per_replica), dtype=dtype,
        method=Method.parse(gradient_accumulation_reduction_method), pipelined=False,
        offload_state=offload_weight_update_variables,
        shard_state=replicated_optimizer_state_sharding,
    )


def set_pipelining_options(
    self: Any, gradient_accumulation_steps_per_replica: int | None = None,
    device_mapping: Sequence[int] | None = None, accumulate_outfeed: bool | None = None,
    gradient_accumulation_reduction_method: Method | str = "sum",
    pipeline_schedule: PipelineSchedule = PipelineSchedule.Grouped,
    gradient_accumulation_dtype: Any = None, offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False, recomputation_mode: Any = None,
    **named: Any,
) -> None:
    """Options of the pipeline whose stages `set_pipeline_stage_assignment` names.

    accumulate_outfeed           changes no number of Keras; it is read.
    recomputation_mode, offload_…    are the plan's, and change no number.

    Raises    NotImplementedError for options of the libraries of each stage.
    """
    shards_weights = named.pop("replicated_weight_sharding", None)
    _unknown({k: v for k, v in named.items() if k not in _PLACEMENT}, "set_pipelining_options")
    if any(named.values()) or shards_weights:
        note("where the tensors of a pipeline lie changes no bit; the simulation keeps them whole")
    if accumulate_outfeed:
        note("accumulate_outfeed changes no number of a pipeline of Keras")
    check_state_placement(offload_weight_update_variables, replicated_optimizer_state_sharding)
    if not isinstance(pipeline_schedule, PipelineSchedule):
        raise TypeError(
            "The given pipeline_schedule is not a member of the PipelineSchedule enumeration."
        )
    if not isinstance(recomputation_mode, RecomputationMode | None):
        raise TypeError(
            "The given recomputation_mode is not a member of the RecomputationMode enumeration."
        )
    _set(
        self, count=_count(gradient_accumulation_steps_per_replica), pipelined=True,
        method=Method.parse(gradient_accumulation_reduction_method), schedule=pipeline_schedule,
        mapping=device_mapping, dtype=gradient_accumulation_dtype,
        offload_state=offload_weight_update_variables,
        shard_state=replicated_optimizer_state_sharding, recomputation=recomputation_mode,
        offloads={kind: named.get(name) for name, kind in _PLACEMENT.items()},
    )


def set_pipeline_stage_assignment(self: Any, pipeline_stage_assignment: Sequence[Any]) -> None:
    """The stage of each layer of a Sequential model, or of each call of a layer of another one.

    Raises    ValueError for another number of them, and for stages that go back or leap.
    """
    _set(self, stages=checked_assignments(self, pipeline_stage_assignment))


def get_pipeline_stage_assignment(self: Any) -> list[Any]:
    """The stage of each layer; of a functional model an assignment for each call of a layer."""
    return assignments_of(self, _stages(self))


def print_pipeline_stage_assignment_summary(
    self: Any, line_length: int | None = None, print_fn: Any = None
) -> None:
    """Print a table of the stages, line by line."""
    for line in summary_lines(self, _stages(self), line_length or 89):
        (print_fn or print)(line)


def _stages(model: Any) -> tuple[int, ...] | None:
    """The stages that were set, or that the layers were made in."""
    return options_of(model).stages or stages_of(model)


def reset_pipeline_stage_assignment(self: Any) -> None:
    """No layer has a stage."""
    _set(self, stages=None)


def set_replication_options(self: Any, replicated_metric_reduction_method: str = "NONE") -> None:
    """What becomes of the metrics of several replicas.

    replicated_metric_reduction_method    NONE: those of the last replica; LIST: all of them; SUM
                                          or MEAN of them.
    """
    method = str(replicated_metric_reduction_method).upper()
    if method not in METRICS:
        raise ValueError(
            f"replicated_metric_reduction_method={replicated_metric_reduction_method!r} is not "
            f"known; use {', '.join(METRICS)}"
        )
    _set(self, metrics=method)


def set_infeed_queue_options(self: Any, **named: Any) -> None:
    """Options of an IPUInfeedQueue, which change no number: Keras' own iterator feeds the machine.

    Raises    what the queue raises for them.
    """
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensors(0.0), **named)
    _set(self, prefetch=queue.prefetch_depth)
    note("options of a model's infeed are accepted; Keras' own iterator feeds the machine")


def set_outfeed_queue_options(self: Any, **named: Any) -> None:
    """Options of an IPUOutfeedQueue, which change no number: results come back with each launch.

    Raises    what the queue raises for them.
    """
    IPUOutfeedQueue(**named)
    note("options of a model's outfeed are accepted; results come back with each launch")


def set_asynchronous_callbacks(self: Any, asynchronous: bool = False) -> None:
    """Is read: callbacks come after each launch."""
    if asynchronous:
        note("asynchronous callbacks are accepted; they come after each launch")


_SETTERS = (
    get_pipeline_stage_assignment, print_pipeline_stage_assignment_summary,
    reset_pipeline_stage_assignment, set_asynchronous_callbacks,
    set_gradient_accumulation_options, set_infeed_queue_options, set_outfeed_queue_options,
    set_pipeline_stage_assignment, set_pipelining_options, set_replication_options,
)


def add_setters() -> None:
    """Models of this process have the vendor's setters."""
    for setter in _SETTERS:
        setattr(tf.keras.Model, setter.__name__, setter)
    note_stages()


# Training ---------------------------------------------------------------------------------------


def prepare_training(model: Any) -> None:
    """The optimiser of a model accumulates as its options say, and averages over replicas.

    Raises    RuntimeError where steps_per_execution holds no whole updates; what `Plan` raises for
              stages, IPUs and counts that do not go together.
    """
    options = options_of(model)
    if options.pipelined:
        if options.count is None:
            raise ValueError("gradient_accumulation_steps_per_replica must be specified.")
        _plan_of(options, _stages(model))
    if options.count is not None:
        _check_steps(int(model._steps_per_execution.numpy()), options)
    _extend(model.optimizer, options, all_replicas_of(model))


def replicas_of(model: Any) -> int:
    """Copies of a model that the IPUs of the machine hold, in this process.

    Raises    ValueError for IPUs that are no multiple of those of the model.
    """
    options = options_of(model)
    if not options.pipelined:
        return current().n_ipus
    ipus = options.mapping or _stages(model) or (0,)
    return replicas_on(current().n_ipus, max(ipus) + 1)


def all_replicas_of(model: Any) -> int:
    """Copies of a model in all processes."""
    processes: int = model.distribute_strategy.replica_set.size
    return replicas_of(model) * processes


def _check_steps(steps: int, options: Options) -> None:
    assert options.count is not None
    if steps % options.count == 0:
        return
    kind = "pipelined " if options.pipelined else ""
    raise RuntimeError(
        f"The {kind}model has been configured to use gradient accumulation for training, "
        f"however the current `steps_per_execution` value (set to {steps}) is not divisible by "
        f"`gradient_accumulation_steps_per_replica` ({options.count}). You need to adjust either "
        "`steps_per_execution` or`gradient_accumulation_steps_per_replica` to make sure that "
        "`steps_per_execution` is divisible by `gradient_accumulation_steps_per_replica`."
    )


def marking_pipeline(model: Any, *, training: bool) -> AbstractContextManager[None]:
    """What the layers of a pipelined model build inside is marked with their stage.

    Raises    ValueError for stages and IPUs that do not go together;
              tf.errors.FailedPreconditionError for a count that the schedule cannot fill.
    """
    options = options_of(model)
    if not options.pipelined:
        return nullcontext()
    stages = _stages(model)
    request = Request(_plan_of(options, stages, training=training), options.shard_state)
    return marking_stages(model, stages, requested(request))


def _plan_of(options: Options, stages: Sequence[int] | None, *, training: bool = True) -> Plan:
    """The plan of a pipeline; a model with an own call has as many stages as are mapped."""
    n_stages = max(stages) + 1 if stages else len(options.mapping or (0,))
    if n_stages < 2:
        raise ValueError("Pipeline requires at least two computational stages.")
    count = options.count or 1
    if not training:  # an evaluation fills its pipeline once
        count = smallest_count(
            options.schedule.name.lower(), n_stages, options.mapping, training=False
        )
    return planned(
        [abs] * n_stages, options.mapping, options.schedule, count, options.recomputation,
        options.offload_state, options.offloads, training=training, prefetch=options.prefetch,
    )


#: Of an optimiser: the sentence on an error that AutoGraph words in its own way.
_EXPLANATION = "_fpsim_explanation"


def _explain(optimizer: Any, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Keep a sentence where an optimiser cannot apply gradients of the accumulators' type."""
    for gradient, variable in pairs:
        kind, held = gradient.dtype.name, tf.as_dtype(variable.dtype).base_dtype.name
        if kind != held:
            object.__setattr__(optimizer, _EXPLANATION, (
                f"{type(optimizer).__name__} updates {variable.name}, which is {held}, by a "
                f"gradient of the accumulators' type {kind}; leave dtype out, or use an optimiser "
                "whose apply_gradients casts gradients to the variables' type"
            ))
            return


def explained(model: Any) -> TypeError | None:
    """The error of a model's optimiser in a sentence, once; None where there is none."""
    sentence = vars(model.optimizer or tf).get(_EXPLANATION)
    if sentence is None:
        return None
    object.__delattr__(model.optimizer, _EXPLANATION)
    return TypeError(sentence)


def _extend(optimizer: Any, options: Options, replicas: int) -> None:
    """Gradients are accumulated and averaged before an optimiser applies them."""
    apply = getattr(optimizer.apply_gradients, "_plain", optimizer.apply_gradients)
    many = options.count is not None
    counted = Accumulators(
        options.count or 1, options.method, options.dtype,
        offload_state=options.offload_state is not False, shard_state=options.shard_state,
    )

    def averaged(pairs: Any) -> Any:
        if replicas > 1:
            pairs = [(cross_replica_mean(g), v) for g, v in pairs]
        try:
            return apply(pairs)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            _explain(optimizer, pairs)
            raise error

    def apply_gradients(grads_and_vars: Any, *rest: Any, **named: Any) -> Any:
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        if not many:
            return averaged(pairs) if replicas > 1 else apply(pairs, *rest, **named)
        return counted.update([v for _, v in pairs], counted.add(pairs), averaged)

    apply_gradients._plain = apply  # type: ignore[attr-defined]
    optimizer.apply_gradients = apply_gradients
