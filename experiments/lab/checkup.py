"""Whether an installation computes the bits of its version: a few results, each with its digest.

Digests are of codes and flags, the same on every processor. They are published with a version: one
that differs here is a fault of the installation or of fpsim, never of rounding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.context import Context
from fpsim.quantizers import quantize
from fpsim.records.rounding import RNE, SR, Rounding
from ipu.feed.data import digits
from ipu.learn import SGD, Tensor, Trainer, dense, relu, reshape
from ipu.machine import MK2, Target

__all__ = ["CHECKS", "Check", "CheckResult", "findings", "training"]

Item = NDArray[np.unsignedinteger] | int
Items = Iterator[Item]

_SEED = 7


class Check(NamedTuple):
    """A computation and what its results hash to.

    compute    yields codes and flags, in order.
    digest     the first 16 hexadecimal digits of their SHA-256, as this version publishes them.
    """

    compute: Callable[[], Items]
    digest: str


class CheckResult(NamedTuple):
    """What a check gave here, beside what was published."""

    check: str
    digest: str
    published: str

    @property
    def is_equal(self) -> bool:
        return self.digest == self.published


def _operands(rows: int, columns: int) -> NDArray[np.float64]:
    """Numbers of many binades and both signs, made of whole numbers alone."""
    count = np.arange(rows * columns, dtype=np.int64)
    scrambled = count * 2654435761 % 4093 - 2046
    return np.ldexp(scrambled.astype(np.float64), -(count % 29)).reshape(rows, columns)


def _arithmetic(fmt: str, rounding: Rounding) -> Items:
    context = Context(fmt, rounding=rounding, seed=_SEED)
    x, y = context.array(_operands(16, 16)), context.array(_operands(16, 16).T)
    for result in (x + y, x * y, x / y, context.fma(x, y, y), context.sqrt(abs(x)), x.sum(axis=0)):
        yield result.codes()
    yield int(context.flags)


def _products(unit: str) -> Items:
    context = Context("binary16")
    x, y = (context.array(_operands(*shape) / 64) for shape in ((8, 48), (48, 8)))
    yield context.matmul(x, y, unit, to="binary32").codes()
    yield int(context.flags)


def _products_one_by_one() -> Items:
    context = Context("binary16", rounding=SR(), seed=_SEED)
    x, y = (context.array(_operands(*shape) / 64) for shape in ((24, 20), (20, 24)))
    yield context.matmul(x, y).codes()
    yield int(context.flags)


def _blocks(name: str, rounding: Rounding) -> Items:
    blocks = quantize(_operands(8, 64), name, rounding=rounding, seed=_SEED)
    yield blocks.codes
    yield np.asarray(blocks.scales).view(np.uint8)


def _network(x: Tensor) -> Tensor:
    return dense(relu(dense(reshape(x, shape=(x.shape[0], 64)), 16, "hidden")), 10, "output")


def training(policy: str, target: Target | str = MK2) -> Items:
    """The bits of the losses of three steps of a small network."""
    images = digits().learn
    trainer = Trainer(_network, SGD(0.1), policy=policy, seed=_SEED, target=target)
    for first in range(0, 96, 32):
        batch = images[first : first + 32]
        yield np.float64(trainer.step(batch.values, batch.labels)).reshape(1).view(np.uint64)


#: By name. `docs/platforms.md` says what a version promises of them.
CHECKS = {
    "arithmetic binary16 RNE": Check(partial(_arithmetic, "binary16", RNE), "0f55d25caa2eca2b"),
    "arithmetic binary16 SR": Check(partial(_arithmetic, "binary16", SR()), "c3e3c947c40cacc5"),
    "arithmetic binary32 RNE": Check(partial(_arithmetic, "binary32", RNE), "74ad847c17ab6879"),
    "arithmetic bfloat16 SR": Check(partial(_arithmetic, "bfloat16", SR()), "21fc24124cda6b50"),
    "arithmetic e4m3fn RNE": Check(partial(_arithmetic, "e4m3fn", RNE), "9cde70fae86f9156"),
    "products one by one SR": Check(_products_one_by_one, "939654c4a3bf0044"),
    "products AMP_F16_F32": Check(partial(_products, "AMP_F16_F32"), "a9c4c97e36e0e0df"),
    "products V100_F16_F32": Check(partial(_products, "V100_F16_F32"), "4a5fe6765b5ffdc9"),
    "products H100_F16_F32": Check(partial(_products, "H100_F16_F32"), "93caf384496283a1"),
    "blocks mxfp8 RNE": Check(partial(_blocks, "mxfp8", RNE), "c878798d6443d7f7"),
    "blocks nvfp4 SR": Check(partial(_blocks, "nvfp4", SR()), "3ebd8b51775dcb07"),
    "training fp16": Check(partial(training, "fp16"), "1883988337eee14d"),
}


def _digest(items: Items) -> str:
    total = hashlib.sha256()
    for item in items:
        codes = np.asarray(item)
        total.update(repr(codes.shape).encode())
        total.update(np.ascontiguousarray(codes).astype("<u8").tobytes())
    return total.hexdigest()[:16]


def findings() -> Iterator[CheckResult]:
    """Each check as it comes out here."""
    for name, check in CHECKS.items():
        yield CheckResult(name, _digest(check.compute()), check.digest)
