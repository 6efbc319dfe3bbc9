"""Bags of embeddings against binary64 (differential)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.aten.bits import numbers
from tests.ipu.frontends.torch.framework import machine, torch

pytest.importorskip("ipu.frontends.torch.aten.bags")
functional = torch.nn.functional

INDICES = torch.tensor([1, 2, 2, 5, 0, 1, 3, 3])
OFFSETS = torch.tensor([0, 3, 3, 6])


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sum"}, {"mode": "mean"}, {"mode": "max"}, {"mode": "mean", "padding_idx": 2},
        {"mode": "sum", "padding_idx": 0}, {"mode": "mean", "include_last_offset": True},
    ],
    ids=str,
)
def test_values_and_gradients(options):
    offsets = torch.tensor([0, 3, 3, 8]) if "include_last_offset" in options else OFFSETS

    def bags(table):
        return functional.embedding_bag(INDICES, table, offsets, **options)

    table = numbers(6, 4)
    wide = table.double().requires_grad_()
    expected = bags(wide)
    slopes = numbers(*expected.shape, seed=1)
    expected.backward(slopes.double())
    table.requires_grad_()
    with machine("f32", f32_denormals="ieee") as run:
        result = bags(table)
        result.backward(slopes)
    assert run.report()["host"]["elements"] == 0
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(table.grad.double(), wide.grad, rtol=1e-6, atol=1e-6)


def test_factors_of_samples():
    table, factors = numbers(6, 4), numbers(8, seed=1)

    def bags(t, f):
        return functional.embedding_bag(INDICES, t, OFFSETS, mode="sum", per_sample_weights=f)

    wide = table.double().requires_grad_()
    bags(wide, factors.double()).sum().backward()
    table.requires_grad_()
    with machine("f32", f32_denormals="ieee"):
        result = bags(table, factors)
        result.sum().backward()
    torch.testing.assert_close(result.double(), bags(wide, factors.double()), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(table.grad.double(), wide.grad, rtol=1e-6, atol=1e-6)


def test_a_bag_is_added_in_binary32_and_rounded_once():
    table = torch.tensor([[2048.0], [1.0], [1.0]])
    with machine("f16"):
        bag = functional.embedding_bag(
            torch.tensor([0, 1, 2]), table, torch.tensor([0]), mode="sum"
        )
    assert bag.item() == 2050
