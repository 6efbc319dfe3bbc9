"""The simulated machine: targets, control registers, and the device that computes.

>>> from ipu import machine
>>> for target in (machine.MK1, machine.MK2, machine.BOW, machine.MK2_FP8):
...     print(target.name, target.tiles.value, f"{target.clock.value / 1e9:.2f} GHz")
mk1 1216 1.60 GHz
mk2 1472 1.32 GHz
bow 1472 1.85 GHz
mk2-fp8 1472 1.32 GHz
>>> machine.TARGETS["reference"] is machine.REFERENCE
True
>>> isinstance(machine.MK2, machine.Target), isinstance(
...     machine.MK2.instructions[0], machine.Instruction)
(True, True)
>>> device = machine.Device(planner=machine.Planner(available_memory_proportion=0.2))
>>> x = device.from_host([[1.0] * 4] * 4, "binary16")
>>> _ = device.matmul(x, x)
>>> isinstance(device.ledger, machine.Ledger), isinstance(device.ledger.last, machine.LedgerRow)
(True, True)

Control registers that frameworks and machines start with:

>>> for register in (machine.POWER_ON, machine.FRAMEWORK_DEFAULT, machine.POPLAR_STRUCT_DEFAULT):
...     print(f"{register.word:#x}")
0x0
0x0
0x7
>>> f"{machine.POPART_CHECKS.word:#x}", f"{machine.ALL_ON.word:#x}"
('0x100007', '0x180007')
"""

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
