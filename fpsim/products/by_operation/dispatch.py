"""Products rounded after every multiplication and addition: the engines, fastest first.

acc = fl(a0 b0), then acc = fl(acc + fl(ak bk)), terms in ascending order; `fused` rounds once per
term, `kahan` compensates the sum of the rounded products.

Source    docs/semantics.md §2 (places) and §4 (order).
"""

from __future__ import annotations

import numpy as np

from fpsim.kernels.by_operation.general import CHAINS
from fpsim.products.by_operation.calls import Bits
from fpsim.products.by_operation.chain import Chain
from fpsim.products.by_operation.fast import run_macs
from fpsim.products.by_operation.general import run_general
from fpsim.products.jobs.job import Job, around_specials, matrices, run
from fpsim.records.types import Carrier, ElementFlags, Shape
from fpsim.state.draws import Places

__all__ = ["ENGINES", "multiply", "rounding_places"]


def rounding_places(name: str, k: int) -> range:
    """Rounding places of an output of a chain over k terms."""
    return range(CHAINS[name] * k)


def multiply(
    chain: Chain, a: Carrier, b: Carrier, shape: Shape, places: Places, *, watched: bool
) -> tuple[Carrier, int, ElementFlags | None]:
    """Values, flags, and the flags of each output where they are `watched`.

    Shapes    a (..., M, K), b (..., K, N), shape (..., M, N).
    """
    values = np.zeros(shape, a.dtype)
    element_flags = np.zeros(shape, np.uint8) if watched else None
    if a.ndim == b.ndim == 2:
        job = Job(chain, a, b, values, element_flags, places, fresh=True)
        run(ENGINES, job)
        return values, job.flags, element_flags
    flags = 0
    for job in matrices(chain, a, b, values, element_flags, places, fresh=True):
        run(ENGINES, job)
        flags |= job.flags
    return values, flags, element_flags


def _fast(job: Job) -> bool:
    """Kernels that report the flags of the product, not of each output."""
    chain: Chain = job.settings
    assert isinstance(job.a, np.ndarray)
    if job.element_flags is not None or chain.name == "kahan":
        return False
    bits = None
    if job.places.active:
        _, _, seed, number, first, _ = job.places.random
        if job.places.low or first:
            return False
        bits = Bits(int(seed), int(number))
    outcome = run_macs(chain.settings, chain.name == "fused", job.a, job.b, bits, chain.raised)
    if outcome is None:
        return False
    job.values[...], flags = outcome
    job.flags |= flags
    return True


def _around_specials(job: Job) -> bool:
    if job.element_flags is not None or job.settings.name == "kahan":
        return False
    return around_specials(job, [_fast], run_general)


ENGINES = [_fast, _around_specials, run_general]
