"""Groups of a convolution side by side against a product for each (differential, corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.products import conv, lanewise
from fpsim.products.lanewise import Beside
from tests.fpsim.in_partials import conv2d, conv2d_input_gradient, conv2d_weight_gradient
from tests.threads import on_threads
from tests.tiers import pick

ALL = ["AMP_F16_F16", "AMP_F16_F32.exact", "AMP_F16_F32", "SLIC_F16_F16", "AMP_F32_F32"]

#: Groups, channels and outputs of each; stride. The third has kernels of its own.
SHAPES = [(18, 1, 1, 1), (16, 1, 1, 2), (5, 2, 3, 2)]
#: Passes of the product and of the weights' gradient are complete: short passes of half partials
#: have kernels of their own, so the quick tier computes these two.
COMPLETE = (3, 16, 4, 1)
CASES = pick(
    [("AMP_F16_F32", SHAPES[0]), ("AMP_F16_F32", SHAPES[1]), ("AMP_F16_F16", COMPLETE)],
    *[[(n, s) for n in names for s in (*SHAPES, COMPLETE)] for names in (ALL[:3], ALL)],
)


@pytest.fixture
def ways(monkeypatch):
    """What the products of all groups together came to, and how to forbid them."""
    outcomes, usual = [], conv.accumulate_whole

    def watched(*args, **choices):
        outcomes.append(usual(*args, **choices))
        return outcomes[-1]

    def forbid():
        monkeypatch.setattr(Beside, "pays", staticmethod(lambda *_: False))

    monkeypatch.setattr(conv, "accumulate_whole", watched)
    return outcomes, forbid


def results(name, shape, values, bits=10):
    """Values and flags of the products of a shape, from a context at its beginning."""
    groups, channels, outputs, stride = shape
    fmt = fp.BINARY32 if "F32_F32" in name else fp.BINARY16
    context = fp.Context(fmt, rounding=fp.SR(bits))
    x = context.array(values((3, 7, 6, groups * channels)))
    w = context.array(values((3, 2, channels, groups * outputs)))
    g = context.array(values((3, -(-7 // stride), -(-6 // stride), groups * outputs)))
    choices = {"stride": stride, "groups": groups}
    products = [
        lambda: conv2d(x, w, name, **choices),
        lambda: conv2d_weight_gradient(x, g, name, w.shape, **choices),
    ]
    if shape != COMPLETE:
        products.append(lambda: conv2d_input_gradient(g, w, name, x.shape, **choices))
    with np.errstate(invalid="ignore"):
        for compute in products:
            context.clear_flags()
            yield compute().codes().tolist(), context.flags


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_together_is_each_group_alone(name, shape, ways):
    outcomes, forbid = ways
    rng = np.random.default_rng(shape[0])
    drawn = rng.standard_normal(4000) * 2.0 ** rng.integers(-9, 9, 4000)

    def values(extents):
        return np.resize(drawn, extents)

    together = list(results(name, shape, values))
    assert outcomes
    assert all(outcomes)
    assert on_threads(2, lambda: list(results(name, shape, values))) == together
    forbid()
    assert list(results(name, shape, values)) == together


@pytest.mark.parametrize("special", [np.inf, 6e4])
def test_what_no_fast_engine_takes_is_computed_group_by_group(special, ways):
    """An infinity; and sums that overflow, with their flags."""
    outcomes, forbid = ways

    def values(extents):
        x = np.ones(extents)
        x.flat[7] = x.flat[8] = special
        return x

    shape = pick(COMPLETE, SHAPES[0], SHAPES[0])
    together = list(results("AMP_F16_F16", shape, values))
    assert outcomes
    assert all(outcomes) == (special < np.inf)
    forbid()
    assert list(results("AMP_F16_F16", shape, values)) == together


def test_images_as_they_lie_serve_whole_panels_of_single_channels():
    x = np.zeros((1, 2, 2, 32), np.float32)
    assert Beside(x, 32, 1).x is x
    assert Beside(x[..., :20], 20, 1).x.shape == (1, 2, 2, 32)
    assert Beside(x, 16, 3).x.shape == (1, 2, 2, 2 * 48)


def test_groups_of_many_outputs_stay_alone():
    assert Beside.pays(2, lanewise._FEW)
    assert not Beside.pays(2, lanewise._FEW + 1)
    assert not Beside.pays(1, 1)
