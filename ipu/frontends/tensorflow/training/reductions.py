"""How accumulated gradients are reduced, by the vendor's name.

Source    graphcore/tensorflow, tensorflow/python/ipu/gradient_accumulation.py.
"""

from __future__ import annotations

from typing import Self

from fpsim.records.by_name import EnumByName

__all__ = ["GradientAccumulationReductionMethod"]


class GradientAccumulationReductionMethod(EnumByName):
    """Sum, mean, or a mean that is kept up to date.

    >>> GradientAccumulationReductionMethod.parse("Running_Mean").value
    2
    """

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, reduction_method: object) -> Self:
        """A member, or the one of that name, in any case."""
        return super().parse(reduction_method)
