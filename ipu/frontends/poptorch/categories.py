"""Groups of options: training, precision, distribution, tracing, PopART's own.

`poptorch.autocasting` is this module, for its `Policy`.

>>> from ipu.frontends import poptorch
>>> "matmul" in poptorch.autocasting.Policy().lists["fp16"]
True

Source    Graphcore's PopTorch, python/options.py and python/autocasting.py.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from ipu.frontends.poptorch.dictionary import OptionsDict, check_bool, check_number, once
from ipu.frontends.poptorch.enums import (
    HalfFloatCastingBehavior,
    MeanReductionStrategy,
    ReductionType,
)

__all__ = [
    "MPI_NAMES", "AutocastPolicy", "DistributedOptions", "JitOptions", "PopartOptions",
    "PrecisionOptions", "TrainingOptions",
]


class TrainingOptions(OptionsDict):
    """Gradient accumulation and how gradients become one."""

    def __init__(self) -> None:
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=MeanReductionStrategy.Post,
        )
        self.__dict__["is_strategy_chosen"] = False
        self.__dict__["automatic_loss_scaling"] = False

    is_strategy_chosen: bool
    automatic_loss_scaling: bool

    def gradientAccumulation(self, gradient_accumulation: int) -> TrainingOptions:
        """Micro-batches of one update."""
        check_number("gradientAccumulation", gradient_accumulation)
        self.set(gradient_accumulation=gradient_accumulation)
        return self

    def accumulationAndReplicationReductionType(
        self, reduction_type: ReductionType
    ) -> TrainingOptions:
        """Sum or mean over micro-batches and replicas."""
        if reduction_type not in (ReductionType.Mean, ReductionType.Sum):
            raise ValueError(
                "accumulationAndReplicationReductionType must be set to "
                "poptorch.ReductionType.Mean or poptorch.ReductionType.Sum"
            )
        self.set(accumulation_and_replication_reduction_type=reduction_type)
        return self

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: MeanReductionStrategy
    ) -> TrainingOptions:
        """When a mean divides; by default at the end, of float16 accumulators as they come."""
        if not isinstance(mean_reduction_strategy, MeanReductionStrategy):
            raise ValueError(
                "mean_reduction_strategy must be set to poptorch.MeanReductionStrategy.Running or "
                "poptorch.MeanReductionStrategy.Post"
            )
        if mean_reduction_strategy is MeanReductionStrategy.PostAndLoss:
            raise ValueError("MeanReductionStrategy.PostAndLoss is deprecated; use Post")
        self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)
        self.__dict__["is_strategy_chosen"] = True
        return self

    def setAutomaticLossScaling(self, enabled: bool) -> TrainingOptions:
        """The loss scale follows a histogram of float16 gradients."""
        check_bool("setAutomaticLossScaling", enabled)
        self.__dict__["automatic_loss_scaling"] = enabled
        return self

    def setConvolutionDithering(self, enabled: bool) -> TrainingOptions:
        """Where convolutions lie on the tiles."""
        check_bool("setConvolutionDithering", enabled)
        once("setConvolutionDithering", "no tensor has a place on tiles here")
        return self


class AutocastPolicy:
    """Lists of operations that autocasting would compute in each type.

    >>> AutocastPolicy(fp32=["softmax"]).lists["fp32"]
    ['softmax']
    """

    def __init__(
        self, fp16: list[Any] | None = None, fp32: list[Any] | None = None,
        promote: list[Any] | None = None, demote: list[Any] | None = None,
    ) -> None:
        self.lists = {"fp16": list(_FP16 if fp16 is None else fp16), "fp32": list(fp32 or ()),
                      "promote": list(_PROMOTE if promote is None else promote),
                      "demote": list(demote or ())}


#: As `poptorch.autocasting` has it.
Policy = AutocastPolicy

_FP16 = (
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "matmul", "mm", "mv",
)
_PROMOTE = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cat", "cross", "dot", "equal", "index_put", "stack",
)


class PrecisionOptions(OptionsDict):
    """Formats, rounding and exceptions of a session of PopTorch's own."""

    def __init__(self) -> None:
        super().__init__(
            autocast_enabled=True, autocast_policy_dict=AutocastPolicy().lists,
            half_float_casting=HalfFloatCastingBehavior.Default,
            running_statistics_always_float=True, enable_floating_point_exceptions=False,
            enable_stochastic_rounding=False, partials_type="float",
        )

    def autocastEnabled(self, autocast_enabled: bool) -> PrecisionOptions:
        """Whether torch.autocast in a model has an effect: it has, by torch's own rules."""
        check_bool("autocastEnabled", autocast_enabled)
        self.set(autocast_enabled=autocast_enabled)
        return self

    def autocastPolicy(self, autocast_policy: AutocastPolicy) -> PrecisionOptions:
        """Lists of operations for autocasting."""
        if not isinstance(autocast_policy, AutocastPolicy):
            raise TypeError(
                f"autocast_policy={autocast_policy!r} is not a poptorch.autocasting.Policy"
            )
        once("autocastPolicy", "torch.autocast follows torch's own lists")
        self.set(autocast_policy_dict=autocast_policy.lists)
        return self

    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> PrecisionOptions:
        """What operations on float16 and float32 tensors compute in."""
        if not isinstance(half_float_casting, HalfFloatCastingBehavior):
            raise ValueError(
                "halfFloatCasting must be set to poptorch.HalfFloatCastingBehavior."
                "FloatDowncastToHalf or poptorch.HalfFloatCastingBehavior.HalfUpcastToFloat"
            )
        self.set(half_float_casting=half_float_casting)
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> PrecisionOptions:
        """Moving statistics stay in float32; False leaves them as the model has them."""
        check_bool("runningStatisticsAlwaysFloat", value)
        if value is False:
            once("runningStatisticsAlwaysFloat(False)", "buffers keep the type that the model has")
        self.set(running_statistics_always_float=value)
        return self

    def runningVarianceAlwaysFloat(self, value: bool) -> PrecisionOptions:
        """The older name of runningStatisticsAlwaysFloat."""
        return self.runningStatisticsAlwaysFloat(value)

    def enableFloatingPointExceptions(self, enabled: bool) -> PrecisionOptions:
        """Invalid operations, divisions by zero and overflow stop the program."""
        check_bool("enableFloatingPointExceptions", enabled)
        self.set(enable_floating_point_exceptions=enabled)
        return self

    def enableStochasticRounding(self, enabled: bool) -> PrecisionOptions:
        """float16 results are rounded stochastically."""
        check_bool("enableStochasticRounding", enabled)
        self.set(enable_stochastic_rounding=enabled)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> PrecisionOptions:
        """Partial sums of matrix products and convolutions."""
        names = {torch.float32: "float", torch.float16: "half"}
        if dtype not in names:
            raise ValueError(
                "parameter to setPartialsType should be either torch.float or torch.half"
            )
        self.set(partials_type=names[dtype])
        return self


class JitOptions(OptionsDict):
    """How a graph is had from a model: here the model itself runs."""

    def __init__(self) -> None:
        super().__init__(trace_model=False)

    def traceModel(self, trace_model: bool) -> JitOptions:
        """By torch.jit.trace or by the dispatcher."""
        check_bool("traceModel", trace_model)
        once("traceModel", "the model's own operations are dispatched to the machine")
        self.set(trace_model=trace_model)
        return self


#: Where launchers write the number of processes, and which of them this one is.
MPI_NAMES = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")
_POPRUN_NAMES = ("POPDIST_NUM_INSTANCES", "POPDIST_INSTANCE_INDEX")


class DistributedOptions(OptionsDict):
    """Number of this process among those of a run."""

    def __init__(self) -> None:
        super().__init__(num_distributed_processes=1, distributed_process_id=0, ipuof_configs={})
        names = _POPRUN_NAMES if _POPRUN_NAMES[0] in os.environ else MPI_NAMES
        self.setEnvVarNames(*names)

    def disable(self) -> DistributedOptions:
        """One process."""
        self.set(num_distributed_processes=1, distributed_process_id=0)
        return self

    def configureProcessId(self, process_id: int, num_processes: int) -> DistributedOptions:
        """This process and how many there are, as poprun or an MPI launcher has started them."""
        check_number("num_processes", num_processes)
        check_number("process_id", process_id, 0)
        if process_id >= num_processes:
            raise ValueError(f"process_id={process_id} of {num_processes} processes; count from 0")
        self.set(distributed_process_id=process_id, num_distributed_processes=num_processes)
        return self

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> DistributedOptions:
        """Process and number of processes from these variables of the environment."""
        return self.configureProcessId(
            int(os.environ.get(var_process_id, "0")), int(os.environ.get(var_num_processes, "1"))
        )

    @property
    def processId(self) -> int:
        """Number of this process."""
        number: int = self.distributed_process_id
        return number

    @property
    def numProcesses(self) -> int:
        """How many processes there are."""
        count: int = self.num_distributed_processes
        return count


class PopartOptions(OptionsDict):
    """PopART's session options by name: kept and printed; those that are modelled have setters."""

    def __init__(self) -> None:
        super().__init__(
            options={"instrumentWithHardwareCycleCounter": False, "rearrangeAnchorsOnHost": False}
        )

    _MODELLED = (
        "enableStableNorm", "syntheticDataMode", "instrumentWithHardwareCycleCounter",
        "enableEngineCaching", "rearrangeAnchorsOnHost", "defaultPrefetchBufferingDepth",
    )

    def set(self, key: str = "", value: Any = None, **options: Any) -> Any:
        """One option of PopART's by its name."""
        if options:
            return super().set(**options)
        if key not in self._MODELLED:
            once(f"_Popart.set({key!r})", "PopART's session options are not modelled")
        if self._is_frozen:
            raise AttributeError(f"Can't modify frozen Options: _Popart.set({key!r})")
        self.options[key] = value
        return self

    def setPatterns(self, patterns: dict[str, bool], level: int = 2) -> PopartOptions:
        """Rewrites of PopART's compiler."""
        once("_Popart.setPatterns", "PopART's rewrites of graphs are not modelled")
        self.options["patterns"], self.options["patterns_level"] = patterns, level
        return self
