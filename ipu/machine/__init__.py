"""The simulated machine: targets, control registers, and the device that computes."""

from ipu.machine.control import (
    ALL_ON,
    FRAMEWORK_DEFAULT,
    POPART_CHECKS,
    POPLAR_STRUCT_DEFAULT,
    POWER_ON,
    FpCtl,
    FpSts,
)
from ipu.machine.cost.ledger import Ledger, LedgerRow
from ipu.machine.cost.planner import Planner
from ipu.machine.device import Device
from ipu.machine.instructions import Instruction
from ipu.machine.target import (
    BOW,
    HYPOTHETICAL,
    MK1,
    MK2,
    MK2_FP8,
    REFERENCE,
    TARGETS,
    Target,
    find_target,
)

__all__ = [
    "ALL_ON", "BOW", "FRAMEWORK_DEFAULT", "HYPOTHETICAL", "MK1", "MK2", "MK2_FP8", "POPART_CHECKS",
    "POPLAR_STRUCT_DEFAULT", "POWER_ON", "REFERENCE", "TARGETS", "Device", "FpCtl", "FpSts",
    "Instruction", "Ledger", "LedgerRow", "Planner", "Target", "find_target",
]
