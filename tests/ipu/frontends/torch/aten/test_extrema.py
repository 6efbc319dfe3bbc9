"""Extrema and where they stand follow the device's rule for NaN, with flags (law)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.ipu.frontends.torch.framework import machine, torch

NAN, INF = math.nan, math.inf
ROWS = torch.tensor([[1.0, NAN, 3.0], [NAN, NAN, NAN], [-INF, NAN, -2.0], [0.5, 0.25, 0.5]])


def numbers_of(row, largest):
    """The number that is chosen of a row, and where it first stands."""
    present = [(v, k) for k, v in enumerate(row) if not math.isnan(v)]
    if not present:
        return NAN, 0
    best = (max if largest else min)(v for v, _ in present)
    return best, next(k for v, k in present if v == best)


@pytest.mark.parametrize("policy", ["f32", "f16"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_a_number_comes_before_a_nan_and_reading_one_is_told(name, policy):
    expected = [numbers_of(row, name == "max") for row in ROWS.tolist()]
    with machine(policy) as session:
        values, indices = getattr(ROWS, name)(1)
        over = getattr(torch, f"a{name}")(ROWS, 1, keepdim=True)
        where = getattr(torch, f"arg{name}")(ROWS, 1)
        every = getattr(ROWS, name)()
        pair = torch.aminmax(ROWS, dim=1)
        assert session.device.status.inv
    np.testing.assert_array_equal(values.numpy(), [v for v, _ in expected])
    assert indices.tolist() == where.tolist() == [k for _, k in expected]
    np.testing.assert_array_equal(over.numpy()[:, 0], values.numpy())
    np.testing.assert_array_equal(getattr(pair, name).numpy(), values.numpy())
    assert every.item() == (3.0 if name == "max" else -INF)


def test_a_nan_wins_where_the_device_is_asked_for_it():
    with machine("f16", max_nan="propagate") as session:
        values, indices = ROWS.max(1)
        assert session.device.status.inv
    assert values.isnan().tolist() == [True, True, True, False]
    assert indices.tolist() == [1, 0, 1, 0]


def test_a_trap_stops_the_search():
    with machine("f16", traps=True), pytest.raises(FloatingPointError):
        ROWS.amax()


def test_axes_and_formats_are_kept():
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    with machine("f16") as session:
        rounded = x * 1
        held = session.memory.format_of(rounded)
        over = rounded.amax((0, 2))
        assert session.memory.format_of(over) == held
        assert session.memory.format_of(x.amax()) is None
    assert torch.equal(over, rounded.movedim(1, 0).reshape(4, -1).max(1).values)
    assert torch.equal(torch.argmax(rounded), rounded.reshape(-1).argmax())


def test_gradients_reach_what_was_chosen():
    x = torch.tensor([[1.0, 3.0], [2.0, 0.1]], requires_grad=True)
    with machine("f16"):
        (x.amax(1).sum() + x.min(0).values.sum() + x.max()).backward()
    assert x.grad.tolist() == [[1, 2], [1, 1]]


IMAGES = torch.tensor([[[[NAN, 1.0, NAN, NAN], [0.0, 2.0, NAN, -INF]]]])


@pytest.mark.parametrize("half", [False, True])
def test_pooling_gives_the_number_and_its_index(half):
    images = IMAGES.half() if half else IMAGES
    with machine("f16") as session:
        values, indices = torch.nn.functional.max_pool2d(images, 2, return_indices=True)
        assert session.device.status.inv
    assert values.reshape(-1).tolist() == [2.0, -INF]
    assert indices.reshape(-1).tolist() == [5, 7]
    with machine("f16", max_nan="propagate"):
        assert torch.nn.functional.max_pool2d(images, 2).isnan().all()
    with machine("f16"):
        alone = torch.nn.functional.max_pool2d(images[..., 2:3], (2, 1))
        nothing = torch.nn.functional.max_pool2d(images[..., :1, 2:], (1, 2))
    assert alone.isnan().all()
    assert nothing.isnan().all()


@pytest.mark.parametrize("name", ["maximum", "minimum", "max", "min", "fmax", "fmin"])
def test_results_in_given_memory_follow_the_same_rule(name):
    x, y = torch.tensor([NAN, 1.0, NAN]), torch.tensor([2.0, NAN, NAN])
    with machine("f16") as session:
        result = torch.empty(3)
        getattr(torch, name)(x, y, out=result)
        assert session.device.status.inv
    assert result[:2].tolist() == [2, 1]
    assert result[2].isnan()


def test_indices_in_given_memory_follow_the_number():
    x = torch.tensor([[NAN, 1.0, 3.0], [4.0, NAN, 2.0]])
    with machine("f16"):
        where, values = torch.empty(2, dtype=torch.int64), torch.empty(2)
        torch.argmax(x, 1, out=where)
        torch.amax(x, 1, out=values)
    assert where.tolist() == [2, 0]
    assert values.tolist() == [3, 4]
