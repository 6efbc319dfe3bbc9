"""Softmax and losses: values against torch, one rounding of binary32 results (differential)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.aten.bits import numbers
from tests.ipu.frontends.torch.framework import agree_on_machine, machine, torch

F = torch.nn.functional
X, Y = numbers(6, 5), torch.tensor([0, 4, 2, 2, 1, 3])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.25, 3.0])
CASES = {
    "softmax": lambda x: x.softmax(1),
    "softmax of columns": lambda x: x.softmax(0),
    "log softmax": lambda x: x.log_softmax(-1),
    "cross-entropy": lambda x: F.cross_entropy(x, Y),
    "weights": lambda x: F.cross_entropy(x, Y, weight=WEIGHT),
    "an ignored class": lambda x: F.cross_entropy(x, Y, ignore_index=2, reduction="sum"),
    "each row": lambda x: F.cross_entropy(x, Y, weight=WEIGHT, reduction="none"),
    "smoothed labels": lambda x: F.cross_entropy(x, Y, label_smoothing=0.1),
    "images": lambda x: F.cross_entropy(x.reshape(2, 5, 3, 1), Y.reshape(2, 3, 1)),
    "mean square": lambda x: F.mse_loss(x, numbers(6, 5, seed=3)),
    "sum of squares": lambda x: F.mse_loss(x, numbers(6, 5, seed=3), reduction="sum"),
    "squares": lambda x: F.mse_loss(x, numbers(6, 5, seed=3), reduction="none"),
}


def results(function):
    x = X.clone().requires_grad_()
    y = function(x)
    slope = torch.linspace(0.5, 1, y.numel()).reshape(y.shape)
    return y, torch.autograd.grad(y, x, slope)[0]


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name):
    agree_on_machine(lambda: results(CASES[name]), {"rtol": 1e-5, "atol": 1e-6})


def test_rows_that_are_all_ignored_give_no_number():
    with machine():
        loss = F.cross_entropy(X, torch.full((6,), -100))
    assert bool(loss.isnan())


@pytest.mark.parametrize("name", ["softmax", "squares"])
def test_binary16_results_are_rounded_once(name):
    """Inside is binary32, so the result is the rounded binary64 value but near a midpoint."""
    with machine("f16"):
        y = CASES[name](X)
    exact = CASES[name](X.double() if name == "softmax" else X)
    margin = exact.abs() * 2.0**-11 * 1.01 + 2.0**-25
    assert bool(((y - exact).abs() <= margin).all()) or name == "squares"
    assert torch.equal(y, y.half().float())


def test_losses_are_binary32_and_gradients_of_logits_are_rounded_once():
    """y - t of softmax, times 1/N, in binary64 from the stored logarithms of probabilities."""
    x = X.clone().requires_grad_()
    with machine("f16"):
        logits = x * 1.0
        logits.retain_grad()
        logarithms = torch.log_softmax(logits, 1)
        loss = F.nll_loss(logarithms, Y)
        square = F.mse_loss(logits, numbers(6, 5, seed=3))
        loss.backward()
    stored = logarithms.detach().double()
    assert torch.equal(loss, -(stored[torch.arange(6), Y].sum() / 6).float())
    assert not torch.equal(square, square.half().float())
    exact = (stored.exp() - F.one_hot(Y, 5)) / 6
    got = logits.grad
    assert torch.equal(got, got.half().float())
    margin = exact.abs() * 2.0**-11 * 1.01 + 2.0**-25
    assert bool(((got - exact).abs() <= margin).all())


def test_masked_rows_of_attention_are_zeros():
    def masked():
        x = X.clone()
        x[1] = float("-inf")
        return torch.ops.aten._safe_softmax.default(x, 1)

    with machine() as session:
        got = masked()
    torch.testing.assert_close(got, masked())
    assert got[1].tolist() == [0.0] * 5
    assert session.device.status.word == 0


@pytest.mark.parametrize("name", ["logsumexp", "two classes", "two classes with weights"])
def test_sums_of_exponentials_against_binary64(name):
    functions = {
        "logsumexp": lambda x: torch.logsumexp(x, (0, 2)),
        "two classes": lambda x: loss(x, targets),
        "two classes with weights": lambda x: loss(
            x, targets, weight=targets + 0.5, pos_weight=targets[0, 0] + 1, reduction="none"
        ),
    }
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    x = numbers(3, 4, 5) * 8
    targets = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(1))
    wide = x.double().requires_grad_()
    expected = functions[name](wide)
    expected.sum().backward()
    x.requires_grad_()
    with machine("f32", f32_denormals="ieee") as run:
        result = functions[name](x)
        result.sum().backward()
    assert run.report()["host"]["elements"] == 0
    torch.testing.assert_close(result, expected.float(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(x.grad, wide.grad.float(), rtol=1e-5, atol=1e-6)


def test_a_row_of_minus_infinities_has_the_sum_zero():
    x = torch.full((2, 3), float("-inf"))
    with machine():
        assert torch.equal(torch.logsumexp(x, 1), torch.full((2,), float("-inf")))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy_of_probabilities(reduction, weighted):
    x = torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0, 1e-6]).repeat(2)
    t = torch.tensor([0.0, 1.0]).repeat_interleave(6)
    weight = torch.linspace(0.5, 2.0, 12) if weighted else None

    def work():
        v = x.clone().requires_grad_()
        loss = torch.nn.functional.binary_cross_entropy(v, t, weight, reduction=reduction)
        loss.sum().backward()
        return [loss, v.grad]

    agree_on_machine(work, {"rtol": 1e-5, "atol": 1e-6})
    with machine("p=f16,c=f16", count=True) as session:
        loss, slope = work()
    assert torch.equal(slope, slope.half().float())
    assert torch.equal(loss, loss.half().float()) == (reduction == "none")
    assert not session.report()["status"].count("DIV0 0x1")
    with machine(), pytest.raises(RuntimeError, match="between 0 and 1"):
        torch.nn.functional.binary_cross_entropy(x + 1, t)
