"""Inner products of long vectors: those of the engines of products, which have other kernels."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import fpsim as fp
from fpsim.products import long_dots
from fpsim.products.by_operation.chain import Chain
from fpsim.products.long_dots import is_long_dot
from fpsim.records.settings import Settings

CASES = [
    (fp.BINARY16, fp.RNE, {}), (fp.BINARY16, fp.RTN, {}), (fp.BINARY32, fp.RNE, {}),
    (fp.BINARY16, fp.RNE, {"subnormals": "flush_both"}),
]


def outcome(context, x, y, kahan):
    context.clear_flags()
    value = context.dot(x, y, kahan=kahan)
    return value.codes().tolist(), context.flags


@pytest.mark.parametrize("kahan", [False, True])
@pytest.mark.parametrize(("fmt", "rounding", "policy"), CASES, ids=str)
def test_values_and_flags_are_those_of_the_engines(fmt, rounding, policy, kahan, monkeypatch):
    rng = np.random.default_rng(4)
    monkeypatch.setattr(long_dots, "_CHUNK", 1000)
    for scale, special in ((1.0, None), (1e-4, None), (300.0, None), (1.0, np.inf), (1.0, np.nan)):
        context = fp.Context(fmt, rounding=rounding, **policy)
        numbers = rng.standard_normal((2, 5003)) * scale
        if special is not None:
            numbers[0, 4000] = special
        x, y = (context.array(row) for row in numbers)
        here = outcome(context, x, y, kahan)
        with monkeypatch.context() as patch:
            patch.setattr(long_dots, "_LEAST", 1 << 40)
            assert outcome(context, x, y, kahan) == here, (scale, special)


def test_a_trap_sees_the_flags():
    context = fp.Context(fp.BINARY16, traps=fp.Flags.OVERFLOW)
    x = fp.Context(fp.BINARY16).array(np.full(5000, 200.0)).to(context)
    with pytest.raises(fp.FloatingPointTrap, match="matmul raised OVERFLOW"):
        context.dot(x, x)


def test_which_products_these_are():
    plain, random = (Chain(Settings(fp.BINARY16, r), "separate") for r in (fp.RNE, fp.SR(4)))
    long, short = (1, 5000), (1, 50)
    assert is_long_dot(plain, long, long[::-1])
    for chain, a, b in (
        (plain, short, short[::-1]), (random, long, long[::-1]), (plain, (2, 5000), (5000, 1)),
        (plain, (1, 5000), (5000, 2)), (plain, (1, 1, 5000), (1, 5000, 1)),
        (plain._replace(name="fused"), long, long[::-1]),
    ):
        assert not is_long_dot(chain, a, b)


def test_memory_does_not_grow_with_the_vectors():
    context = fp.Context(fp.BINARY16)
    x = context.array(np.ones(1_000_000))
    context.dot(x[:5000], x[:5000])
    tracemalloc.start()
    try:
        context.dot(x, x)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
