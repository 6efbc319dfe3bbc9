"""Additions by index: binary32 in index order, rounded once (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.torch.aten.bits import numbers, on_machine, same
from tests.ipu.frontends.torch.framework import agree_on_machine, machine, torch

ROWS = torch.tensor([3, 0, 3, 1, 3, 0, 3])
V = numbers(7, 5)


def added(base, rows, values):
    total = base.astype(np.float32).copy()
    for row, value in zip(rows, values, strict=True):
        total[row] += value
    return total


def test_embedding_gradients():
    def slope(weight, g):
        weight = weight.clone().requires_grad_()
        y = torch.nn.functional.embedding(ROWS, weight, padding_idx=0)
        return torch.autograd.grad(y, weight, g)[0]

    counted = ROWS.numpy() != 0
    expected = added(np.zeros((4, 5)), ROWS.numpy()[counted], V.numpy()[counted])
    same(on_machine(slope, numbers(4, 5, seed=1), V), expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, v: x.index_add(0, ROWS, v),
        lambda x, v: x.index_put((ROWS,), v, accumulate=True),
        lambda x, v: x.scatter_add(0, ROWS[:, None].expand(7, 5), v),
        lambda x, v: x.clone().index_add_(0, ROWS, v),
    ],
)
def test_duplicates_are_added_in_order(function):
    x = numbers(4, 5, seed=1)
    same(on_machine(function, x, V), added(x.numpy(), ROWS.numpy(), V.numpy()))


def test_assignment_by_index_is_a_move():
    def assign(x, v):
        x = x.clone()
        x[ROWS[:2]] = v[:2]
        return x

    x = numbers(4, 5, seed=1)
    expected = x.clone()
    expected[ROWS[:2]] = V[:2]
    assert torch.equal(on_machine(assign, x, V), expected)


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_products_by_index_are_the_row():
    """Whole numbers: exact in any format."""
    x = torch.tensor([[2.0, 3.0], [4.0, 5.0], [0.5, 6.0]])
    index = torch.tensor([0, 1, 0])
    base = torch.full((2, 2), 3.0)
    with machine("f16") as session:
        by_place = base.scatter_reduce(0, index[:, None].expand(3, 2), x, "prod")
        by_row = base.index_reduce(0, index, x, "prod")
    assert by_place.tolist() == by_row.tolist() == [[3, 54], [12, 15]]
    assert session.report()["host"]["elements"] == 0


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("kind", ["amax", "amin"])
def test_reductions_that_choose(kind):
    x, index = numbers(4, 3), torch.tensor([0, 2, 2, 0])
    places = index[:, None].expand(4, 3)

    def work():
        base = torch.zeros(3, 3)
        return [
            base.scatter_reduce(0, places, x, kind),
            base.scatter_reduce(0, places, x, kind, include_self=False),
            base.index_reduce(0, index, x, kind),
        ]

    agree_on_machine(work, {"rtol": 0, "atol": 0})
    for result in on_machine(work):
        assert torch.equal(result, result.half().float())


PLACES = {
    "columns": (slice(None), torch.tensor([1, 1, 0])),
    "rows and planes": (torch.tensor([0, 2]), slice(None), torch.tensor([1, 1])),
    "a mask behind": (slice(None), torch.tensor([True, False, True, True])),
    "a mask in front": (torch.tensor([True, False, True]),),
    "planes": (slice(None), slice(None), torch.tensor([[0, 1], [1, 1]])),
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_places_beside_axes_that_are_taken_whole(name, accumulate):
    where = [p if isinstance(p, torch.Tensor) else None for p in PLACES[name]]

    def work():
        x = numbers(3, 4, 2)
        values = torch.arange(float(x[PLACES[name]].numel())).view_as(x[PLACES[name]])
        if not accumulate:
            values = torch.ones(()) * 7.0  # duplicates in any order
        return [torch.ops.aten.index_put.default(x, where, values, accumulate)]

    agree_on_machine(work, {"rtol": 1e-6, "atol": 1e-6})
