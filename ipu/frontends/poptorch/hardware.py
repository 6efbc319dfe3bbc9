"""What programs ask of the system: hardware, versions, messages.

There is no hardware: `ipuHardwareIsAvailable` is False, and models run all the same.

Source    Graphcore's PopTorch, python/logging.py and its user guide.
"""

from __future__ import annotations

import logging

from ipu.frontends.poptorch.enums import LogLevel

__all__ = [
    "ipuHardwareIsAvailable", "ipuHardwareVersion", "isRunningOnIpu", "setLogLevel",
]

_LEVELS = {
    LogLevel.TRACE: logging.DEBUG, LogLevel.DEBUG: logging.DEBUG, LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING, LogLevel.ERR: logging.ERROR, LogLevel.OFF: logging.CRITICAL + 1,
}


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Whether there are IPUs: there are none, every model is simulated.

    >>> ipuHardwareIsAvailable()
    False
    """
    return False


def ipuHardwareVersion() -> int:
    """The version of the hardware: 0, for there is none; Mk2 is simulated.

    >>> ipuHardwareVersion()
    0
    """
    return 0


def isRunningOnIpu() -> bool:
    """Whether a model of PopTorch runs now.

    >>> isRunningOnIpu()
    False
    >>> import torch
    >>> class Net(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x + 1 if isRunningOnIpu() else x
    >>> from ipu.frontends.poptorch import inferenceModel
    >>> inferenceModel(Net())(torch.zeros(1)), Net()(torch.zeros(1))
    (tensor([1.]), tensor([0.]))
    """
    from ipu.frontends.poptorch.blocks import listener

    return listener() is not None


def setLogLevel(level: str | int) -> None:
    """How much the logger `poptorch` tells: "TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF".

    >>> setLogLevel("ERR")
    >>> logging.getLogger("poptorch").level == logging.ERROR
    True
    """
    names = {member.name: member for member in LogLevel}
    if isinstance(level, str) and level in names:
        log_level = names[level]
    elif isinstance(level, int) and level in {int(member) for member in LogLevel}:
        log_level = LogLevel(level)
    else:
        raise ValueError(f"level={level!r} is not known; use one of {', '.join(names)}")
    logger = logging.getLogger("poptorch")
    logger.setLevel(_LEVELS[log_level])
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
