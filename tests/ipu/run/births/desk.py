"""Operations on a device whose results are told to births."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16
from ipu.machine import Device, FpCtl
from ipu.run.births.births import Births

NET = "net", "forward", 3


class Desk:
    """Operations on a device whose results are told with their flags."""

    def __init__(self, **control):
        self.device = Device(control=FpCtl(**control), count=True)
        self.births = Births()

    def array(self, *values):
        return self.device.from_host(np.array(values, np.float32), BINARY16)

    def of(self, verb, *operands, name=None, where=NET):
        before = self.flags()
        result = getattr(self.device, verb)(*operands)
        flags = {k: n - before.get(k, 0) for k, n in self.flags().items() if n > before.get(k, 0)}
        arrays = [x for x in operands if hasattr(x, "carrier")]
        self.births.see(name or verb, where, result, arrays, flags)
        return result

    def flags(self):
        names = ("OVERFLOW", "UNDERFLOW", "INVALID", "DIVBYZERO")
        return {name: self.device.counts.total(name) for name in names}

    def rows(self):
        return [(b.kind, b.operation, b.count) for b in self.births]
