"""Names of choices, with the numbers that they print.

Source    Graphcore's PopTorch, python/enums.py and its user guide.
"""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = [
    "AutoStage", "ConnectionType", "DataLoaderMode", "HalfFloatCastingBehavior", "Liveness",
    "MatMulSerializationMode", "MeanReductionStrategy", "OutputMode", "OverlapMode",
    "ReductionType", "SyncPattern",
]


class OutputMode(Enum):
    """Which micro-batches' outputs come back; Default: All of an inference, Final of a training.

    >>> from ipu.frontends.poptorch import Options
    >>> Options().outputMode(OutputMode.EveryN, 5).output_return_period
    5
    """

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class AutoStage(Enum):
    """Stages of blocks that no strategy lists: of the same number as the IPU, or one by one.

    >>> from ipu.frontends.poptorch import PipelinedExecution
    >>> PipelinedExecution(AutoStage.AutoIncrement).locate("B1", None)
    StageOf(number=0, ipu=0)
    """

    SameAsIpu = 0
    AutoIncrement = 1


class DataLoaderMode(Enum):
    """Batches are loaded when asked for, by another process ahead of time, or cut and joined.

    >>> from ipu.frontends.poptorch import DataLoader, Options
    >>> options = Options().deviceIterations(2)
    >>> loader = DataLoader(options, range(10), 2, mode=DataLoaderMode.AsyncRebatched)
    >>> [batch.tolist() for batch in loader]
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class ReductionType(Enum):
    """How gradients of micro-batches and replicas become one.

    >>> from ipu.frontends.poptorch import Options
    >>> training = Options().Training
    >>> training.accumulation_and_replication_reduction_type
    <ReductionType.Mean: 1>
    >>> training = training.accumulationAndReplicationReductionType(ReductionType.Sum)
    >>> training.accumulation_and_replication_reduction_type
    <ReductionType.Sum: 0>
    """

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(Enum):
    """When a mean of gradients divides: as they come, at the end, or (deprecated) in the loss.

    >>> from ipu.frontends.poptorch import Options
    >>> training = Options().Training.setMeanAccumulationAndReplicationReductionStrategy(
    ...     MeanReductionStrategy.Running
    ... )
    >>> training.meanAccumulationAndReplicationReductionStrategy
    <MeanReductionStrategy.Running: 0>
    """

    Running = 0
    Post = 1
    PostAndLoss = 2


class Liveness(Enum):
    """What phases keep on the chip.

    >>> from ipu.frontends.poptorch import SerialPhasedExecution
    >>> phases = SerialPhasedExecution("A", "B")
    >>> sorted(phases.setTensorsLiveness(Liveness.OffChipAfterEachPhase).offload)
    ['activations', 'state', 'weights']
    """

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class ConnectionType(Enum):
    """When a program takes hold of IPUs.

    >>> import torch
    >>> from ipu.frontends.poptorch import Options, inferenceModel
    >>> options = Options().connectionType(ConnectionType.Never)
    >>> inferenceModel(torch.nn.Linear(2, 1), options)(torch.ones(1, 2))
    Traceback (most recent call last):
    ...
    RuntimeError: ConnectionType.Never: this model can be compiled, not run; use
    options.connectionType(poptorch.ConnectionType.Always)
    """

    Always = 0
    OnDemand = 1
    Never = 2


class SyncPattern(Enum):
    """Which IPUs wait for each other.

    >>> from ipu.frontends.poptorch import Options
    >>> Options().syncPattern(SyncPattern.Full).sync_pattern
    0
    """

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class HalfFloatCastingBehavior(Enum):
    """What an operation on float16 and float32 tensors computes in; Default: in half (ASSUMED).

    >>> from ipu.frontends.poptorch import Options
    >>> upcast = HalfFloatCastingBehavior.HalfUpcastToFloat
    >>> Options().Precision.halfFloatCasting(upcast).half_float_casting
    <HalfFloatCastingBehavior.HalfUpcastToFloat: 1>
    """

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class MatMulSerializationMode(Enum):
    """The axis along which a matrix product is cut into smaller ones.

    >>> MatMulSerializationMode("reducing_dim")
    <MatMulSerializationMode.ReducingDim: 'reducing_dim'>
    """

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(Enum):
    """How far transfers of the host run beside the computation.

    >>> [mode.value for mode in OverlapMode]
    ['no_overlap', 'overlap_accumulation_loop', 'overlap_device_iteration_loop']
    """

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class LogLevel(IntEnum):
    """Levels of `setLogLevel`."""

    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERR = 4
    OFF = 6
