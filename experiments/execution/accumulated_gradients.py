"""Gradients of many micro-batches in one accumulator, beside their exact sum or mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16, BINARY32, Array
from ipu.experiments.lab.result import Row
from ipu.experiments.training.accumulation_dtype import AccumulatorWay
from ipu.learn.accumulate import Accumulation, Reduction
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl

__all__ = ["ACCUMULATORS", "accumulate", "compared"]


ACCUMULATORS = {
    "SUM in FP16": AccumulatorWay(Reduction.SUM),
    "SUM in FP16 + SR": AccumulatorWay(Reduction.SUM, stochastic=True),
    "MEAN in FP16": AccumulatorWay(Reduction.MEAN),
    "MEAN in FP16 + SR": AccumulatorWay(Reduction.MEAN, stochastic=True),
    "RUNNING_MEAN in FP16": AccumulatorWay(Reduction.RUNNING_MEAN),
    "SUM in FP32": AccumulatorWay(Reduction.SUM, BINARY32),
    "MEAN in FP32": AccumulatorWay(Reduction.MEAN, BINARY32),
    "RUNNING_MEAN in FP32": AccumulatorWay(Reduction.RUNNING_MEAN, BINARY32),
}


def accumulate(gradients: NDArray[np.float64], way: AccumulatorWay, device: Device) -> Array:
    """The accumulated gradient of one flat variable.

    Shapes    gradients (G, n), the result (n,)
    """
    variable = Variable(device.zeros(gradients.shape[1], BINARY16), device, "layer/weights")
    accumulator = Accumulation(len(gradients), way.reduction, way.dtype).start([variable])
    for gradient in gradients:
        accumulator = accumulator.add([(device.from_host(gradient, BINARY16), variable)])
    ((total, _),) = accumulator.pairs
    return total


def compared(gradients: NDArray[np.float64], way: AccumulatorWay, seed: int) -> Row:
    """The accumulated gradient beside the exact sum or mean.

    error        root mean square, relative to that of the exact gradient.
    lost         share of the entries that are 0, of those that should not be.
    overflows    operations that overflowed; saturated: entries that end at the largest value.
    """
    device = Device(control=FpCtl(esr=way.stochastic), seed=seed, count=True)
    values = accumulate(gradients, way, device).values.astype(np.float64)
    exact = gradients.sum(axis=0) / (1 if way.reduction is Reduction.SUM else len(gradients))
    wanted = exact != 0
    assert device.counts is not None
    return {
        "error": float(np.sqrt(((values - exact) ** 2).mean() / (exact**2).mean())),
        "lost": float((values[wanted] == 0).mean()),
        "overflows": device.counts.total("OVERFLOW"),
        "saturated": int(np.count_nonzero(np.abs(values) == way.dtype.max)),
        "entries": values.size,
    }
