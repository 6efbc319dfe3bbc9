"""PopTorch's names on the simulated machine: `from ipu.frontends import poptorch`."""

from importlib.util import find_spec

from ipu.installation import not_installed

if find_spec("torch") is None:
    raise ModuleNotFoundError(not_installed("PyTorch", "torch"), name="torch")

from ipu.frontends.poptorch import categories as autocasting
from ipu.frontends.poptorch import optim
from ipu.frontends.poptorch.blocks import BeginBlock, Block, BlockFunction, removeBlocks
from ipu.frontends.poptorch.enums import (
    AutoStage,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    OutputMode,
    OverlapMode,
    ReductionType,
    SyncPattern,
)
from ipu.frontends.poptorch.hardware import (
    ipuHardwareIsAvailable,
    ipuHardwareVersion,
    isRunningOnIpu,
    setLogLevel,
)
from ipu.frontends.poptorch.loader import AsynchronousDataAccessor, DataLoader
from ipu.frontends.poptorch.locations import TensorLocationSettings
from ipu.frontends.poptorch.losses import identity_loss
from ipu.frontends.poptorch.model import PoplarExecutor, inferenceModel, load, trainingModel
from ipu.frontends.poptorch.ops import (
    Attribute,
    MultiConv,
    custom_op,
    for_loop,
    internal_cast,
    ipu_print_tensor,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from ipu.frontends.poptorch.options import Options
from ipu.frontends.poptorch.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)

__all__ = [
    "AsynchronousDataAccessor", "Attribute", "AutoStage", "BeginBlock", "Block", "BlockFunction",
    "ConnectionType", "DataLoader", "DataLoaderMode", "HalfFloatCastingBehavior", "Liveness",
    "MatMulSerializationMode", "MeanReductionStrategy", "MultiConv", "Options", "OutputMode",
    "OverlapMode", "ParallelPhasedExecution", "Phase", "PipelinedExecution", "PoplarExecutor",
    "ReductionType", "SerialPhasedExecution", "ShardedExecution", "Stage", "SyncPattern",
    "TensorLocationSettings", "autocasting", "custom_op", "for_loop",
    "identity_loss", "inferenceModel", "internal_cast",
    "ipuHardwareIsAvailable", "ipuHardwareVersion", "ipu_print_tensor", "isRunningOnIpu", "load",
    "nop", "optim", "recomputationCheckpoint", "removeBlocks", "serializedMatMul", "setLogLevel",
    "set_available_memory", "set_overlap_for_input", "set_overlap_for_output", "trainingModel",
]
