"""Products rounded after every operation by the kernel that runs every format, mode and policy.

Source    docs/semantics.md §2 (places) and §4 (order).
"""

from __future__ import annotations

import numpy as np

from fpsim.elementwise.constants import KernelPlan, exact_width, plan
from fpsim.kernels.by_operation.general import CHAINS, RoundedVariant, rounded_kernel
from fpsim.kernels.by_operation.sums import (
    COLUMN_BLOCK,
    WORDS_GIVEN,
    WORDS_HALF,
    WORDS_NONE,
    WORDS_WHOLE,
)
from fpsim.kernels.elementwise.step import FLAGS_EACH, FLAGS_STICKY
from fpsim.products.by_operation.chain import Chain
from fpsim.products.by_operation.panels import column_panels
from fpsim.products.jobs.job import Job, to_read
from fpsim.records.types import Words
from fpsim.state.draws import Places
from fpsim.state.publish import fold
from fpsim.state.threads import run_blocks

__all__ = ["run_general"]

#: Multiply-adds below which a second thread costs more than it gives.
_SMALLEST = 1 << 16

_NO_WORDS = np.zeros((1, COLUMN_BLOCK), np.uint32)


def run_general(job: Job) -> bool:
    """One matrix product of any operands in any chain."""
    chain: Chain = job.settings
    assert isinstance(job.a, np.ndarray)
    a, b = to_read(np.ascontiguousarray(job.a)), column_panels(job.b, COLUMN_BLOCK)
    (m, n), settings = job.values.shape, chain.settings
    product, total = (
        plan(name, settings, exact_width(name, settings, a.itemsize))
        for name in ("multiply", "fma" if chain.name == "fused" else "add")
    )
    # Infinities times the zeros that fill the last panel are none of the product's.
    with_flags = job.element_flags is not None or (
        n % COLUMN_BLOCK > 0 and not bool(np.isfinite(a).all())
    )
    words, rows = _words(job.places, product)
    loop = rounded_kernel(
        _variant(chain, product, FLAGS_EACH if with_flags else FLAGS_STICKY, words)
    )
    out = np.zeros((m, len(b) * COLUMN_BLOCK), a.dtype)
    element_flags = np.zeros(out.shape, np.uint8)
    _, stride, seed, number, first, _ = job.places.random

    def work(begin: int, end: int) -> int:
        part = slice(begin, end)
        flags: int = loop(
            a[part], b, out[part], element_flags[part], rows, product.constants, total.constants,
            first + begin * stride, stride, seed, number,
        )
        return flags

    flags = run_blocks(work, 0, m, max(1, _SMALLEST // b[..., 0].size), 4)
    job.values[...] = out[:, :n]
    job.flags |= fold(element_flags[:, :n]) if with_flags else flags
    if job.element_flags is not None:
        job.element_flags[...] = element_flags[:, :n]
    return True


def _variant(chain: Chain, product: KernelPlan, level: int, words: int) -> RoundedVariant:
    return RoundedVariant(
        list(CHAINS).index(chain.name), product.mode, level, product.flush, product.one_zero, words,
        product.residual,
    )


def _words(places: Places, product: KernelPlan) -> tuple[int, Words]:
    """Where the kernel finds random bits; integers R with room beyond the last output."""
    if not places.active:
        return WORDS_NONE, _NO_WORDS
    if not places.low:
        return WORDS_WHOLE if product.whole_words else WORDS_HALF, _NO_WORDS
    rows = places.random[0]
    return WORDS_GIVEN, np.pad(rows, ((0, 0), (0, COLUMN_BLOCK)))
