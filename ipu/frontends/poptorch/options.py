"""Options: how a model is cut, executed, and what of it comes back.

Every setter checks its argument and returns the options, so that calls can be chained. What the
simulation does not model is accepted and says so once.

Source    Graphcore's PopTorch, python/options.py: names, defaults, checks; PopART,
          sessionoptions.hpp.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

from ipu.feed.pace import Feeding
from ipu.frontends.poptorch.categories import (
    DistributedOptions,
    JitOptions,
    PopartOptions,
    PrecisionOptions,
    TrainingOptions,
)
from ipu.frontends.poptorch.dictionary import OptionsDict, check_bool, check_number, once
from ipu.frontends.poptorch.enums import ConnectionType, OutputMode, SyncPattern
from ipu.frontends.poptorch.locations import TensorLocations
from ipu.frontends.poptorch.strategies import PipelinedExecution, Strategy

__all__ = ["Options"]

_CATEGORIES = ("Distributed", "Jit", "Precision", "TensorLocations", "Training", "_Popart")


class Options(OptionsDict):
    """What a model wrapper and a data loader share.

    >>> options = Options().deviceIterations(10)
    >>> options.Training.gradientAccumulation(4).gradient_accumulation
    4
    >>> options.device_iterations, options.replication_factor, options.output_mode
    (10, 1, 4)
    """

    def __init__(self) -> None:
        super().__init__(
            replication_factor=1, broadcast_buffers=True, device_iterations=1, log_dir=".",
            auto_round_num_ipus=False, anchored_tensors={},
            output_mode=OutputMode.Default.value, output_return_period=1,
            connection_type=ConnectionType.Always.value, sync_pattern=SyncPattern.Full.value,
            available_memory_proportion={},
        )
        parts = (
            DistributedOptions(), JitOptions(), PrecisionOptions(), TensorLocations(),
            TrainingOptions(), PopartOptions(),
        )
        self.__dict__.update(zip(_CATEGORIES, parts, strict=True))
        self.__dict__["execution_strategy"] = PipelinedExecution()
        self.__dict__["profile_dir"] = None
        self.__dict__["check_memory"] = True
        self.__dict__["feeding"] = Feeding()

    # Groups of options ----------------------------------------------------------------------

    Distributed: DistributedOptions
    Jit: JitOptions
    Precision: PrecisionOptions
    TensorLocations: TensorLocations
    Training: TrainingOptions
    _Popart: PopartOptions
    execution_strategy: Strategy
    profile_dir: Path | None
    check_memory: bool
    #: What the data loaders of these options took to make their elements.
    feeding: Feeding

    def clone(self) -> Options:
        """Options of their own with the same values; they can be changed."""
        options = copy.deepcopy(self)
        options.__dict__["feeding"] = Feeding()
        return options

    def freeze(self) -> None:
        """No changes from now on, in the groups too."""
        super().freeze()
        for name in _CATEGORIES:
            self.__dict__[name].freeze()

    def __repr__(self) -> str:
        groups = ", ".join(f"{name}={self.__dict__[name]!r}" for name in _CATEGORIES)
        return f"{super().__repr__()[:-1]}, {groups})"

    # Amount of work -------------------------------------------------------------------------

    def deviceIterations(self, device_iterations: int) -> Options:
        """Updates, or batches of an inference, of one call."""
        check_number("deviceIterations", device_iterations)
        self.set(device_iterations=device_iterations)
        return self

    def replicationFactor(self, replication_factor: int) -> Options:
        """Copies of the model that train together, each on IPUs of its own."""
        check_number("replicationFactor", replication_factor)
        self.set(replication_factor=replication_factor)
        return self

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: Any = None) -> Options:
        """Replicas that get the same input: one at a time is modelled."""
        check_number("inputReplicaGrouping", input_group_size)
        if input_group_size != 1:
            raise ValueError(
                f"inputReplicaGrouping({input_group_size}) is not modelled; use 1: each replica "
                "gets samples of its own"
            )
        return self

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Options:
        """Buffers start equal on all replicas; False (a leading replica axis) is not modelled."""
        check_bool("broadcastBuffers", broadcast_buffers)
        if not broadcast_buffers:
            raise ValueError("broadcastBuffers(False) is not modelled; use True")
        self.set(broadcast_buffers=broadcast_buffers)
        return self

    def outputMode(
        self, output_mode: OutputMode, output_return_period: int | None = None
    ) -> Options:
        """Which micro-batches' outputs come back; the period is that of EveryN."""
        if not isinstance(output_mode, OutputMode):
            raise TypeError(f"output_mode={output_mode!r} is not a poptorch.OutputMode")
        if output_mode is OutputMode.EveryN:
            if output_return_period is None:
                raise ValueError(
                    "EveryN output must have output_return_period set to valid positive integer"
                )
            check_number("output_return_period", output_return_period)
        self.set(
            output_mode=output_mode.value,
            output_return_period=(
                output_return_period if output_mode is OutputMode.EveryN else 1
            ) or 1,
        )
        return self

    def mode_of_outputs(self, *, training: bool) -> OutputMode:
        """The output mode of a training or an inference that these options choose."""
        mode = OutputMode(self.output_mode)
        if mode is OutputMode.Default:
            return OutputMode.Final if training else OutputMode.All
        return mode

    def defaultOutputMode(self) -> bool:
        """Whether no output mode was chosen."""
        return bool(self.output_mode == OutputMode.Default.value)

    def anchorTensor(
        self, short_name: str, long_name: str, output_mode: OutputMode | None = None,
        output_return_period: int | None = 1,
    ) -> Options:
        """Tensors of PopART's graph have no names here."""
        once("anchorTensor", "tensors have no names of PopART's; return them from the model")
        self.anchored_tensors[short_name] = [long_name, output_mode, output_return_period]
        return self

    # Execution ------------------------------------------------------------------------------

    def setExecutionStrategy(self, strategy: Strategy) -> Options:
        """How stages follow each other."""
        if not isinstance(strategy, Strategy):
            raise TypeError(
                f"strategy={strategy!r} is not an execution strategy; use "
                "poptorch.PipelinedExecution(…) or ShardedExecution(…)"
            )
        self._check_frozen("setExecutionStrategy")
        self.__dict__["execution_strategy"] = strategy
        return self

    def checkMemory(self, check_memory: bool = True) -> Options:
        """Refuse a model that does not fit the memory of an IPU; of the simulation alone."""
        check_bool("checkMemory", check_memory)
        self._check_frozen("checkMemory")
        self.__dict__["check_memory"] = check_memory
        return self

    def _check_frozen(self, name: str) -> None:
        if self._is_frozen:
            raise AttributeError(f"Can't modify frozen Options: {name}; use options.clone()")

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        """Take the next power of 2 as number of IPUs."""
        check_bool("autoRoundNumIPUs", auto_round_num_ipus)
        self.set(auto_round_num_ipus=auto_round_num_ipus)
        return self

    def setAvailableMemoryProportion(
        self, available_memory_proportion: dict[str, float]
    ) -> Options:
        """Share of memory for temporary values, as {"IPU0": 0.5}: the less, the more steps."""
        if not isinstance(available_memory_proportion, dict):
            raise TypeError(
                f"available_memory_proportion={available_memory_proportion!r} is no dictionary; "
                'use {"IPU0": 0.5}'
            )
        shares = {}
        for key, share in available_memory_proportion.items():
            if not (isinstance(key, str) and key.startswith("IPU") and key[3:].isdigit()):
                raise ValueError(
                    "Available memory proportions are expected to be in a dictionary of "
                    '{"IPU0": 0.5} where the 0 in IPU is the index of the IPU. Invalid key: '
                    f"{key}"
                )
            if not 0 <= share <= 1:
                raise ValueError(f"available memory of {key}={share}: use a share from 0 to 1")
            shares[int(key[3:])] = share
        self.set(available_memory_proportion=shares)
        return self

    def randomSeed(self, random_seed: int) -> Options:
        """Seed of stochastic rounding and of dropout; torch's generator is seeded too."""
        check_number("randomSeed", random_seed, 0)
        torch.manual_seed(random_seed)
        self.createOrSet(random_seed=random_seed)
        return self

    def enableStableNorm(self, enabled: bool) -> Options:
        """Norms from centred values."""
        check_bool("enableStableNorm", enabled)
        if not enabled:
            once("enableStableNorm(False)", "norms compute from centred values in any case")
        self._Popart.set("enableStableNorm", enabled)
        return self

    def enableSyntheticData(self, enabled: bool) -> Options:
        """Inputs are random normal numbers instead of the host's."""
        check_bool("enableSyntheticData", enabled)
        self._Popart.set("syntheticDataMode", 2 if enabled else 0)
        return self

    # Devices, files, messages ---------------------------------------------------------------

    def connectionType(self, connection_type: ConnectionType) -> Options:
        """When a model takes its IPUs; with Never it can be compiled but not run."""
        if not isinstance(connection_type, ConnectionType):
            raise TypeError(f"connection_type={connection_type!r} is not a poptorch.ConnectionType")
        self.set(connection_type=connection_type.value)
        return self

    def syncPattern(self, sync_pattern: SyncPattern) -> Options:
        """Which IPUs wait for each other."""
        if not isinstance(sync_pattern, SyncPattern):
            raise TypeError(f"sync_pattern={sync_pattern!r} is not a poptorch.SyncPattern")
        if sync_pattern is not SyncPattern.Full:
            once("syncPattern", "all IPUs wait for each other at the end of a slot")
        self.set(sync_pattern=sync_pattern.value)
        return self

    def useIpuId(self, ipu_id: int) -> Options:
        """A certain device."""
        check_number("useIpuId", ipu_id, 0)
        once("useIpuId", "there is one simulated machine")
        self.createOrSet(ipu_id=ipu_id)
        return self

    def useIpuModel(self, use_model: bool) -> Options:
        """Vendor's model instead of hardware: this is a simulation in any case."""
        check_bool("useIpuModel", use_model)
        once("useIpuModel", "every run is simulated")
        return self

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Options:
        """Compile without a device."""
        check_number("useOfflineIpuTarget", ipu_version)
        self.connectionType(ConnectionType.Never)
        self.createOrSet(ipu_version=ipu_version)
        return self

    def enableProfiling(self, profile_dir: str | None = None) -> Options:
        """Write the schedule and the account of memory after the first call."""
        self._check_frozen("enableProfiling")
        self.__dict__["profile_dir"] = Path(profile_dir or ".")
        return self

    def disableProfiling(self) -> Options:
        """Write no profile."""
        self.__dict__["profile_dir"] = None
        return self

    def logDir(self, log_dir: str) -> Options:
        """Folder of log files; none are written."""
        once("logDir", "no log files are written")
        self.set(log_dir=log_dir)
        return self

    def modelName(self, name: str) -> Options:
        """A name of the model for profiles."""
        self.createOrSet(model_name=name)
        return self

    def enableExecutableCaching(self, path: str | None) -> Options:
        """Folder of compiled programs; they are kept as long as their model, and never written."""
        once("enableExecutableCaching", "programs live as long as their model", is_partial=True)
        self._Popart.set("enableEngineCaching", path is not None)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> Options:
        """The profile tells the cycles of the declared model."""
        check_bool("logCycleCount", log_cycle_count)
        self._Popart.set("instrumentWithHardwareCycleCounter", log_cycle_count)
        return self

    def showCompilationProgressBar(self, show: bool = True) -> Options:
        """There is no bar: compiling takes a moment."""
        check_bool("showCompilationProgressBar", show)
        return self

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Options:
        """Unknown attributes of optimisers are no reason for warnings here."""
        check_bool("relaxOptimizerAttributesChecks", relax)
        return self

    def updatableNamedBuffers(self, buffers: list[str]) -> Options:
        """Buffers that may be changed between calls: here all may."""
        self.createOrSet(updatable_named_buffers=list(buffers))
        return self

    def sourceLocationExcludes(self, excludes: list[str]) -> Options:
        """Paths that messages leave out."""
        once("sourceLocationExcludes", "messages name layers, not lines")
        self.createOrSet(source_location_excludes=list(excludes))
        return self

    def loadFromFile(self, filepath: str) -> Options:
        """Calls of setters from a file, one a line, without `options.`.

        Raises    ValueError for a line that is no call of a setter.
        """
        for number, line in enumerate(Path(filepath).read_text("utf-8").splitlines(), 1):
            text = line.partition("#")[0].strip()
            if not text:
                continue
            _run_line(self, text, f"{filepath}, line {number}")
        return self


def _run_line(options: Options, text: str, where: str) -> None:
    """One call of a setter, with literals and names of poptorch as arguments."""
    from ipu.frontends import poptorch

    try:
        exec(f"options.{text}", {"options": options, "poptorch": poptorch, "torch": torch})
    except Exception as error:
        raise ValueError(
            f"{where}: {text!r} is no call of an option ({error}); write it as in a program, "
            "without `options.`: deviceIterations(1)"
        ) from error
