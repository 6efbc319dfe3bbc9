"""Running totals as programs report them, beside what they should be.

The tutorial's programs carry the total of the losses through the device loop in the format that
they compute in. In binary16 such a total stalls, and the reported loss is then a rounding artefact.

Source    Graphcore's TensorFlow 1 tutorial on half precision (the loop's carried total).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from fpsim.state.processor import usual_arithmetic_in
from ipu.machine.device import Device

__all__ = ["RunningLoss"]


@usual_arithmetic_in()
class RunningLoss:
    """Sum of losses in one format on the device, and the same in binary32 beside it.

    Rounding  each loss once into `fmt` (it is binary32 before), each addition once; the means are
              divisions on the host.

    >>> from fpsim import BINARY16
    >>> total = RunningLoss(Device(), BINARY16)
    >>> for _ in range(1875):
    ...     total.add(Device().from_host(0.4, BINARY32))
    >>> print(total)
    loss 0.458 (float32 total 0.400)
    """

    def __init__(self, device: Device, fmt: Format | str) -> None:
        self.device = device
        self.total = device.zeros((), fmt)
        self._single = np.float32(0)
        self.n = 0

    def add(self, loss: Array) -> None:
        """One more batch."""
        with self.device.naming("running loss"):
            self.total = self.device.add(self.total, self.device.cast(loss, self.total.format))
        self._single = self._single + np.float32(loss.values)
        self.n += 1

    @property
    def mean(self) -> float:
        """What the program reports: the device's total over the number of batches."""
        return float(self.total) / self.n if self.n else float("nan")

    @property
    def float32_mean(self) -> float:
        """The binary32 total over the number of batches."""
        return float(self._single) / self.n if self.n else float("nan")

    def clear(self) -> None:
        """A new epoch."""
        self.restore({"total": 0.0, "single": 0.0, "n": 0})

    @property
    def numbers(self) -> dict[str, float | int]:
        """What a checkpoint keeps."""
        return {"total": float(self.total), "single": float(self._single), "n": self.n}

    def restore(self, numbers: Mapping[str, float | int]) -> None:
        """Go on from what `numbers` gave."""
        self.total = self.device.from_host(numbers["total"], self.total.format)
        self._single = np.float32(numbers["single"])
        self.n = int(numbers["n"])

    def __str__(self) -> str:
        if self.total.format == BINARY32:
            return f"loss {self.mean:.3f}"
        return f"loss {self.mean:.3f} (float32 total {self.float32_mean:.3f})"
