"""Stages: those of a model, found by running it once, and the plan that follows.

The model's forward pass is traced with the first micro-batch, without gradients and without leaving
a trace in random bits or buffers; it tells which blocks run in which order. Neighbouring stages on
one IPU become one.

Source    Graphcore's PopTorch, user guide (execution strategies) and compiler: recomputation is on
          by default in a pipeline; PopART, pipeline.cc (numbers of micro-batches).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu.frontends.poptorch.enums import OutputMode, ReductionType
from ipu.frontends.poptorch.options import Options
from ipu.frontends.poptorch.strategies import StageOf, Strategy, names_of
from ipu.plan.plan import Plan
from ipu.plan.schedule import smallest_count

__all__ = ["Stages", "Tracer", "plan_of"]


class Tracer:
    """Notes the blocks of a forward pass; all of them are one stage for now."""

    n_stages = 1

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self.visits: list[StageOf] = []
        strategy.forget()

    def stage_of(self, user_id: str, ipu_id: int | None) -> int:
        self.visits.append(self._strategy.locate(user_id, ipu_id))
        return 0


class Stages:
    """The stages of a model and their IPUs.

    visits    of the tracer.

    Raises    ValueError for a listed stage of which no block runs.
    """

    def __init__(self, strategy: Strategy, visits: list[StageOf]) -> None:
        self._strategy = strategy
        ipus = dict(visits)
        for number, stage in enumerate(strategy.stages):
            if number not in ipus and ipus:
                raise ValueError(
                    f"no block of {stage!r} runs in the model; take the stage out of the strategy, "
                    f"or add one of its blocks to the model's forward: {', '.join(stage.blocks)}"
                )
        if strategy.stages and not ipus:
            raise ValueError(
                f"the model has no blocks, but the strategy lists {names_of(strategy)}; wrap its "
                "layers: with poptorch.Block('…'):"
            )
        self._index: dict[int, int] = {}
        #: IPU of each stage.
        self.mapping: list[int] = []
        for number in sorted(ipus):
            if not self.mapping or self.mapping[-1] != ipus[number]:
                self.mapping.append(ipus[number])
            self._index[number] = len(self.mapping) - 1
        self.mapping = self.mapping or [0]

    def stage_of(self, user_id: str, ipu_id: int | None) -> int:
        """The stage that a block belongs to."""
        number = self._strategy.locate(user_id, ipu_id).number
        if number not in self._index:
            raise ValueError(
                f"block {user_id!r} did not run when the model was traced; the stages of a model "
                "must not depend on its data"
            )
        return self._index[number]

    @property
    def n_stages(self) -> int:
        return len(self.mapping)


def plan_of(
    stages: Stages, options: Options, *, training: bool, check_memory: bool = True
) -> Plan:
    """The plan of one update, or of one call of an inference.

    Raises    ValueError for too few micro-batches, a gradient accumulation in an inference, and a
              number of IPUs that is no power of 2.
    """
    accumulation = options.Training.gradient_accumulation
    if not training and accumulation != 1:
        raise ValueError(
            f"Training.gradientAccumulation({accumulation}) in an inference: there are no "
            "gradients; use gradientAccumulation(1) and deviceIterations"
        )
    strategy = options.execution_strategy
    count = accumulation if training else options.device_iterations
    _check_count(strategy.schedule, stages, count, training=training)
    _check_ipus(stages, options)
    recompute = strategy.schedule == "popart" and stages.n_stages > 1 and training
    return Plan(
        [_named(f"stage {i}") for i in range(stages.n_stages)],
        mapping=stages.mapping, schedule=strategy.schedule, count=count,
        reduction=_reduction(options), recompute=True if recompute else None,
        replicas=options.replication_factor, training=training,
        check_memory=check_memory and options.check_memory,
        io_tiles=options.TensorLocations.io_tiles(stages.n_stages),
        prefetch=int(options._Popart.options.get("defaultPrefetchBufferingDepth", 3)),
        output_period=_output_period(options, count, training=training),
        **options.TensorLocations.placement(options.replication_factor, strategy, training),
    )


def _output_period(options: Options, count: int, *, training: bool) -> int:
    """Of how many micro-batches one sends its outputs to the host.

    Final and Sum send one in a call: here the last one of the update that is accounted for.
    """
    mode = options.mode_of_outputs(training=training)
    if mode is OutputMode.EveryN:
        return min(int(options.output_return_period), count)
    return 1 if mode is OutputMode.All else count


def _check_count(schedule: str, stages: Stages, count: int, *, training: bool) -> None:
    n = stages.n_stages
    if n == 1:
        return
    least = smallest_count(schedule, n, stages.mapping, training=training)
    if count >= least:
        return
    if training:
        raise ValueError(
            f"Training.gradientAccumulation({count}): a pipeline of {n} stages has {least} forward "
            f"and backward stages; use gradientAccumulation({least}) or more, or "
            "poptorch.ShardedExecution"
        )
    raise ValueError(
        f"deviceIterations({count}): a pipeline of {n} stages needs {least} or more in an "
        f"inference; use deviceIterations({least}), or poptorch.ShardedExecution"
    )


def _check_ipus(stages: Stages, options: Options) -> None:
    """IPUs are had in powers of 2."""
    wanted = (max(stages.mapping) + 1) * options.replication_factor
    if wanted & (wanted - 1) and not options.auto_round_num_ipus:
        more = 1 << wanted.bit_length()
        raise ValueError(
            f"the model needs {wanted} IPUs, and their number must be a power of 2; use "
            f"options.autoRoundNumIPUs(True), which takes {more}, or other stages"
        )


def _reduction(options: Options) -> str:
    mean = options.Training.accumulation_and_replication_reduction_type is ReductionType.Mean
    return "mean" if mean else "sum"


def _named(name: str) -> Callable[..., Any]:
    """A plan's stages are callables; the stages of a model run in its own forward."""

    def stage(*arguments: Any) -> Any:
        raise AssertionError(f"{name} runs as a part of the model's forward")

    stage.__name__ = name
    return stage
