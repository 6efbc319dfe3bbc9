"""Products of a stack against the same products one by one (differential), and who runs them."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.products.by_unit import dispatch, stacks
from fpsim.products.by_unit.dispatch import accumulate
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.settings import Settings
from fpsim.records.units import find_unit
from fpsim.state.draws import NO_PLACES
from tests.threads import on_threads
from tests.tiers import pick

UNITS = ["AMP_F16_F32.exact", "AMP_F16_F16", "AMP_F32_F32", "AMP_F16_F32", "V100_F16_F32"]

#: Leading dimensions, rows, K and columns: whole tiles and parts of them, several panels, no batch
#: of one operand, one number.
SHAPES = [
    ((6,), (6,), 8, 16, 16),
    ((2, 3), (2, 3), 5, 7, 37),
    ((4, 1), (1, 3), 9, 33, 3),
    ((5,), (), 1, 1, 1),
    ((3,), (3,), 1, 40, 17),
]


def operands(unit, shape, scale=1.0):
    left, right, m, k, n = shape
    rng, context = np.random.default_rng(m * k), fp.Context(unit.inputs[0])
    a, b = (
        context.array(scale * rng.standard_normal(s)).carrier
        for s in ((*left, m, k), (*right, k, n))
    )
    if b.ndim == 2:
        b = np.array(np.broadcast_to(b, (*left, k, n)))
    return a, b, (*np.broadcast_shapes(left, b.shape[:-2]), m, n)


def product(unit, a, b, shape, start=None):
    settings = UnitSettings(unit, *[unit.inputs[0]] * 2, Settings(unit.partials))
    values = np.zeros(shape, np.float32) if start is None else start.copy()
    flags = np.zeros(shape, np.uint8)
    accumulate(settings, a, b, values, flags, NO_PLACES, fresh=start is None)
    return np.where(np.isnan(values), np.float32("nan"), values).view(np.uint32), flags


def one_by_one(unit, a, b, shape, start=None):
    a, b = (np.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (a, b))
    values, flags = np.zeros(shape, np.uint32), np.zeros(shape, np.uint8)
    for i in np.ndindex(*shape[:-2]):
        values[i], flags[i] = product(
            unit, np.array(a[i]), np.array(b[i]), shape[-2:], None if start is None else start[i]
        )
    return values, flags


@pytest.mark.parametrize("name", pick(UNITS[:2], UNITS, UNITS))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["ordinary", "started", "large", "special"])
def test_a_stack_gives_what_its_products_give(name, shape, kind, monkeypatch):
    unit = find_unit(name)
    a, b, result = operands(unit, shape, 3e3 if kind == "large" else 1.0)
    start = None
    if kind == "started":
        start = np.arange(np.prod(result), dtype=np.float32).reshape(result) - 3
    if kind == "special":
        a.flat[0], b.flat[-1] = np.inf, np.nan
    expected = one_by_one(unit, a, b, result, start)
    monkeypatch.setattr(stacks, "_NUMBERS", 400)  # several calls
    results = product(unit, a, b, result, start)
    for value, wanted in zip(results, expected, strict=True):
        assert np.array_equal(value, wanted)


@pytest.mark.parametrize("name", UNITS[:2])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_and_random_words(name, threads, monkeypatch):
    """Every output draws the words of its place in the whole result."""
    unit = find_unit(name)
    a, b, _ = operands(unit, SHAPES[1])
    half = fp.Context(fp.BINARY16)

    def run(*operands):
        context = fp.Context(fp.BINARY16, rounding=fp.SR(10), seed=7)
        return fp.linalg.matmul(*(half.array(x) for x in operands), name, context=context).codes()

    together = on_threads(threads, lambda: run(a, b))
    monkeypatch.setattr(dispatch, "_stacked", lambda *_, **__: False)
    assert np.array_equal(together, run(a, b))


def test_small_products_are_run_as_a_stack_and_large_ones_are_not(monkeypatch):
    calls = []
    run = stacks.run_stack
    monkeypatch.setattr(
        "fpsim.products.by_unit.tiles.run_stack",
        lambda job, stack, *rest: calls.append(stack.shape) or run(job, stack, *rest),
    )
    unit = find_unit("AMP_F16_F32.exact")
    for m, k in ((4, 8), (1024, 64)):
        a, b = np.ones((2, m, k), np.float32), np.ones((2, k, 3), np.float32)
        values, flags = product(unit, a, b, (2, m, 3))
        assert (values.view(np.float32) == k).all()
        assert not flags.any()
    assert calls == [(8, 8)]
