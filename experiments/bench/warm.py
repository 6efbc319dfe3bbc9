"""Calls whose kernels most programs need: `fpsim warmup` makes them, packs of wheels hold them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial

import numpy as np

from fpsim.context import Context
from fpsim.linalg import matmul, rounded_matmul
from fpsim.products.by_operation import rules
from fpsim.products.by_unit import task
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, E4M3FN, E5M2
from fpsim.records.rounding import RNE, SR
from ipu import ops
from ipu.experiments.bench import gemm, train
from ipu.experiments.bench.timing import Call
from ipu.machine.device import Device

__all__ = ["ADDERS", "calls", "make_calls"]

#: Modules that ask whether the processor adds on ports of its own, which kernels are given.
ADDERS = (rules, task)

#: Units that most programs multiply by.
UNITS = ("AMP_F16_F32", "AMP_F16_F32.exact", "V100_F16_F32", "A100_F16_F32", "H100_F16_F32")

_FUNCTIONS = ("exp", "log", "tanh", "sigmoid", "rsqrt", "erf")


def _arithmetic(context: Context) -> None:
    x = context.array(np.linspace(0.5, 2.0, 64, dtype=np.float32))
    for y in (x, 1.5):
        for operation in (context.add, context.subtract, context.multiply, context.divide):
            operation(x, y)
    context.sqrt(x)
    context.fma(x, x, x)
    for value in (x, x.reshape(8, 8)):
        value.sum(axis=0)
        value.mean()


def _functions(context: Context) -> None:
    x = context.array(np.linspace(0.5, 2.0, 64, dtype=np.float32))
    for name in _FUNCTIONS:
        getattr(context, name)(x)


def _products(context: Context, unit: str | None) -> None:
    """Operands near 1, from 0 to 1, small, large, and few: kernels differ by what they meet."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((32, 32))
    spread = np.linspace(0, 1, normal.size).reshape(normal.shape)
    for values in (normal, spread, normal / 1024, normal * 64, normal[:8, :8]):
        x = context.array(values.astype(np.float32))
        if unit is None:
            rounded_matmul(x, x, context=context)
        else:
            matmul(x, x, unit=unit)


def _verbs(device: Device) -> None:
    for fmt in (BINARY16, BINARY32):
        x = device.from_host(np.linspace(-1.0, 2.0, 64).reshape(8, 8), fmt)
        device.cast(device.add(x, x), BINARY16)
        device.reduce_sum(device.multiply(x, x), (0,))
        device.maximum(x, x)
        device.reduce_max(x, 1)
        for _ in range(2):  # the second call runs as one
            ops.softmax.value(device, x)


def calls() -> Iterator[tuple[str, Call]]:
    """What to call, and what it is for."""
    for rounding in (RNE, SR()):
        for fmt in (BINARY16, BFLOAT16, BINARY32, E4M3FN, E5M2):
            context = Context(fmt, rounding=rounding, seed=0)
            yield f"arithmetic in {fmt.name}, {rounding.name}", partial(_arithmetic, context)
        yield f"functions, {rounding.name}", partial(
            _functions, Context(BINARY16, rounding=rounding, seed=0)
        )
    for row in gemm.ROWS:
        yield f"products: {row.kind}", gemm.call(row, 32)
    for fmt in (BINARY16, BFLOAT16):
        for rounding in (RNE, SR(13), SR()):
            context = Context(fmt, rounding=rounding, seed=0)
            yield f"products in {fmt.name}, {rounding.name}", partial(_products, context, None)
    for unit in UNITS:
        yield f"products through {unit}", partial(_products, Context(BINARY16), unit)
    yield "a device", partial(_verbs, Device())
    for network in train.NETWORKS:
        for preset in ("exact", "window"):
            yield f"training: {network}, {preset}", train.step_of(network, preset, 2)


def make_calls() -> Iterator[str]:
    """Make each call; what it was for."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        for name, call in calls():
            call()
            yield name
