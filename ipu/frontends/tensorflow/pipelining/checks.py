"""What a pipeline refuses, and the plan that stands behind it.

The plan of `ipu.plan` says when and where stages run; it changes no bit.

Source    graphcore/tensorflow, tensorflow/python/ipu/ops/pipelining_ops.py, driver/tools/
          pipeline_util.cc: checks and messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.feeds import IPUInfeedQueue, IPUOutfeedMode, IPUOutfeedQueue
from ipu.frontends.tensorflow.pipelining.options import PipelineSchedule, RecomputationMode
from ipu.frontends.tensorflow.settings import system
from ipu.frontends.tensorflow.training.accumulation import check_state_placement
from ipu.plan.plan import Plan

__all__ = ["Arguments", "plan_of_pipeline", "planned"]

_MOST = 1 << 31


@dataclass
class Arguments:
    """The arguments of a pipeline that are checked together; see `pipelining_ops.pipeline`."""

    stages: Any
    count: Any
    batch_serialization_iterations: int
    infeed_queue: Any
    outfeed_queue: Any
    optimizer_function: Any
    device_mapping: Any
    schedule: Any
    recomputation_mode: Any
    outfeed_loss: bool
    outfeed_mask: Sequence[bool] | None
    accumulate_outfeed: bool
    continuous_weight_updates: bool
    offload_weight_update_variables: bool | None
    replicated_optimizer_state_sharding: bool
    offloads: dict[str, bool | None]

    def __post_init__(self) -> None:
        self._check_kinds()
        serial = self.batch_serialization_iterations > 1
        if self.schedule is None:
            self.schedule = PipelineSchedule.Sequential if serial else PipelineSchedule.Grouped
        if not isinstance(self.schedule, PipelineSchedule):
            raise TypeError(
                "The given pipeline_schedule is not a member of the PipelineSchedule enumeration."
            )
        if serial and self.schedule is not PipelineSchedule.Sequential:
            raise NotImplementedError(
                "Batch serialization is only supported with the `Sequential` schedule."
            )
        if self.recomputation_mode is None:
            self.recomputation_mode = RecomputationMode.Auto
        if not isinstance(self.recomputation_mode, RecomputationMode):
            raise TypeError(
                "The given recomputation_mode is not a member of the RecomputationMode enumeration."
            )
        self._check_mapping(serial)
        self._check_outfeed()
        check_state_placement(
            self.offload_weight_update_variables, self.replicated_optimizer_state_sharding
        )

    def _check_kinds(self) -> None:
        if self.count is None or (isinstance(self.count, int) and self.count == 0):
            raise ValueError("gradient_accumulation_count must be specified.")
        if isinstance(self.count, bool) or not isinstance(self.count, int):
            raise TypeError(f"gradient_accumulation_count={self.count!r} is not an integer")
        if not 0 < self.count < _MOST:
            raise ValueError(
                f"gradient_accumulation_count={self.count} is out of range; use 1 to {_MOST - 1}"
            )
        if self.continuous_weight_updates:
            raise NotImplementedError("Continuous weight updates are currently not supported.")
        if not isinstance(self.stages, list | tuple):
            raise TypeError("computational_stages argument needs to be a list or a tuple.")
        if len(self.stages) < 2:
            raise ValueError("Pipeline requires at least two computational stages.")
        if self.infeed_queue is not None and not isinstance(self.infeed_queue, IPUInfeedQueue):
            raise TypeError("infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue")
        if self.outfeed_queue is not None and not isinstance(self.outfeed_queue, IPUOutfeedQueue):
            raise TypeError("outfeed_queue is not an instance of ipu_outfeed_queue.IPUOutfeedQueue")

    def _check_mapping(self, serial: bool) -> None:
        if self.device_mapping is None:
            self.device_mapping = [0] * len(self.stages) if serial else _in_order(self.stages)
        if not isinstance(self.device_mapping, list | tuple):
            raise TypeError("device_mapping argument needs to be a list or a tuple.")
        if len(self.device_mapping) != len(self.stages):
            raise ValueError(
                "Each stage must be mapped to an IPU: "
                f"{len(self.device_mapping)} mappings != {len(self.stages)} stages"
            )
        flat = [ipu for entry in self.device_mapping for ipu in _listed(entry)]
        ipus = current().n_ipus
        if ipus > 1 and any(isinstance(ipu, int) and ipu >= ipus for ipu in flat):
            raise ValueError(
                f"device_mapping={list(self.device_mapping)} names an IPU that the machine does "
                f"not have; use 0 to {ipus - 1}, or a larger auto_select_ipus"
            )
        shared = len(set(flat)) != len(flat)
        if self.schedule is PipelineSchedule.Interleaved and shared and self.optimizer_function:
            raise NotImplementedError(
                "The pipelining schedule 'Interleaved' does not currently support multiple "
                "pipeline stages on the same device for training graphs. Please use a different "
                "pipeline schedule."
            )
        if serial and len(set(flat)) != 1:
            raise NotImplementedError(
                "When using batch serialization, all the pipeline stages need to be mapped to a "
                "single IPU."
            )

    def _check_outfeed(self) -> None:
        if self.outfeed_loss and not self.optimizer_function:
            raise ValueError("An optimizer_function must be provided when outfeed_loss is True")
        if self.outfeed_mask is not None and not self.optimizer_function:
            raise ValueError(
                "An optimizer_function must be provided when outfeed_mask is specified."
            )
        if self.outfeed_loss and self.outfeed_mask is not None:
            raise ValueError("Only one of `outfeed_loss` and `outfeed_mask` can be set.")
        if self.outfeed_loss and self.outfeed_queue is None:
            raise ValueError("An outfeed_queue must be provided when outfeed_loss is True")
        if self.accumulate_outfeed:
            if self.outfeed_queue is None:
                raise ValueError(
                    "An outfeed_queue must be provided when accumulate_outfeed is True."
                )
            if self.outfeed_queue._mode is not IPUOutfeedMode.ALL:
                raise ValueError("To accumulate the outfeed, it must be in IPUOutfeedMode ALL.")

    @property
    def mini_batches(self) -> int:
        """Mini-batches of one update."""
        count: int = self.count
        return count * self.batch_serialization_iterations


def _listed(entry: Any) -> list[Any]:
    return list(entry) if isinstance(entry, list | tuple) else [entry]


def _in_order(stages: Sequence[Any]) -> list[Any]:
    """IPUs 0, 1, 2 … in the order of the stages, concurrent ones among them."""
    numbers = iter(range(sum(len(_listed(stage)) for stage in stages)))
    return [
        [next(numbers) for _ in stage] if isinstance(stage, list | tuple) else next(numbers)
        for stage in stages
    ]


def plan_of_pipeline(arguments: Arguments) -> Plan:
    """The plan of a pipeline; as many replicas run as its IPUs fit on the machine's.

    Raises    tf.errors.FailedPreconditionError for a count that the schedule cannot fill;
              ValueError for stages and IPUs that do not go together.
    """
    plan = planned(
        [_anything(stage) for stage in arguments.stages], arguments.device_mapping,
        arguments.schedule, arguments.count, arguments.recomputation_mode,
        arguments.offload_weight_update_variables, arguments.offloads,
        training=arguments.optimizer_function is not None,
        prefetch=getattr(arguments.infeed_queue, "prefetch_depth", 3),
    )
    current().take(len(plan.ipus))
    return plan


def planned(
    stages: Sequence[Any], mapping: Sequence[Any] | None, schedule: PipelineSchedule, count: int,
    recomputation_mode: RecomputationMode | None, offload_state: bool | None,
    offloads: Mapping[str, bool | None], *, training: bool, prefetch: int = 3,
) -> Plan:
    """A plan by the vendor's words; None stands for its defaults: the state alone is offloaded.

    Raises    as `plan_of_pipeline`.
    """
    mode: dict[str, str | bool] = {"auto": True, "then": "then", "interleaved": "interleaved"}
    configured = system.current() if system.is_configured() else None
    recompute = bool(configured and configured.recompute)
    offload = {name for name, is_on in offloads.items() if is_on}
    if training and offload_state is not False:
        offload.add("state")
    try:
        return Plan(
            stages, mapping=mapping, schedule=schedule.name.lower(), count=count,
            recompute=mode[(recomputation_mode or RecomputationMode.Auto).value]
            if recompute else None,
            training=training, offload=offload, prefetch=prefetch,
            io_tiles=0 if configured is None else configured.overlapping_tiles,
            check_memory=False,
        )
    except ValueError as error:
        if "must be a multiple of" in str(error):
            raise tf.errors.FailedPreconditionError(None, None, str(error)) from None
        raise


def _anything(stage: Any) -> Any:
    """What stands for a stage in a plan, which only schedules here."""
    if isinstance(stage, list | tuple):
        return [_stand_in(tensor) for tensor in stage]
    return _stand_in(stage)


def _stand_in(stage: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(stage):
        raise TypeError(f"computational_stages: {stage!r} is not a function")
    return stage
