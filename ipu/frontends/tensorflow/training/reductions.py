"""How accumulated gradients are reduced, by the vendor's name.

Source    graphcore/tensorflow, tensorflow/python/ipu/gradient_accumulation.py.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["GradientAccumulationReductionMethod"]


class GradientAccumulationReductionMethod(Enum):
    """Sum, mean, or a mean that is kept up to date.

    >>> GradientAccumulationReductionMethod.parse("Running_Mean").value
    2
    """

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(
        cls, reduction_method: GradientAccumulationReductionMethod | str
    ) -> GradientAccumulationReductionMethod:
        """A member, or its name in any case.

        Raises    ValueError for anything else.
        """
        if isinstance(reduction_method, cls):
            return reduction_method
        if isinstance(reduction_method, str) and reduction_method.upper() in cls.__members__:
            return cls[reduction_method.upper()]
        raise ValueError(
            f"Cannot parse {reduction_method!r} as one of GradientAccumulationReductionMethod; "
            f"use {', '.join(cls.__members__)}"
        )
