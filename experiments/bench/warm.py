"""Calls whose kernels most programs need: `fpsim warmup` makes them, packs of wheels hold them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.context import Context
from fpsim.convenience import round_to
from fpsim.linalg import (
    conv2d,
    conv2d_input_gradient,
    conv2d_weight_gradient,
    matmul,
    rounded_matmul,
)
from fpsim.products.by_operation import rules
from fpsim.products.by_unit import task
from fpsim.records.formats import BFLOAT16, BINARY16, BINARY32, E4M3FN, E5M2, Format
from fpsim.records.rounding import RNE, RTZ, SR
from ipu import ops
from ipu.experiments.bench import gemm, train
from ipu.experiments.bench.timing import Call
from ipu.experiments.lab.checkup import CHECKS, training
from ipu.learn.address import Numbering
from ipu.machine import FpCtl
from ipu.machine.device import Device
from ipu.ops.updates import UPDATES
from ipu.ops.updates.together import at_once
from ipu.plan.collectives import reduce_sum
from ipu.run.exponents import count_exponents
from ipu.run.updates import Updates

__all__ = ["ADDERS", "ROWS", "RULES", "calls", "make_calls"]

#: Modules that ask whether the processor adds on ports of its own, which kernels are given.
ADDERS = (rules, task)

#: Units that most programs multiply by.
UNITS = ("AMP_F16_F32", "AMP_F16_F32.exact", "V100_F16_F32", "A100_F16_F32", "H100_F16_F32")

#: Rows of the table that run in one call, and the shapes of their operands.
ROWS = {
    ops.layer_norm: ((4, 8), (8,), (8,)), ops.softmax: ((4, 8),), ops.log_softmax: ((4, 8),),
    ops.gelu: ((4, 8),), ops.tanh: ((4, 8),), ops.sigmoid: ((4, 8),), ops.relu: ((4, 8),),
}
#: Updates, how many slots of the variable's shape they have, and their numbers.
RULES = {
    "native sgd": (1, {
        "rate": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 0.01, "dampening": 0.0,
        "maximize": False,
    }),
    "native adamw": (2, {
        "rate": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-4, "weight_decay": 0.01,
        "left1": 0.1, "left2": 0.01,
    }),
}

#: Policies that most programs name, beside those of `train.NETWORKS`.
POLICIES = ("fp16", "mixed", "bf16-mixed", "fp8-current", "mxfp8", "nvfp4", "mxfp4")

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


def _codes(context: Context) -> None:
    """Numbers to codes and back, from memory that may be written and that may not."""
    x = context.array(np.linspace(0.5, 2.0, 64, dtype=np.float32))
    for values in (x.values, x.values.copy()):
        context.wrap(values)
        round_to(values.astype(np.float32), context.format)
    codes = x.codes()
    context.unpack(codes)
    codes.flags.writeable = False
    context.unpack(codes)


def _functions(context: Context) -> None:
    x = context.array(np.linspace(0.5, 2.0, 64, dtype=np.float32))
    for name in _FUNCTIONS:
        getattr(context, name)(x)


def _products(context: Context, unit: str | None) -> None:
    """Operands of many kinds: kernels differ by what they meet.

    Near 1, from 0 to 1, small, large, larger, few; and long rows of ones, and of numbers whose sums
    are small, cancel or overflow.
    """
    rng = np.random.default_rng(0)
    normal, rows = rng.standard_normal((32, 32)), rng.standard_normal((32, 512))
    spread = np.linspace(0, 1, normal.size).reshape(normal.shape)
    squares = (normal, spread, normal / 1024, normal * 64, normal * 256, normal[:8, :8])
    long = (np.ones_like(rows), rows / 8192, rows, rows * 100)
    for a, b in [*((x, x) for x in squares), *((x, x.T) for x in long)]:
        fresh = context.replace(seed=0)
        x, y = (fresh.array(values.astype(np.float32)) for values in (a, b))
        # The second time flags are up, which kernels then do not look for.
        for _ in range(2):
            if unit is None:
                rounded_matmul(x, y, context=fresh)
            else:
                matmul(x, y, unit=unit)


def _hard_operand(context: Context) -> Array:
    """Infinities among its numbers, or NaNs where the format has no infinity."""
    values = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    values[::5, ::7] = np.inf
    return context.array(values)


def _hard_products(unit: str) -> None:
    """Operands with infinities and NaNs, by rows and by columns, which no fast path takes."""
    x = _hard_operand(Context(BINARY16))
    matmul(x[:, :8], x[:8], unit=unit)
    for y in (x, x.T.copy()):
        matmul(x, y, unit=unit)
        matmul(x.T, y.T, unit=unit)
    for channels in (1, 8):
        images = x.reshape(2, 8, 64 // channels, channels)
        weights = x.ravel()[: 72 * channels].reshape(3, 3, channels, 8)
        results = conv2d(images, weights, unit)
        conv2d_input_gradient(results, weights, unit, images.shape)
        conv2d_weight_gradient(images, results, unit, weights.shape)


def _verbs(device: Device) -> None:
    for fmt in (BINARY16, BINARY32):
        x = device.from_host(np.linspace(-1.0, 2.0, 64).reshape(8, 8), fmt)
        device.cast(device.add(x, x), BINARY16)
        device.reduce_sum(device.multiply(x, x), (0,))
        device.maximum(x, x)
        device.relu(x)
        device.select(x.carrier > 0, x)
        for values in (x, device.divide(x, 0.0)):
            device.reduce_max(values, 1)
            device.reduce_sum(values, (0,))


def _values(device: Device, fmt: Format, shape: tuple[int, ...]) -> Any:
    return device.from_host(np.linspace(0.1, 0.9, math.prod(shape)).reshape(shape), fmt)


def _rows(device: Device, fmt: Format) -> None:
    """Forward and backward, twice: what the first time has noted is one call the second time."""
    for row, shapes in [*ROWS.items()] * 2:
        y, saved = row.forward(device, *(_values(device, fmt, shape) for shape in shapes))
        for argument in range(len(row.vjps)):
            row.pull(argument, device, y, saved)


def _folds(device: Device) -> None:
    """Results so far, and rows that are added to others."""
    x = _values(device, BINARY32, (4, 8))
    for row in (ops.cumulative_sum, ops.cumulative_product):
        row.value(device, x, axis=1)
    ops.scatter_add.value(device, x, x, rows=np.arange(4) % 2)
    one = x.like(x.carrier[:, 0].copy())
    ops.scatter_add.value(device, one, one, rows=np.arange(4) % 2)


def _updates(device: Device, fmt: Format) -> None:
    for name, (n_slots, numbers) in RULES.items():
        w, g, *slots = (_values(device, fmt, (8,)) for _ in range(2 + n_slots))
        at_once(UPDATES[name], device, w, g, slots, numbers)


def _counts(device: Device, fmt: Format) -> None:
    """What is counted beside operations, and the operations with flags of every element."""
    _rows(device, fmt)
    _updates(device, fmt)
    _verbs(device)
    x = _values(device, fmt, (8,)).carrier
    count_exponents(x)
    Updates().add("", fmt, x, x, x)


def _replica_sums(esr: bool, fmt: Format) -> None:
    devices = [Device(control=FpCtl(esr=esr), seed=0) for _ in range(2)]
    numberings = [Numbering(device, replica) for replica, device in enumerate(devices)]
    reduce_sum([_values(device, fmt, (8,)) for device in devices], numberings, 0)


def _machine() -> Iterator[tuple[str, Call]]:
    """What training steps ask of a device, beside products."""
    for esr in (False, True):
        for fmt in (BINARY16, BINARY32):
            device = Device(control=FpCtl(esr=esr), seed=0)
            counting = Device(control=FpCtl(esr=esr), seed=0, count=True)
            how = f"{fmt.name}, {'SR' if esr else 'RNE'}"
            yield f"rows in one call, {how}", partial(_rows, device, fmt)
            yield f"updates in one call, {how}", partial(_updates, device, fmt)
            yield f"counted operations, {how}", partial(_counts, counting, fmt)
            yield f"sums over replicas, {how}", partial(_replica_sums, esr, fmt)
    yield "running sums and rows by index", partial(_folds, Device())


def calls() -> Iterator[tuple[str, Call]]:
    """What to call, and what it is for."""
    for rounding in (RNE, RTZ, SR()):
        for fmt in (BINARY16, BFLOAT16, BINARY32, E4M3FN, E5M2):
            context = Context(fmt, rounding=rounding, seed=0)
            yield f"arithmetic in {fmt.name}, {rounding.name}", partial(_arithmetic, context)
        yield f"functions, {rounding.name}", partial(
            _functions, Context(BINARY16, rounding=rounding, seed=0)
        )
    for row in gemm.ROWS:
        yield f"products: {row.kind}", gemm.call(row, 32)
    for fmt in (BINARY16, BFLOAT16, BINARY32, E4M3FN, E5M2):
        for rounding in (RNE, RTZ, SR(13), SR()):
            context = Context(fmt, rounding=rounding, seed=0)
            yield f"products in {fmt.name}, {rounding.name}", partial(_products, context, None)
            x = _hard_operand(context)
            yield f"hard products in {fmt.name}, {rounding.name}", partial(
                rounded_matmul, x, x, context=context)
    for unit in UNITS:
        yield f"products through {unit}", partial(_products, Context(BINARY16), unit)
        yield f"hard products through {unit}", partial(_hard_products, unit)
    for fmt in (BINARY16, BFLOAT16, BINARY32, E4M3FN, E5M2):
        yield f"codes of {fmt.name}", partial(_codes, Context(fmt))
    yield "a device", partial(_verbs, Device())
    yield from _machine()
    for network in train.NETWORKS:
        for preset in ("exact", "window"):
            yield f"training: {network}, {preset}", train.step_of(network, preset, 2)
    for policy in POLICIES:
        yield f"training: {policy}", partial(
            _exhaust, partial(training, policy, "hypothetical")
        )
    for name, check in CHECKS.items():
        yield f"check: {name}", partial(_exhaust, check.compute)


def _exhaust(compute: Callable[[], Iterator[object]]) -> None:
    for _ in compute():
        pass


def make_calls() -> Iterator[str]:
    """Make each call; what it was for."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        for name, call in calls():
            call()
            yield name
