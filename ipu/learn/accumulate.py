"""Gradient accumulation: the gradients of G mini-batches become one, in a chosen format.

The accumulator starts at zero; each gradient is scaled in its own format, then added:
accumulator = accumulator · kept + (gradient · share). SUM: no scaling. MEAN: share 1/G.
RUNNING_MEAN: kept n/(n+1), share 1/(n+1) for the n-th mini-batch from 0, both computed in binary32.
Factors are rounded to nearest into the format that they multiply, so a binary16 1/G is a rounded
one. Where a gradient is a sum of several, each summand is scaled first.

Source    Graphcore's TensorFlow, gradient_accumulation.py, pipelining_ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from fpsim.array import Array
from fpsim.records.by_name import EnumByName
from fpsim.records.formats import Format, find_number_format
from fpsim.state.processor import usual_arithmetic_in
from ipu.learn.address import accumulating
from ipu.learn.variables import Variable
from ipu.machine.device import Device

__all__ = ["Accumulation", "Accumulator", "Reduction", "added"]

#: Format of an accumulator: of its variable (None), this one, or the function's result.
Dtype = Format | str | Callable[[Variable], Format | str] | None


class Reduction(EnumByName):
    """The accumulated gradient: sum or mean of the gradients.

    >>> Reduction.parse("running_mean")
    <Reduction.RUNNING_MEAN: 2>
    """

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2



@dataclass(frozen=True)
@usual_arithmetic_in()
class Accumulation:
    """The number of mini-batches of one update, and the arithmetic of their sum.

    count       G, the number of mini-batches.
    reduction   a `Reduction` or its name.
    dtype       format of the accumulators: None (each variable's), a format or its name, or a
                function of the variable. The optimiser sees gradients in it.

    >>> Accumulation(8, "mean").effective_batch(32)
    256
    """

    count: int
    reduction: Reduction | str = Reduction.SUM
    dtype: Dtype = None

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int):
            raise TypeError(f"count={self.count!r} is not a number of mini-batches; use an integer")
        if self.count < 1:
            raise ValueError(f"count={self.count} is not a number of mini-batches; use 1 or more")
        object.__setattr__(self, "reduction", Reduction.parse(self.reduction))
        if isinstance(self.dtype, str):
            object.__setattr__(self, "dtype", find_number_format(self.dtype, "dtype"))
        if not (self.dtype is None or isinstance(self.dtype, Format) or callable(self.dtype)):
            raise TypeError(
                f"dtype={self.dtype!r} is not an accumulator's format; use None, a Format, or a "
                "function of the variable"
            )

    def format_for(self, variable: Variable) -> Format:
        """Format of that variable's accumulator."""
        dtype = self.dtype
        if dtype is None or isinstance(dtype, Format):
            return dtype or variable.dtype
        fmt = dtype(variable) if callable(dtype) else dtype
        if not isinstance(fmt, (Format, str)):
            raise TypeError(f"dtype({variable.name}) returned {fmt!r}; return a Format")
        return find_number_format(fmt, f"dtype({variable.name})")

    def effective_batch(self, batch: int) -> int:
        """Samples per update."""
        return batch * self.count

    def start(self, variables: Sequence[Variable]) -> Accumulator:
        """Accumulators of zeros."""
        zeros = tuple(v.device.zeros(v.shape, self.format_for(v)) for v in variables)
        return Accumulator(self, tuple(variables), zeros)

    def factors(self, n: int) -> tuple[float, float]:
        """Factors of the accumulator and of the gradient of mini-batch n."""
        if self.reduction is Reduction.RUNNING_MEAN:
            done, one = np.float32(n), np.float32(1)
            return float(done / (done + one)), float(one / (done + one))
        return 1.0, 1 / self.count if self.reduction is Reduction.MEAN else 1.0

    def __str__(self) -> str:
        assert isinstance(self.reduction, Reduction)
        if isinstance(self.dtype, Format):
            formats = self.dtype.name
        else:
            formats = "the variable's" if self.dtype is None else "by variable"
        return f"{self.reduction.name} of {self.count} in {formats}"


@dataclass(frozen=True)
@usual_arithmetic_in()
class Accumulator:
    """The gradients so far; adding returns a successor.

    n_added    mini-batches that are in it.
    """

    how: Accumulation
    variables: tuple[Variable, ...]
    values: tuple[Array, ...]
    n_added: int = 0

    def add(
        self, pairs: Sequence[tuple[Array | Sequence[Array], Variable]], more: int | None = None
    ) -> Accumulator:
        """With the gradients of one more mini-batch, each as a sum or as its summands.

        more    number of the mini-batch, where its gradients come in several calls.

        Rounding  a summand times its share once in its own format, and their sum once for each;
                  the cast into the accumulator's format, the product there and the sum once each.
        Raises    RuntimeError when all mini-batches are there already; ValueError for gradients of
                  other variables, or in another order.
        """
        if self.is_full:
            raise RuntimeError(
                f"all {self.how.count} mini-batches have been accumulated; apply them, then start "
                "again"
            )
        if [variable for _, variable in pairs] != list(self.variables):
            names = ", ".join(variable.name for _, variable in pairs)
            expected = ", ".join(variable.name for variable in self.variables)
            raise ValueError(f"pairs hold gradients of {names}; pass those of {expected}, in order")
        number = self.n_added if more is None else more
        decay, share = self.how.factors(number)
        values = []
        for value, variable, (gradient, _) in zip(self.values, self.variables, pairs, strict=True):
            summands = [gradient] if isinstance(gradient, Array) else gradient
            with accumulating(variable, number):
                values.append(added(value, variable.device, summands, decay, share))
        return replace(self, values=tuple(values), n_added=self.n_added + (more is None))

    @property
    def is_full(self) -> bool:
        """Whether every mini-batch is in it."""
        return self.n_added == self.how.count

    @property
    def pairs(self) -> list[tuple[Array, Variable]]:
        """(accumulated gradient, variable), in the accumulators' formats."""
        return list(zip(self.values, self.variables, strict=True))


def added(
    value: Array, device: Device, summands: Sequence[Array], decay: float, share: float
) -> Array:
    """value · decay + share · (the sum of the summands), in the format of value."""
    scaled = [device.multiply(g, share) if share != 1 else g for g in summands]
    gradient = reduce(device.add, scaled)
    if decay != 1:
        value = device.multiply(value, decay)
    return device.add(value, device.cast(gradient, value.format))
