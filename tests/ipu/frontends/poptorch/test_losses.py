"""Losses: found in the model, combined by identity_loss (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import (
    STRATEGIES,
    bits,
    options,
    poptorch,
    same,
    session_of,
    torch,
    train,
)

from ipu.frontends.poptorch.losses import Losses  # isort: skip
from ipu.run.changes import Changes  # isort: skip


@pytest.mark.parametrize(("reduction", "value"), [("sum", 4.0), ("mean", 2.0), ("none", [1, 3])])
def test_identity_loss_reduces(reduction, value):
    assert poptorch.identity_loss(torch.tensor([1.0, 3.0]), reduction).tolist() == value


def test_the_loss_is_the_marked_one_or_that_of_the_one_loss_function():
    losses, first, second = Losses(), torch.ones(()), torch.zeros(())
    losses.note(torch.relu, torch.ones(3))
    with pytest.raises(RuntimeError, match="Couldn't find a loss in graph"):
        _ = losses.final
    losses.note(torch.nn.functional.mse_loss, first)
    assert losses.final is first
    losses.note(torch.nn.functional.l1_loss, second)
    with pytest.raises(RuntimeError, match="Multiple independent losses found in graph: 2"):
        _ = losses.final
    losses.mark(second)
    assert losses.final is second


def test_a_model_with_two_losses_trains_on_the_marked_sum():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            y = self.layer(x)
            a, b = y.square().mean(), torch.nn.functional.l1_loss(y, x)
            return poptorch.identity_loss(a + b, reduction="none")

    model = poptorch.trainingModel(Two())
    losses = [model(torch.ones(2, 4)).item() for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="Unsupported reduction type"):
        poptorch.identity_loss(torch.ones(1), "max")
    with pytest.raises(TypeError, match=r"takes a torch\.Tensor, got int"):
        poptorch.identity_loss(1, "sum")


@pytest.mark.parametrize("strategy", ["unsplit", "two stages"])
def test_a_scale_from_outside_is_taken_out_of_the_gradients(strategy):
    """In binary32 no bit of a power of two is lost; the program has a scale too."""
    def trained(changes):
        with session_of(policy="f32", changes=changes) as session:
            run_options = options(STRATEGIES[strategy](), 4, sr=False)
            model, losses = train(run_options, half=False, steps=3, batch=4)
            return bits(model), losses, session.recorder.scale

    plain, scaled = trained(Changes()), trained(Changes(2.0**12))
    assert same(scaled[0], plain[0])
    assert torch.equal(scaled[1], plain[1])
    assert (plain[2], scaled[2]) == (64, 64 * 2**12)
