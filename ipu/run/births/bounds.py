"""Constants that are 1 in their format: operations that choose among operands hand them on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fpsim.array import Array
from ipu.run.births.birth import Birth, Origins
from ipu.run.births.elements import NOWHERE
from ipu.run.births.kinds import ONE

__all__ = ["bounding_ones"]


def bounding_ones(
    operation: str, array: Array, inherited: Sequence[Origins]
) -> dict[str, Birth]:
    """The constant that ones in a result come from, which chooses among its operands."""
    births = [origins[ONE] for origins in inherited if ONE in origins]
    values = np.asarray(array.carrier) if births else NOWHERE
    birth = next((b for b in births if (values == math.copysign(1, float(b.operation))).any()),
                 births[0] if (np.abs(values) == 1).any() else None)
    if birth is None:
        return {}
    birth.bounds = birth.bounds or operation
    return {ONE: birth}
