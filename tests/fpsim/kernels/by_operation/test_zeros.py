"""The sign of zero results against a chain of numpy's float16 (corners, law)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.kernels.status_register import HAS_STATUS
from fpsim.products.by_operation.bounds import find_lane, measure
from fpsim.products.by_operation.calls import deterministic_call
from fpsim.products.by_operation.rules import mac_rules
from fpsim.records.settings import Settings

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

#: Numbers whose products are zeros of both signs, underflow to them, or cancel.
FEW = np.float32([0.0, -0.0, 2.0**-13, -(2.0**-13), 1.0, -1.0])


def result(a, b, mode=fp.RNE):
    product = measure(mac_rules(Settings(fp.BINARY16, mode), False), a, b)
    out = np.full((len(a), b.shape[1]), np.nan, np.float32)
    deterministic_call(product, find_lane(product))(out, 0, len(a), 0)
    return out


def by_numpy(a, b):
    a, b = a.astype(np.float16), b.astype(np.float16)
    total = a[:, :1] * b[0]
    for k in range(1, len(b)):
        total = total + a[:, k, None] * b[k]
    return total.astype(np.float32)


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_zeros_have_the_sign_of_a_chain_of_float16(k):
    rng = np.random.default_rng(k)
    a, b = rng.choice(FEW, (37, k)), rng.choice(FEW, (k, 71))
    a[::2], b[:, ::2] = np.abs(a[::2]), -np.abs(b[:, ::2])
    wanted = by_numpy(a, b)
    zeros = wanted[wanted == 0]
    assert 0 < np.signbit(zeros).sum() < zeros.size
    assert result(a, b).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("last", [0, 1, 7, 8, 9, 15, 16, 17, 29])
def test_one_product_of_the_other_sign_is_enough(last):
    """A column of products -0 with one +0 in place `last`; beneath RTN the other way round."""
    a = np.full((5, 30), 1.0, np.float32)
    b = np.full((30, 40), -0.0, np.float32)
    b[last, 3::2] = 0.0
    for mode, sign in ((fp.RNE, 1), (fp.RTZ, 1), (fp.RTN, -1)):
        zeros = result(a, sign * b, mode)
        assert not zeros.any()
        alike = np.signbit(zeros) == (sign > 0)
        assert alike[:, :3].all()
        assert not alike[:, 3::2].any()


def test_a_difference_of_equal_numbers_is_the_zero_of_the_mode():
    a, b = np.float32([[1.0, -1.0], [-1.0, -1.0]]), np.float32([[3.0], [3.0]])
    assert not np.signbit(result(a, b)[0, 0])
    assert np.signbit(result(a, b, fp.RTN)[0, 0])
    assert result(a, b)[1, 0] == -6
