"""Groups of a convolution as one product, where a group has few outputs.

A product of a group alone fills as many of sixteen columns as the group has outputs. Together the
groups fill them all: each output has left factors of its own, so the channels that the outputs see
stand side by side, and a term is as many numbers as there are outputs. Terms, calls and stores of
an output are those of its group's product.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import numpy as np

from fpsim.kernels.by_unit.terms import COLUMNS
from fpsim.products.jobs.windows import ZERO, Table, Target, Windows
from fpsim.records.geometry import Geometry
from fpsim.records.types import Carrier

__all__ = ["Beside"]

#: Outputs of a group up to which a product of its own wastes more than its channels repeated.
_FEW = COLUMNS // 4


class Beside:
    """Images whose channels stand once for every output that sees them.

    groups, n    of the convolution, and outputs of a group.

    Shapes    x (batch, height, width, channels); `x` (batch, height, width, channels of a group ·
              `width`), width the outputs of all groups up to whole panels.

    >>> x = np.arange(4.0, dtype=np.float32).reshape(1, 1, 1, 4)
    >>> Beside(x, groups=2, n=1).x.reshape(2, -1)[:, :3].tolist()    # two channels, two outputs
    [[0.0, 2.0, 0.0], [1.0, 3.0, 0.0]]
    """

    def __init__(self, x: Carrier, groups: int, n: int) -> None:
        *images, channels = x.shape
        outputs, channels = groups * n, channels // groups
        self.width = -(-outputs // COLUMNS) * COLUMNS
        self.x = x
        if channels > 1 or n > 1 or self.width > outputs:
            beside = np.zeros((*images, channels, self.width), x.dtype)
            by_group = np.swapaxes(x.reshape(*images, groups, channels), -1, -2)
            beside[..., :outputs] = np.repeat(by_group, n, axis=-1)
            self.x = beside.reshape(*images, channels * self.width)

    @staticmethod
    def pays(groups: int, n: int) -> bool:
        """Whether there are several groups of few outputs."""
        return groups > 1 and n <= _FEW

    def windows(
        self, shape: Geometry, table: Table, first: int = 0, *, turned: bool = False,
        target: Target | None = None,
    ) -> Windows:
        """The windows of all groups; table and first as those of one."""
        table = table.copy()
        table[table[:, 0] != ZERO, 2] *= self.width
        return Windows(self.x, shape, table, first * self.width, turned, target, lanewise=True)
