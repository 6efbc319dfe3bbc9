"""The device: its verbs, products, registers and the numbers of its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from fpsim import BINARY16, BINARY32, F143, F152, Array, Format
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from tests.digests.contexts import table, trap
from tests.digests.convolutions import GEOMETRIES
from tests.digests.operands import KINDS, SEED, Carrier, factors, matrix, operands, reals
from tests.digests.registry import Item
from tests.digests.units import LEFT, RIGHT

CONTROLS = {
    "off": FpCtl(), "esr": FpCtl(esr=True), "nanoo": FpCtl(nanoo=True),
    "esr+nanoo": FpCtl(esr=True, nanoo=True), "rtz": FpCtl(rnd=3),
}
VERBS = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "sqrt": 1, "exp": 1, "log": 1, "tanh": 1,
    "sigmoid": 1, "rsqrt": 1, "erf": 1,
}


def now(device: Device) -> tuple[int, int]:
    """Status register and number of the next stochastic operation."""
    return device.status.word, device.context(BINARY16).operation


def on(device: Device, fmt: Format, values: Carrier) -> Array:
    return device.context(fmt).wrap(values)


def elementwise(device: Device) -> Iterator[Item]:
    """Verbs that round, in every format of the target."""
    for fmt in device.target.formats:
        for name, count in VERBS.items():
            for group in operands(fmt, count)[-3:]:
                device.clear_status()
                yield getattr(device, name)(*(on(device, fmt, x) for x in group))
                yield now(device)
        x = on(device, fmt, operands(fmt, 1)[-2][0])
        for target in device.target.formats:
            if target != fmt:
                yield device.cast(x, target)
        yield device.to_integers(x, "int32")
        yield device.from_host(reals(fmt), fmt)
        rows = on(device, fmt, matrix(fmt, (6, 9, 5), "ordinary", np.random.default_rng(SEED)))
        yield device.reduce_sum(rows, (0, 2))
        yield device.reduce_sum(rows, 1, scale=0.3)
        yield device.reduce_sum(rows, -1, BINARY32)
        yield now(device)


def exact_verbs(device: Device) -> Iterator[Item]:
    """Verbs that round nothing, and masks."""
    rng = np.random.default_rng(SEED)
    for fmt in device.target.formats:
        for x, y in (operands(fmt, 2)[i] for i in (0, 5, 8, 9)):
            device.clear_status()
            a, b = on(device, fmt, x), on(device, fmt, y)
            yield device.maximum(a, b)
            yield device.negative(a)
            yield device.relu(a)
            yield device.select(np.arange(a.size) % 3 == 0, a)
            yield device.reduce_max(a.reshape(1, -1), 1)
            yield now(device)
        for kind in ("ordinary", "special"):
            rows = on(device, fmt, matrix(fmt, (7, 11), kind, rng))
            yield from (device.relu(rows), device.reduce_max(rows, 0), device.reduce_max(rows, -1))
    yield device.random_mask((9, 13), 0.3)
    yield device.random_mask((40,), 0.999)
    yield now(device)


def device_products(device: Device, formats: list[Format]) -> Iterator[Item]:
    """Products and convolutions by the device's choice of the unit."""
    for fmt, kind in product(formats, KINDS):
        rng = np.random.default_rng(SEED)
        device.clear_status()
        a, b = (on(device, fmt, v.values) for v in factors(fmt, fmt, kind, LEFT, RIGHT))
        yield device.matmul(a, b)
        yield device.matmul(a, b, k_split=2)
        outs = (BINARY16, BINARY32) if fmt.bits > 8 else (BINARY16,)
        yield from (device.matmul(a, b, to=out) for out in outs)
        if fmt.bits <= 8:
            yield device.matmul(a, b, scale=4)
        for stride, padding, groups, channels, outputs, size in GEOMETRIES[:3]:
            options = {"stride": stride, "padding": padding, "groups": groups}
            x = on(device, fmt, matrix(fmt, (2, 6, 7, channels), kind, rng))
            w = on(device, fmt, matrix(fmt, (*size, channels // groups, outputs), kind, rng))
            y = device.conv2d(x, w, **options)
            g = on(device, fmt, matrix(fmt, y.shape, kind, rng))
            yield y
            yield device.conv2d_input_gradient(g, w, x.shape, **options)
            yield device.conv2d_weight_gradient(x, g, w.shape, **options)
        yield now(device)


def device_case(part: str, target: str, control: FpCtl, options: dict[str, Any]) -> Iterator[Item]:
    device = Device(target, control, seed=SEED, **options)
    if part == "elementwise":
        yield from elementwise(device)
    elif part == "exact":
        yield from exact_verbs(device)
    else:
        yield from device_products(device, list(device.target.formats))
    if device.counts is not None:
        yield from table(device.counts)


def device_registers() -> Iterator[Item]:
    """The control register written between operations, scopes of rounding, and traps."""
    device = Device("mk2", seed=SEED)
    x = on(device, BINARY16, operands(BINARY16, 1)[-2][0])
    y = on(device, BINARY16, operands(BINARY16, 1)[-1][0])
    small = on(device, BINARY16, operands(BINARY16, 2)[-1][0])
    z = on(device, BINARY16, operands(BINARY16, 2)[-1][1])
    for control in (*CONTROLS.values(), FpCtl(inv=True), FpCtl(div0=True), FpCtl(oflo=True)):
        device.control = control
        device.clear_status()
        for verb, pair in product(("add", "multiply", "divide"), ((small, z), (x, x), (y, y))):
            with device.naming("layer"):
                yield from trap(lambda v=verb, p=pair: getattr(device, v)(*p))
            yield now(device)
        with device.rounding(True):
            yield device.add(small, z)
        yield now(device)
        yield device.add(small, z)
        yield control.word


def device_numbering() -> Iterator[Item]:
    """Which verbs take a number."""
    device = Device("mk2-fp8", FpCtl(esr=True), seed=SEED)
    for fmt in (BINARY16, F143):
        x = on(device, fmt, matrix(fmt, (4, 3), "ordinary", np.random.default_rng(SEED)))
        none = device.zeros((0, 3), fmt)
        calls: list[Callable[[], Any]] = [
            partial(device.relu, x), partial(device.maximum, x, x), partial(device.negative, x),
            partial(device.reduce_max, x, 0), partial(device.reduce_sum, x[:1], 0),
            partial(device.add, none, none), partial(device.cast, x, BINARY32),
            partial(device.cast, x, fmt), partial(device.cast, none, F152),
            partial(device.select, x.values > 0, x), partial(device.random_mask, (3,), 0.5),
            partial(device.random_mask, (0,), 0.5), partial(device.exp, none),
            partial(device.to_integers, x, "int32"), partial(device.matmul, x, x.T, to=BINARY16),
            partial(device.matmul, x[:, :0], x.T[:0]), partial(device.relu, none),
        ]
        for call in calls:
            yield call()
            yield now(device)
            yield device.add(x, x)
