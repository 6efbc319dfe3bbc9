"""A run: device, policies by layer, places, events, the account, the report, advice, trials.

`machine` gives the run of a training by `ipu.learn`; front ends have their own `machine`.
"""

from ipu.run.native import NativeRun, machine
from ipu.run.run import OperationEvent, Run

__all__ = ["NativeRun", "OperationEvent", "Run", "machine"]
