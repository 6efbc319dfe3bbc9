"""Blocks: codes, scales and flags of quantisers, values, and products through units of blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fpsim import RNE, RTP, SR, DelayedScale, quantize
from fpsim.state.processor import usual_arithmetic
from tests.digests.contexts import seeded
from tests.digests.operands import SEED
from tests.digests.registry import Item


@usual_arithmetic
def numbers(shape: tuple[int, int], factor: int = 1) -> list[np.ndarray]:
    """Normal ones, and all binades with zeros of both signs, an infinity and a NaN."""
    rng = np.random.default_rng(SEED)
    wide = rng.integers(-255, 256, shape) * np.exp2(rng.integers(-150, 119, shape).astype(float))
    wide = wide.astype(np.float32)
    wide[0, :3] = -0.0, np.inf, np.nan
    return [rng.standard_normal(shape).astype(np.float32) * np.float32(factor), wide]


def quantised(name: str) -> Iterator[Item]:
    """Both axes, three roundings, a transform, with and without flags."""
    for x in numbers((128, 256)):
        for mode, axis in ((RNE, 1), (SR(8), 1), (SR(8), 0), (RTP, 1)):
            for flags in (False, True):
                q = quantize(x, name, axis=axis, rounding=mode, seed=5, flags=flags)
                yield q.codes
                yield np.ascontiguousarray(q.scales).view(np.uint8)
                if flags:
                    assert q.element_flags is not None
                    assert q.block_flags is not None
                    yield from (q.element_flags, q.block_flags, int(q.flags or 0))
        yield q.values.view(np.uint64)
        yield quantize(x, name, transform="rht16").codes


def block_products(unit: str, name: str) -> Iterator[Item]:
    """Of both kinds of numbers; into binary32, and stochastically into bfloat16."""
    for x, y in zip(numbers((19, 256)), numbers((35, 256)), strict=True):
        a, b = quantize(x, name), quantize(y, name).T
        for context in (seeded("binary32"), seeded("bfloat16", SR(8))):
            yield context.matmul(a, b, unit)
            yield int(context.flags)


def delayed() -> Iterator[Item]:
    """Scales that follow what numbers were."""
    state = DelayedScale(length=3)
    for k in range(6):
        q, state = state.quantize(numbers((8, 64), k + 1)[k % 2], SR(8), seed=k)
        yield q.codes
        yield state.scale
