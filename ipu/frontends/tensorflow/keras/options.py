"""Options of Keras models on the machine: accumulation, pipelines, queues.

A pipeline of Keras accumulates; where its stages run changes no bit (`pipelining.ops`).

Source    graphcore/keras, keras/ipu/extensions/model_extensions.py: names, arguments, messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.machine import current
from ipu.frontends.tensorflow.pipelining.options import PipelineSchedule
from ipu.frontends.tensorflow.settings.notes import note
from ipu.frontends.tensorflow.training.accumulation import check_state_placement
from ipu.frontends.tensorflow.training.composites import Accumulators
from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod
from ipu.parallel.plan import Plan

__all__ = ["Options", "add_setters", "options_of", "prepare_training"]

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


def options_of(model: Any) -> Options:
    """The options of a model."""
    return getattr(model, "_fpsim_options", Options())


def _set(model: Any, **changes: Any) -> None:
    object.__setattr__(model, "_fpsim_options", replace(options_of(model), **changes))


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
    if named:
        raise TypeError(f"{method}() got an unexpected keyword argument '{next(iter(named))}'")


def set_gradient_accumulation_options(
    self: Any, gradient_accumulation_steps_per_replica: int | None = None,
    gradient_accumulation_reduction_method: Method | str = "sum",
    use_v2_gradient_accumulation_optimizer: bool = False,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False, dtype: Any = None, **named: Any,
) -> None:  # fmt: skip
    """Update after so many mini-batches; steps_per_execution has to hold whole updates.

    use_v2_gradient_accumulation_optimizer    is read: one optimiser does it here.
    """
    _unknown(named, "set_gradient_accumulation_options")
    check_state_placement(offload_weight_update_variables, replicated_optimizer_state_sharding)
    _set(
        self, count=_count(gradient_accumulation_steps_per_replica), dtype=dtype,
        method=Method.parse(gradient_accumulation_reduction_method), pipelined=False,
    )  # fmt: skip


def set_pipelining_options(
    self: Any, gradient_accumulation_steps_per_replica: int | None = None,
    device_mapping: Sequence[int] | None = None, accumulate_outfeed: bool | None = None,
    gradient_accumulation_reduction_method: Method | str = "sum",
    pipeline_schedule: PipelineSchedule = PipelineSchedule.Grouped,
    gradient_accumulation_dtype: Any = None, offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False, recomputation_mode: Any = None,
    **named: Any,
) -> None:  # fmt: skip
    """Options of the pipeline whose stages `set_pipeline_stage_assignment` names.

    accumulate_outfeed, recomputation_mode    change no number of Keras; they are read.
    """
    _unknown(named, "set_pipelining_options")
    check_state_placement(offload_weight_update_variables, replicated_optimizer_state_sharding)
    if not isinstance(pipeline_schedule, PipelineSchedule):
        raise TypeError(
            "The given pipeline_schedule is not a member of the PipelineSchedule enumeration."
        )
    _set(
        self, count=_count(gradient_accumulation_steps_per_replica), pipelined=True,
        method=Method.parse(gradient_accumulation_reduction_method), schedule=pipeline_schedule,
        mapping=device_mapping, dtype=gradient_accumulation_dtype,
    )  # fmt: skip


def set_pipeline_stage_assignment(self: Any, pipeline_stage_assignment: Sequence[int]) -> None:
    """The stage of each layer: 0, then the same or the next number.

    Raises    ValueError for another number of layers, and for stages that go back or leap.
    """
    stages = tuple(pipeline_stage_assignment)
    if len(stages) != len(self.layers):
        raise ValueError(
            "The size of the provided pipeline_stage_assignment "
            f"({len(stages)}) does not match the total number of layers ({len(self.layers)})"
        )
    steps = {after - before for before, after in zip((0, *stages), stages, strict=False)}
    if stages[0] != 0 or steps - {0, 1}:
        raise ValueError(
            f"pipeline_stage_assignment={list(stages)} must start at 0 and grow by at most 1 from "
            "layer to layer"
        )
    _set(self, stages=stages)


def get_pipeline_stage_assignment(self: Any) -> list[int]:
    """The stage of each layer; empty where none was set."""
    return list(options_of(self).stages or ())


def reset_pipeline_stage_assignment(self: Any) -> None:
    """No layer has a stage."""
    _set(self, stages=None)


def set_replication_options(self: Any, replicated_metric_reduction_method: str = "NONE") -> None:
    """Is read: models of Keras run on one replica here."""
    if replicated_metric_reduction_method != "NONE":
        note("replicated_metric_reduction_method is accepted; models of Keras run on one replica")


def set_infeed_queue_options(self: Any, **named: Any) -> None:
    """Is read: Keras' own iterator feeds the machine."""
    note("options of a model's infeed are accepted; Keras' own iterator feeds the machine")


def set_outfeed_queue_options(self: Any, **named: Any) -> None:
    """Is read: results come back with each launch."""
    note("options of a model's outfeed are accepted; results come back with each launch")


def set_asynchronous_callbacks(self: Any, asynchronous: bool = False) -> None:
    """Is read: callbacks come after each launch."""
    if asynchronous:
        note("asynchronous callbacks are accepted; they come after each launch")


_SETTERS = (
    get_pipeline_stage_assignment, reset_pipeline_stage_assignment, set_asynchronous_callbacks,
    set_gradient_accumulation_options, set_infeed_queue_options, set_outfeed_queue_options,
    set_pipeline_stage_assignment, set_pipelining_options, set_replication_options,
)  # fmt: skip


def add_setters() -> None:
    """Models of this process have the vendor's setters."""
    for setter in _SETTERS:
        setattr(tf.keras.Model, setter.__name__, setter)


# Training ---------------------------------------------------------------------------------------


def prepare_training(model: Any) -> None:
    """The optimiser of a model accumulates as its options say.

    Raises    RuntimeError where steps_per_execution holds no whole updates; what `Plan` raises for
              stages, IPUs and counts that do not go together; NotImplementedError for replicas.
    """
    options = options_of(model)
    ipus = _ipus(options)
    if current().n_ipus != ipus:
        raise NotImplementedError(
            f"a model of Keras on {ipus} IPU(s), but the machine has {current().n_ipus}: replicas "
            f"of Keras models are not built here; use auto_select_ipus={ipus}"
        )
    current().replicas = 1
    if options.pipelined and options.count is None:
        raise ValueError("gradient_accumulation_steps_per_replica must be specified.")
    if options.count is None:
        return
    steps = int(model._steps_per_execution.numpy())
    if steps % options.count:
        kind = "pipelined " if options.pipelined else ""
        raise RuntimeError(
            f"The {kind}model has been configured to use gradient accumulation for training, "
            f"however the current `steps_per_execution` value (set to {steps}) is not divisible by "
            "`gradient_accumulation_steps_per_replica * number of replicas` "
            f"(`gradient_accumulation_steps_per_replica` is set to {options.count} and there are 1 "
            "replicas). You need to adjust either `steps_per_execution` or"
            "`gradient_accumulation_steps_per_replica` to make sure that `steps_per_execution` is "
            "divisible by `gradient_accumulation_steps_per_replica * number of replicas`."
        )
    if not hasattr(model.optimizer.apply_gradients, "_accumulates"):
        _accumulate(model.optimizer, options)


def _ipus(options: Options) -> int:
    """IPUs of the model; a pipeline's plan is checked."""
    if not options.pipelined:
        return 1
    n_stages = max(options.stages or (0,)) + 1
    if n_stages < 2:
        raise ValueError("Pipeline requires at least two computational stages.")
    try:
        plan = Plan(
            [abs] * n_stages, mapping=options.mapping, schedule=options.schedule.name.lower(),
            count=options.count or 1, check_memory=False,
        )  # fmt: skip
    except ValueError as error:
        if "must be a multiple of" in str(error):
            raise tf.errors.FailedPreconditionError(None, None, str(error)) from None
        raise
    return len(plan.ipus)


def _accumulate(optimizer: Any, options: Options) -> None:
    assert options.count is not None
    accumulators = Accumulators(options.count, options.method, options.dtype)
    apply = optimizer.apply_gradients

    def apply_gradients(grads_and_vars: Any, *rest: Any, **named: Any) -> Any:
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        added = accumulators.add(pairs)
        return accumulators.update([v for _, v in pairs], added, apply)

    apply_gradients._accumulates = True  # type: ignore[attr-defined]
    optimizer.apply_gradients = apply_gradients
