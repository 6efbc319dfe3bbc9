"""IPUConfig: what the first programs need."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace

from ipu.frontends.tensorflow.engine.machine import configure
from ipu.machine.control import FpCtl

__all__ = ["IPUConfig", "StochasticRoundingBehaviour"]


class StochasticRoundingBehaviour(Enum):
    """Where stochastic rounding is on."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2


class IPUConfig:
    """Settings of the machine."""

    def __init__(self) -> None:
        self.auto_select_ipus = 1
        self.floating_point_behaviour = SimpleNamespace(
            esr=StochasticRoundingBehaviour.OFF, nanoo=False, inv=False, div0=False, oflo=False
        )

    def configure_ipu_system(self) -> None:
        """Make a machine."""
        b = self.floating_point_behaviour
        esr = b.esr is not StochasticRoundingBehaviour.OFF
        configure(FpCtl(inv=b.inv, div0=b.div0, oflo=b.oflo, esr=esr, nanoo=b.nanoo))
