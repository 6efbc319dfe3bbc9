"""`pipelining_ops.pipeline`: stages in sequence, gradients accumulated, one update for each run.

The graph is that of an accumulation: a loop whose body runs all stages on one mini-batch, adds the
gradients, and updates after the last. The stage is a mark of its nodes. When and where stages run
is the plan's (`ipu.plan.Plan`), which changes no bit; so a pipeline's results are those of the
same model without one.

Source    graphcore/tensorflow, tensorflow/python/ipu/ops/pipelining_ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from ipu.frontends.tensorflow import loops
from ipu.frontends.tensorflow.engine.measuring import Request, requested, requests
from ipu.frontends.tensorflow.engine.node import Node, marked
from ipu.frontends.tensorflow.pipelining.checks import Arguments, plan_of_pipeline
from ipu.frontends.tensorflow.pipelining.options import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    check_stage_options,
)
from ipu.frontends.tensorflow.settings import system
from ipu.frontends.tensorflow.settings.notes import note
from ipu.frontends.tensorflow.training.composites import Accumulators
from ipu.frontends.tensorflow.training.enclosing import building_pipeline, check_checkpoints
from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod
from ipu.plan.plan import Plan

__all__ = [
    "OptimizerFunctionOutput", "PipelineSchedule", "PipelineStageOptions", "RecomputationMode",
    "last_plan", "pipeline", "recomputation_checkpoint",
]

Method = GradientAccumulationReductionMethod

def last_plan() -> Plan:
    """The plan of the pipeline that was built last.

    Raises    RuntimeError where none was.
    """
    if not requests:
        raise RuntimeError("no pipeline was built yet")
    return requests[-1].plan


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """Tensors that recomputation starts from; no bit changes.

    Raises    ValueError in a pipeline whose schedule cannot recompute from them, where
              IPUConfig.allow_recompute is set.
    """
    if system.is_configured() and system.current().recompute:
        check_checkpoints()
    with marked(checkpoint=True):
        return tf.nest.map_structure(lambda x: tf.identity(x, name=name), tensors)


def pipeline(
    computational_stages: Sequence[Any], gradient_accumulation_count: int | None = None,
    gradient_accumulation_dtype: Any = None, gradient_accumulation_for_captured_grads: bool = True,
    repeat_count: int = 1, batch_serialization_iterations: int = 1, inputs: Any = None,
    infeed_queue: Any = None, outfeed_queue: Any = None,
    optimizer_function: Callable[..., OptimizerFunctionOutput] | None = None,
    device_mapping: Any = None, pipeline_schedule: PipelineSchedule | None = None,
    recomputation_mode: RecomputationMode | None = None,
    forward_propagation_stages_poplar_options: Any = None,
    backward_propagation_stages_poplar_options: Any = None,
    weight_update_poplar_options: PipelineStageOptions | None = None,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False, offload_activations: bool | None = None,
    offload_gradient_accumulation_buffers: bool | None = None,
    replicated_weight_sharding: bool | None = None, offload_weights: bool | None = None,
    continuous_weight_updates: bool = False, outfeed_loss: bool = False,
    accumulate_outfeed: bool = False, accumulate_outfeed_dtype: Any = None,
    outfeed_mask: Sequence[bool] | None = None, reduction_method: Method | str = Method.SUM,
    name: str | None = None,
) -> Any:
    """The operation that runs a pipeline repeat_count times.

    computational_stages         functions; a list in the list holds concurrent stages.
    gradient_accumulation_count  G, mini-batches of one run.
    inputs                       of the first stage, before the infeed's element.
    optimizer_function           gets the last outputs; returns OptimizerFunctionOutput.
    outfeed_loss, outfeed_mask   the loss instead of the outputs; outputs left out (True).
    accumulate_outfeed           one element for each run: the sum over its mini-batches.

    Raises    as `Arguments` and `plan_of_pipeline` say; ValueError for outputs without an outfeed
              and for tensors that a stage takes from outside.
    """
    arguments = Arguments(
        computational_stages, gradient_accumulation_count, batch_serialization_iterations,
        infeed_queue, outfeed_queue, optimizer_function, device_mapping, pipeline_schedule,
        recomputation_mode, outfeed_loss, outfeed_mask, accumulate_outfeed,
        continuous_weight_updates, offload_weight_update_variables,
        replicated_optimizer_state_sharding,
        {"activations": offload_activations, "weights": offload_weights,
         "accumulators": offload_gradient_accumulation_buffers},
    )
    method = Method.parse(reduction_method)
    _check_more(method, arguments, replicated_weight_sharding, accumulate_outfeed_dtype)
    plan = plan_of_pipeline(arguments)
    run = _MiniBatch(
        arguments, requested(Request(plan, replicated_optimizer_state_sharding)),
        Accumulators(arguments.mini_batches, method, gradient_accumulation_dtype),
        _stage_partials(
            arguments, forward_propagation_stages_poplar_options,
            backward_propagation_stages_poplar_options,
        ),
        accumulate_outfeed_dtype,
    )
    values = [] if inputs is None else list(_flat(inputs))
    run.n_inputs = len(values)
    with building_pipeline(arguments.schedule.name, len(plan.ipus)):
        result = loops.repeat(arguments.mini_batches * repeat_count, run, values, infeed_queue)
    return tf.group(result, name=name or "pipeline")


def _check_more(method: Method, arguments: Arguments, sharded: bool | None, dtype: Any) -> None:
    if arguments.batch_serialization_iterations > 1 and method is not Method.SUM:
        raise ValueError("Batch serialization is only supported with the SUM reduction method.")
    if sharded:
        note("replicated_weight_sharding changes no bit; the simulation keeps weights whole")
    if dtype is not None and not arguments.accumulate_outfeed:
        raise ValueError("accumulate_outfeed_dtype needs accumulate_outfeed=True")


def _stage_partials(arguments: Arguments, forward: Any, backward: Any) -> list[dict[str, str]]:
    """Marks of each stage for partialsType; without options gradients follow forward nodes."""
    n = len(arguments.stages)
    forward_options = check_stage_options(forward, n, "forward_propagation_stages_poplar_options")
    marks = [{"partials": o.partials} if o.partials else {} for o in forward_options]
    if arguments.optimizer_function is not None:
        of_stages = check_stage_options(backward, n, "backward_propagation_stages_poplar_options")
        for stage, options in zip(marks, of_stages if backward is not None else (), strict=False):
            stage["backward_partials"] = options.partials or ""
    return marks


class _MiniBatch:
    """One mini-batch through all stages: the body of the loop."""

    def __init__(
        self, arguments: Arguments, number: int, accumulators: Accumulators,
        partials: list[dict[str, str]], outfeed_dtype: Any,
    ) -> None:
        self.arguments, self.accumulators, self.partials = arguments, accumulators, partials
        #: Of the request, by which its nodes are found.
        self._number = number
        self.n_inputs = 0
        self._outfeed_dtype = outfeed_dtype

    def __call__(self, *values: Any, **named: Any) -> list[Any]:
        graph = tf.compat.v1.get_default_graph()
        outputs: tuple[Any, ...] = values
        for number, stage in enumerate(self.arguments.stages):
            with marked(stage=number, pipeline=self._number, **self.partials[number]):
                outputs = _stage_outputs(number, _outputs(stage, outputs, named))
                named = {}
        operations = [x for x in outputs if isinstance(x, tf.Operation)]
        tensors = [x for x in outputs if not isinstance(x, tf.Operation)]
        if self.arguments.optimizer_function is not None:
            operations += self._train(tensors)
        elif tensors:
            operations += self._send(tensors)
        _check_captures(graph)
        _check_shared(graph, self.arguments.device_mapping)
        return [*values[: self.n_inputs], *operations]

    def _train(self, outputs: list[Any]) -> list[Any]:
        assert self.arguments.optimizer_function is not None
        result = self.arguments.optimizer_function(*outputs)
        if not isinstance(result, OptimizerFunctionOutput):
            raise TypeError(
                "optimizer_function must return OptimizerFunctionOutput, got "
                f"{type(result).__name__}"
            )
        sent = [result.loss] if self.arguments.outfeed_loss else self._unmasked(outputs)
        operations = self._send(sent)
        pairs = result.gradients()
        added = self.accumulators.add(pairs)
        variables = [variable for _, variable in pairs]
        operations.append(self.accumulators.update(variables, added, result.apply))
        return operations

    def _unmasked(self, outputs: list[Any]) -> list[Any]:
        mask = self.arguments.outfeed_mask
        if mask is None:
            return outputs
        if len(mask) != len(outputs):
            raise ValueError(
                f"outfeed_mask has {len(mask)} entries for {len(outputs)} outputs of the last stage"
            )
        return [x for x, is_left_out in zip(outputs, mask, strict=True) if not is_left_out]

    def _send(self, tensors: list[Any]) -> list[Any]:
        queue = self.arguments.outfeed_queue
        if not tensors:
            return []
        if queue is None:
            names = ", ".join(str(tensor) for tensor in tensors)
            raise ValueError(
                f"The last computational stage has tensor outputs: {names}, but no outfeed_queue "
                "has been provided."
            )
        if self.arguments.accumulate_outfeed:
            return [self._accumulated(tensors)]
        return [queue.enqueue(tensors[0] if len(tensors) == 1 else tensors)]

    def _accumulated(self, tensors: list[Any]) -> Any:
        """Sums over the mini-batches, sent after the last."""
        count = self.arguments.mini_batches
        sums = Accumulators(count, Method.SUM, None)
        kinds = [self._outfeed_dtype or tensor.dtype for tensor in tensors]
        typed = enumerate(zip(tensors, kinds, strict=True))
        holders = [_Holder(tensor, kind, i) for i, (tensor, kind) in typed]
        queue = self.arguments.outfeed_queue

        def send(pairs: list[Any]) -> Any:
            values = [value for value, _ in pairs]
            return queue.enqueue(values[0] if len(values) == 1 else values)

        added = sums.add(list(zip(tensors, holders, strict=True)))
        return sums.update(holders, added, send)


class _Holder:
    """What an accumulator of outputs is made for: a shape, a type and a name."""

    def __init__(self, tensor: Any, dtype: Any, number: int) -> None:
        self.shape, self.dtype = tensor.shape, tf.as_dtype(dtype)
        self.name = f"outfeed_{number}"

    def ref(self) -> int:
        """A key."""
        return id(self)


def _outputs(stage: Any, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """The outputs of a stage, or those of concurrent stages one after the other."""
    if not isinstance(stage, list | tuple):
        return _flat(stage(*values, **named))
    outputs: tuple[Any, ...] = ()
    used: set[str] = set()
    for branch, function in enumerate(stage):
        before = set(_variable_names())
        with marked(branch=branch):
            outputs += _flat(function(*values, **named))
        mine = set(_variable_names()) - before
        if used & mine:
            raise ValueError(f"concurrent stages share the variable {sorted(used & mine)[0]}")
        used |= mine
    return outputs


def _variable_names() -> list[str]:
    return [v.name for v in tf.compat.v1.trainable_variables()]


def _stage_outputs(number: int, returned: Any) -> tuple[Any, ...]:
    """What a stage hands on.

    Raises    TypeError for what an optimizer_function returns.
    """
    outputs = _flat(returned)
    if any(isinstance(x, OptimizerFunctionOutput) for x in outputs):
        raise TypeError(
            f"stage {number} returns OptimizerFunctionOutput; return it from optimizer_function"
        )
    return outputs


def _flat(returned: Any) -> tuple[Any, ...]:
    if returned is None:
        return ()
    return tuple(returned) if isinstance(returned, list | tuple) else (returned,)


def _check_captures(graph: FuncGraph) -> None:
    """Refuse tensors of outside that are no variables.

    Raises    ValueError.
    """
    for outer, _ in graph.captures:
        if outer.dtype != tf.resource:
            raise ValueError(
                f"Trying to capture the tensor {outer} which is not a resource. This tensor needs "
                "to be passed as either part of the `input` or `infeed_queue` of the pipeline."
            )


def _check_shared(graph: FuncGraph, mapping: Sequence[Any]) -> None:
    """Refuse a variable that stages on several IPUs use.

    Raises    ValueError.
    """
    homes: dict[str, tuple[int, Any]] = {}
    names = {inner.name: outer.op.name for outer, inner in graph.captures}
    for op in graph.get_operations():
        stage = Node(op).marks.get("stage")
        used = [names[x.name] for x in op.inputs if x.name in names]
        if stage is None or isinstance(mapping[stage], list | tuple):
            continue
        for name in used:
            first, ipu = homes.setdefault(name, (stage, mapping[stage]))
            if ipu != mapping[stage]:
                raise ValueError(
                    f"variable {name} is used by stage {first} on IPU {ipu} and by stage {stage} "
                    f"on IPU {mapping[stage]}; map them to one IPU"
                )
