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
    """Which micro-batches' outputs come back; Default: All of an inference, Final of a training."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class AutoStage(Enum):
    """Stages of blocks that no strategy lists: of the same number as the IPU, or one by one."""

    SameAsIpu = 0
    AutoIncrement = 1


class DataLoaderMode(Enum):
    """Batches are loaded when asked for, by another process ahead of time, or cut and joined."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class ReductionType(Enum):
    """How gradients of micro-batches and replicas become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(Enum):
    """When a mean of gradients divides: as they come, at the end, or (deprecated) in the loss."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class Liveness(Enum):
    """What phases keep on the chip."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class ConnectionType(Enum):
    """When a program takes hold of IPUs."""

    Always = 0
    OnDemand = 1
    Never = 2


class SyncPattern(Enum):
    """Which IPUs wait for each other."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class HalfFloatCastingBehavior(Enum):
    """What an operation on float16 and float32 tensors computes in; Default: in half (ASSUMED)."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class MatMulSerializationMode(Enum):
    """The axis along which a matrix product is cut into smaller ones."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(Enum):
    """How far transfers of the host run beside the computation."""

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
