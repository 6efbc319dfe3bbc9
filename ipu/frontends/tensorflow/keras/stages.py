"""Stages of Keras models: which layer, or call of a layer, runs in which stage of a pipeline.

Sequential models have a stage for each layer. Functional ones have one for each call of a layer, in
the order in which the calls run. Models of an own `call` name stages while they run. What a layer
builds is marked with its stage (`marking_stages`), by which the plan accounts for it.

Source    graphcore/keras, keras/ipu/extensions/pipeline_stage_assignment.py and
          functional_extensions.py: names, checks and messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import wraps
from typing import Any

import tensorflow as tf
from tf_keras.src.engine.node import Node

from ipu.frontends.tensorflow.engine.node import marked

__all__ = [
    "FunctionalLayerPipelineStageAssignment", "PipelineStage", "assignments_of",
    "checked_assignments", "checked_stages", "marking_stages", "note_stages", "stages_of",
    "summary_lines",
]

_STAGE = "_fpsim_stage"
_present: list[int] = []
#: The request of the pipeline that is traced.
_pipeline: list[int] = []


class PipelineStage:
    """Layers that are made or called inside belong to a stage; a call's own stage goes first.

    Raises    ValueError for a number below 0; RuntimeError for stages inside of stages.
    """

    def __init__(self, stage: int) -> None:
        self._stage = stage
        self._marks: AbstractContextManager[None] = nullcontext()

    def __enter__(self) -> PipelineStage:
        from ipu.frontends.tensorflow.strategy import IPUStrategyV1

        if self._stage < 0:
            raise ValueError(f"{self._stage} is not a valid pipeline stage.")
        if not isinstance(tf.distribute.get_strategy(), IPUStrategyV1):
            raise RuntimeError("PipelineStage may only be used from within an IPUStrategy context.")
        if _present:
            raise RuntimeError("Pipeline stages must not be nested.")
        _present.append(self._stage)
        if _pipeline:
            self._marks = marked(stage=self._stage, pipeline=_pipeline[-1])
        self._marks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        _present.pop()
        self._marks.__exit__(*error)


def note_stages() -> None:
    """Layers and calls of this process remember the stage that they were made in."""
    for kind in (tf.keras.layers.Layer, Node):
        if not hasattr(kind.__init__, _STAGE):
            kind.__init__ = _noting(kind.__init__)


def _noting(start: Callable[..., None]) -> Callable[..., None]:
    @wraps(start)
    def begin(self: Any, *args: Any, **named: Any) -> None:
        start(self, *args, **named)
        if _present:
            with suppress(AttributeError):
                object.__setattr__(self, _STAGE, _present[-1])

    setattr(begin, _STAGE, None)
    return begin


class FunctionalLayerPipelineStageAssignment:
    """The stage of one call of a layer.

    node_index        of the call among those of the layer.
    pipeline_stage    assign to change it; None: no stage yet.
    """

    def __init__(self, layer: Any, node_index: int, pipeline_stage: int | None = None) -> None:
        self._layer, self._node_index = layer, node_index
        self.pipeline_stage = pipeline_stage

    @property
    def layer(self) -> Any:
        """The layer."""
        return self._layer

    @property
    def node_index(self) -> int:
        """Number of the call."""
        return self._node_index

    @property
    def node(self) -> Any:
        """The call as Keras keeps it."""
        return self._layer._inbound_nodes[self._node_index]

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers whose results the call takes."""
        return [node.layer for node in self.node.parent_nodes]

    def __str__(self) -> str:
        return (
            f"Layer: {self.layer.name} (node index {self.node_index}) is assigned to pipeline "
            f"stage: {self.pipeline_stage}"
        )


Assignment = FunctionalLayerPipelineStageAssignment


def _is_functional(model: Any) -> bool:
    return bool(getattr(model, "_is_graph_network", False)) and not isinstance(
        model, tf.keras.Sequential
    )


def _calls(model: Any) -> list[Any]:
    """Calls of layers of a functional model, in the order in which they run."""
    depths = sorted(model._nodes_by_depth, reverse=True)
    return [n for d in depths for n in model._nodes_by_depth[d] if not n.is_input]


@contextmanager
def marking_stages(model: Any, stages: Sequence[int] | None, number: int) -> Iterator[None]:
    """Nodes that layers build inside are marked with their stage and the pipeline's number."""
    by_layer: dict[int, list[int]] = {}
    if stages:
        calls = [node.layer for node in _calls(model)] if _is_functional(model) else model.layers
        for layer, stage in zip(calls, stages, strict=True):
            by_layer.setdefault(id(layer), []).append(stage)
    counts: Counter[int] = Counter()
    call = tf.keras.layers.Layer.__call__

    @wraps(call)
    def marked_call(layer: Any, *args: Any, **named: Any) -> Any:
        of_layer = by_layer.get(id(layer))
        if of_layer is None:
            return call(layer, *args, **named)
        stage = of_layer[counts[id(layer)] % len(of_layer)]
        counts[id(layer)] += 1
        with marked(stage=stage, pipeline=number):
            return call(layer, *args, **named)

    tf.keras.layers.Layer.__call__ = marked_call
    _pipeline.append(number)
    try:
        yield
    finally:
        tf.keras.layers.Layer.__call__ = call
        _pipeline.pop()


def assignments_of(model: Any, stages: Sequence[int] | None) -> list[Any]:
    """Stages of the layers of a Sequential model; an assignment for each call of another one."""
    if not _is_functional(model):
        return list(stages or ())
    every = _calls(model)
    numbers: Sequence[int | None] = stages or [None] * len(every)
    return [
        Assignment(node.layer, node.layer._inbound_nodes.index(node), stage)
        for node, stage in zip(every, numbers, strict=True)
    ]


def checked_stages(model: Any, stages: tuple[Any, ...]) -> tuple[int, ...]:
    """The stages of a Sequential model: one for each layer, from 0, none left out."""
    if len(stages) != len(model.layers):
        raise ValueError(
            "The size of the provided pipeline_stage_assignment "
            f"({len(stages)}) does not match the total number of layers ({len(model.layers)})"
        )
    steps = {after - before for before, after in zip((0, *stages), stages, strict=False)}
    if stages[0] != 0 or steps - {0, 1}:
        raise ValueError(
            f"pipeline_stage_assignment={list(stages)} must start at 0 and grow by at most 1 from "
            "layer to layer"
        )
    return stages


def checked_assignments(model: Any, values: Any) -> tuple[int, ...]:
    """The stages of a model, by layer or by call.

    Raises    ValueError for stages that the layers cannot run in.
    """
    if not _is_functional(model):
        return checked_stages(model, tuple(values))
    every = _calls(model)
    if len(values) != len(every):
        raise ValueError(
            f"The size of the provided `pipeline_stage_assignment` ({len(values)}) does not match "
            f"the total number of invocations of layers in the model (currently {len(every)}). "
            "Each invocation of a layer in a model needs to be assigned to a pipeline stage "
            "(excluding input layers)."
        )
    if not all(isinstance(value, Assignment) for value in values):
        raise ValueError(
            "All elements of `pipeline_stage_assignment` need to be instances of "
            "`FunctionalLayerPipelineStageAssignment`."
        )
    by_call = {id(value.node): value for value in values}
    if len(by_call) != len(every):
        raise ValueError("Each layer invocation can only be assigned to a single pipeline stage.")
    stages = {key: value.pipeline_stage for key, value in by_call.items()}
    _check_order(every, stages)
    return tuple(int(stages[id(node)]) for node in every)


def _check_order(every: Sequence[Any], stages: dict[int, int | None]) -> None:
    """Every call has a stage, no stage is empty, and none takes results of a later one."""
    for node in every:
        if stages[id(node)] is None:
            index = node.layer._inbound_nodes.index(node)
            raise ValueError(
                f"Layer {node.layer.name} with node index {index} has not been assigned a pipeline "
                "stage."
            )
    used = sorted({stage for stage in stages.values() if stage is not None})
    missing = sorted(set(range(used[-1] + 1)) - set(used))
    if missing:
        raise ValueError(
            "Pipeline stages in the graph need to be strictly increasing, found pipeline stages "
            f"{', '.join(map(str, used))}, however the following pipeline stages are missing "
            f"{', '.join(map(str, missing))}."
        )
    for node in every:
        here = stages[id(node)] or 0
        if any((stages.get(id(parent)) or 0) > here for parent in node.parent_nodes):
            raise ValueError(
                f"Layer {node.layer.name} in pipeline stage {here} has a dependency from a "
                "pipeline stage which has not yet executed. Layers can only use outputs from "
                "current or previous pipeline stages."
            )


def stages_of(model: Any) -> tuple[int, ...] | None:
    """The stages that a model's layers were made or called in; None where no layer has one.

    Raises    ValueError where some have a stage and others none.
    """
    if _is_functional(model):
        every = _calls(model)
        numbers = [getattr(n, _STAGE, getattr(n.layer, _STAGE, None)) for n in every]
        names = [n.layer.name for n in every]
    else:
        numbers = [getattr(layer, _STAGE, None) for layer in model.layers]
        names = [layer.name for layer in model.layers]
    if not _is_functional(model) and not isinstance(model, tf.keras.Sequential):
        return None
    if all(stage is None for stage in numbers):
        return None
    if None in numbers:
        raise ValueError(
            "All layers of a pipelined model must have an associated pipeline stage. However, "
            f"{names[numbers.index(None)]} has not been assigned to one. Pipeline stages can be "
            "assigned when a layer is constructed, or each time a layer is called. Different "
            "pipeline stages can assigned to each call."
        )
    if not _is_functional(model):
        return checked_stages(model, tuple(numbers))
    return checked_assignments(
        model, [_assigned(n, stage) for n, stage in zip(every, numbers, strict=True)]
    )


def _assigned(node: Any, stage: int | None) -> Assignment:
    return Assignment(node.layer, node.layer._inbound_nodes.index(node), stage)


def summary_lines(model: Any, stages: Sequence[int] | None, length: int) -> list[str]:
    """A table of the stages, as wide as length."""
    if _is_functional(model):
        shares, header = [0.4, 0.8, 1.0], ["Layer (type) (node index)", "Input Layers"]
        rows = [
            [f"{a.layer.name} ({type(a.layer).__name__}) ({a.node_index})",
             ", ".join(layer.name for layer in a.inbound_layers), str(a.pipeline_stage)]
            for a in assignments_of(model, stages)
        ]
    else:
        shares, header = [0.5, 1.0], ["Layer (type)"]
        numbers: Sequence[int | None] = stages or [None] * len(model.layers)
        rows = [
            [f"{layer.name} ({type(layer).__name__})", str(stage)]
            for layer, stage in zip(model.layers, numbers, strict=True)
        ]
    ends = [int(length * share) for share in shares]
    lines = [f'Model: "{model.name}"', "_" * length, _row([*header, "Pipeline Stage"], ends)]
    lines.append("=" * length)
    for row in rows:
        lines += [_row(row, ends), "_" * length]
    return [*lines[:-1], "=" * length]


def _row(fields: Sequence[str], ends: Sequence[int]) -> str:
    """Fields that end at these columns; one that is too long is cut."""
    line = ""
    for field, end in zip(fields, ends, strict=True):
        line = f"{line}{field}"[: end - 1].ljust(end)
    return line
