"""Additions by index: binary32 in index order, rounded once (differential)."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")

from ipu.frontends.torch.aten import indexing
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


@pytest.mark.parametrize("shape", [(7, 5), (7, 2, 3), (7, 1), (7,)], ids=str)
@pytest.mark.parametrize("rest", [0, 3])
def test_rows_whose_index_is_repeated_are_those_of_their_elements(monkeypatch, shape, rest):
    """Some rows of the values may be left out; `rest` of them are."""
    how = []
    whole = indexing._whole_rows
    monkeypatch.setattr(
        indexing, "_whole_rows", lambda *arguments: how.append(whole(*arguments)) or how[-1]
    )
    x = torch.randn(4, *shape[1:], generator=torch.Generator().manual_seed(0)) * 3e4
    v = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3e4
    index = ROWS.reshape(7, *[1] * (len(shape) - 1)).expand(shape)[: 7 - rest]

    def outcome(index):
        with machine("fp16", sr=True) as run:
            total = x.mul(1).scatter_add(0, index, v.mul(1))
            told = run.device.vector_cycles, run.device.status, run.report()["operations"]
        return total.numpy().tobytes(), *told

    assert outcome(index) == outcome(index.clone(memory_format=torch.contiguous_format))
    assert how[0].tolist() == ROWS[: 7 - rest].tolist()
    assert (how[1] is None) == (max(shape[1:], default=1) > 1)


def test_columns_and_indices_that_differ_are_added_by_element():
    x, v = numbers(4, 5, seed=1), numbers(4, 3)
    columns = torch.tensor([3, 0, 3])[None].expand(4, 3)
    expected = x.numpy().copy()
    for p, column in enumerate((3, 0, 3)):
        expected[:, column] += v.numpy()[:, p]
    same(on_machine(lambda x, v: x.scatter_add(1, columns, v), x, v), expected)
    narrow = ROWS[:, None].expand(7, 2)
    expected = x.numpy().copy()
    expected[:, :2] = added(x.numpy()[:, :2], ROWS.numpy(), V.numpy()[:, :2])
    same(on_machine(lambda x, v: x.scatter_add(0, narrow, v), x, V), expected)


@pytest.mark.parametrize("shape", [(7, 5), (7, 2, 3), (7,)], ids=str)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
def test_rows_by_index_are_those_of_their_elements(monkeypatch, shape, kind):
    """Also rows that are counted from the end, and one row of values for all."""
    x = torch.randn(4, *shape[1:], generator=torch.Generator().manual_seed(0)) * 3e4
    v = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3e4
    index = (ROWS - 4 * (torch.arange(7) % 2)).to(kind)

    def outcome(v):
        with machine("fp16", sr=True) as run:
            total = x.mul(1).index_put((index,), v.mul(1), accumulate=True)
            told = run.device.vector_cycles, run.device.status, run.report()["operations"]
        return total.numpy().tobytes(), *told

    rows = [outcome(v), outcome(v[:1])]
    taken = indexing._rows_of_first_axis(x, (index,))
    monkeypatch.setattr(indexing, "_rows_of_first_axis", lambda *_: None)
    assert rows == [outcome(v), outcome(v[:1])]
    assert taken.tolist() == ROWS.tolist()


def test_indices_that_are_no_rows_are_places():
    x = torch.ones(3, 4)
    for indices in ([None, ROWS], [ROWS, ROWS], [ROWS[None]], [torch.tensor([True, False, True])]):
        assert indexing._rows_of_first_axis(x, indices) is None


def test_rows_that_are_not_there_raise_the_error_of_torch():
    with machine("fp16"), pytest.raises(IndexError, match="out of bounds"):
        torch.ones(3, 4).mul(1).index_put((torch.tensor([3]),), torch.ones(1, 4), accumulate=True)
