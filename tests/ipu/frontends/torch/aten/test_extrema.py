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


PAIRS = torch.tensor([[-0.0, 0.0], [0.0, -0.0], [-0.0, -0.0]])
SIGNS = [False, False, True]


@pytest.mark.parametrize("half", [False, True])
def test_a_negative_zero_is_below_the_other_one_in_every_form(half):
    x = PAIRS.half() if half else PAIRS
    images = x.reshape(3, 1, 1, 2)
    functional = torch.nn.functional
    with machine("f16"):
        largest = [
            x.amax(1), x.max(1).values, x.cummax(1).values[:, 1],
            functional.max_pool2d(images, (1, 2)), functional.adaptive_max_pool2d(images, 1),
            functional.max_pool3d(images[:, None], (1, 1, 2)),
            functional.adaptive_max_pool3d(images[:, None], 1),
        ]
        smallest = [(-x).amin(1), (-x).min(1).values, (-x).cummin(1).values[:, 1]]
    for values in largest:
        assert values.reshape(-1).signbit().tolist() == SIGNS
    for values in smallest:
        assert values.signbit().tolist() == [not sign for sign in SIGNS]


@pytest.mark.parametrize("half", [False, True])
def test_every_maximum_of_windows_gives_the_number_and_its_index(half):
    images = IMAGES.half() if half else IMAGES
    functional = torch.nn.functional
    for pool in (
        lambda x: functional.adaptive_max_pool2d(x, (1, 2), return_indices=True),
        lambda x: functional.max_pool3d(x[None], (1, 2, 2), return_indices=True),
        lambda x: functional.adaptive_max_pool3d(x[None], (1, 1, 2), return_indices=True),
    ):
        with machine("f16") as session:
            values, indices = pool(images)
            assert session.status.inv
        assert values.reshape(-1).tolist() == [2.0, -INF]
        assert indices.reshape(-1).tolist() == [5, 7]
        with machine("f16", max_nan="propagate") as session:
            values, indices = pool(images)
            assert session.status.inv
        assert values.isnan().all()
        assert indices.reshape(-1).tolist() == [0, 2]
        with machine("f16", traps=True), pytest.raises(FloatingPointError):
            pool(images)


def test_random_windows_give_the_number():
    images = torch.full((1, 1, 5, 5), NAN)
    images[..., 2, 2] = 1.5
    with machine("f16") as session:
        torch.manual_seed(0)
        values = torch.nn.functional.fractional_max_pool2d(images, 4, 1)
        assert session.status.inv
    assert values.item() == 1.5


@pytest.mark.parametrize("largest", [True, False])
def test_extrema_so_far_are_those_of_what_stands_before(largest):
    name = "max" if largest else "min"
    with machine("f16") as session:
        values, indices = getattr(torch, f"cum{name}")(ROWS, 1)
        assert session.status.inv
    for row, line, places in zip(ROWS.tolist(), values, indices.tolist(), strict=True):
        for k in range(len(row)):
            best, _ = numbers_of(row[: k + 1], largest)
            equal = [j for j in range(k + 1) if row[j] == best] or [places[k]]
            np.testing.assert_array_equal(line[k].item(), best)
            assert places[k] == equal[-1]
    with machine("f16", max_nan="propagate"):
        values, _ = getattr(torch, f"cum{name}")(ROWS, 1)
    assert values.isnan().tolist() == getattr(torch, f"cum{name}")(ROWS, 1)[0].isnan().tolist()


def test_subnormal_numbers_are_what_the_device_reads():
    x = torch.tensor([[-1.0, -1e-41, 1e-42, 1e-41], [-3.0, -2.0, -1e-41, -1.0]])
    with machine("f32"):
        values, indices = x.max(1)
        so_far = x.cummax(1).values[:, 3]
        pooled = torch.nn.functional.max_pool2d(x.reshape(2, 1, 1, 4), (1, 4)).reshape(-1)
    for maxima in (values, so_far, pooled):
        assert maxima.tolist() == [0.0, 0.0]
        assert maxima.signbit().tolist() == [False, True]
    assert indices.tolist() == [1, 2]
    with machine("f32", f32_denormals="ieee"):
        assert torch.equal(x.amax(1), torch.tensor([1e-41, -1e-41]))


def test_numbers_of_binary64_are_compared_as_they_are():
    x = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)
    with machine("f16"):
        assert x.max(0).indices.item() == x.argmax().item() == 1
        assert x.amax().item() == x[1].item()
        assert x.amin().item() == 1.0


def test_the_gradient_of_outputs_side_by_side_is_that_of_pooling():
    x = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    gradients = []
    for pool in (lambda v: torch.nn.functional.adaptive_max_pool2d(v, (2, 3)),
                 lambda v: torch.nn.functional.max_pool2d(v, 2)):
        leaf = x.clone().requires_grad_()
        with machine("f16", ties="all") as session:
            pool(leaf).square().sum().backward()
        assert session.report()["host"]["elements"] == 0
        gradients.append(leaf.grad)
    assert torch.equal(*gradients)


def test_a_sum_without_nans_is_the_machines_sum():
    x = torch.tensor([[2048.0, 1.0, 1.0], [NAN, 3.0, NAN]]).half()
    with machine("f16") as session:
        sums = x.nansum(1)
        assert session.status.inv
        assert session.report()["host"]["elements"] == 0
    assert sums.tolist() == [2050.0, 3.0]
    with machine("f16") as session:
        x[:1].nansum()
        assert not session.status.inv


def test_a_largest_magnitude_that_is_a_nan_is_told():
    with machine("f16") as session:
        assert torch.linalg.vector_norm(torch.tensor([1.0, NAN]), INF).isnan()
        assert session.status.inv


def test_a_nan_that_no_window_reads_is_not_told():
    images = torch.tensor([[[[1.0, -0.0, NAN], [-0.0, -0.0, NAN]]]])
    with machine("f16") as session:
        torch.nn.functional.max_pool2d(images, 2, stride=2)
        torch.nn.functional.max_pool2d(images[..., 1:, :], (1, 2))
        assert not session.status.inv
