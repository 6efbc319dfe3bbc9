"""Hadamard transforms: the loop against single operations, and what they are (differential)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.blocks.transforms import stage_by_stage, transformed
from fpsim.records.transforms import Transform, find_transform
from tests.fpsim.elementwise.blocks.test_quantise import adversarial

KINDS = [
    find_transform("rht16"), find_transform("h32"), Transform.drawn(64, seed=3),
    Transform.drawn(128), replace(find_transform("rht16"), result=None, name="binary32"),
]


@pytest.mark.parametrize("transform", KINDS, ids=str)
def test_the_loop_rounds_as_operations_do(transform):
    rng = np.random.default_rng(1)
    for x in (rng.standard_normal((33, 256)).astype(np.float32), adversarial(rng, (40, 256))):
        one, other = transformed(x, transform), stage_by_stage(x, transform)
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize("size", [2, 8, 16, 64])
def test_it_is_the_orthogonal_matrix_of_sylvester(size):
    transform = Transform("h", size, result=None)
    matrix = transformed(np.eye(size, dtype=np.float32), transform).astype(np.float64)
    sylvester = np.ones((1, 1))
    while len(sylvester) < size:
        sylvester = np.block([[sylvester, sylvester], [sylvester, -sylvester]])
    np.testing.assert_allclose(matrix, sylvester / np.sqrt(size), rtol=1e-6)
    signs = Transform.drawn(size, seed=5).signs
    turned = transformed(np.eye(size, dtype=np.float32), replace(transform, signs=signs))
    np.testing.assert_allclose(turned, np.diag(signs) @ sylvester / np.sqrt(size), rtol=1e-6)


def test_a_product_of_transformed_operands_stays():
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((8, 64)).astype(np.float32) for _ in range(2))
    exact = replace(Transform.drawn(64, seed=9), result=None)
    turned = transformed(a, exact).astype(float) @ transformed(b, exact).astype(float).T
    np.testing.assert_allclose(turned, a.astype(float) @ b.T, atol=1e-4)
    q = [fp.quantize(v, "nvfp4", transform="rht16").values for v in (a, b)]
    plain = a.astype(float) @ b.T
    assert np.linalg.norm(q[0] @ q[1].T - plain) < 0.2 * np.linalg.norm(plain)


def test_results_are_bfloat16_and_bad_records_are_refused():
    x = np.random.default_rng(3).standard_normal((4, 32)).astype(np.float32)
    assert (transformed(x, find_transform("rht16")).view(np.uint32) & 0xFFFF == 0).all()
    for bad in ({"size": 12}, {"size": 4, "signs": (1, 1)}, {"size": 4, "signs": (1, 0, 1, 1)}):
        with pytest.raises(ValueError, match=next(iter(reversed(bad)))):
            Transform("bad", **bad)
