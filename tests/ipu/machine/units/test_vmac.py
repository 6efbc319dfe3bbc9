"""The vector multiply-accumulate: where it rounds (differential)."""

from __future__ import annotations

import numpy as np

import fpsim as fp
from tests.fpsim.in_partials import matmul

HALF = fp.Context(fp.BINARY16)


def normal(shape, seed=0, context=HALF):
    return context.array(np.random.default_rng(seed).standard_normal(shape))


def test_the_vector_mac_rounds_into_half_once():
    """Its pass is the whole of K, where the AMP stores seven times."""
    a, b = normal((9, 100)), normal((100, 7), 1)
    wide = matmul(a, b, "VMAC_F16_F32", context=fp.Context(fp.BINARY32)).to(fp.BINARY16).values
    assert np.array_equal(matmul(a, b, "VMAC_F16_F16").values, wide)
    assert not np.array_equal(matmul(a, b, "AMP_F16_F16").values, wide)


def test_the_vector_mac_of_binary32_is_a_chain_of_fused_multiply_adds():
    single = fp.Context(fp.BINARY32)
    a, b = normal((1, 37), 2, single), normal((37, 1), 3, single)
    wanted = single.array(0.0)
    for k in range(37):
        wanted = single.fma(a[0, k], b[k, 0], wanted)
    assert float(matmul(a, b, "VMAC_F32_F32").values[0, 0]) == float(wanted)
