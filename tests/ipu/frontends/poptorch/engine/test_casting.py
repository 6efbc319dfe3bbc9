"""Casts of mixed operands: float16 by default, torch's rule when asked (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, torch

from ipu.frontends.poptorch.engine.calls import downcast  # isort: skip

Casting = poptorch.HalfFloatCastingBehavior


class Mixed(torch.nn.Module):
    """float32 weights and float16 inputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.norm(self.layer(x))
        return y, torch.nn.functional.mse_loss(y, torch.zeros_like(y))


def test_mixed_operations_compute_in_float16_and_weights_stay_float32():
    net = Mixed()
    y, loss = poptorch.trainingModel(net)(torch.ones(4, 3).half() * torch.arange(4)[:, None])
    assert (y.dtype, loss.dtype) == (torch.float16, torch.float16)
    assert net.layer.weight.dtype == net.norm.running_mean.dtype == torch.float32


def test_torchs_promotion_on_request():
    class Added(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    def dtype(behaviour):
        options = poptorch.Options()
        options.Precision.halfFloatCasting(behaviour)
        return poptorch.inferenceModel(Added(), options)(torch.ones(2).half(), torch.ones(2)).dtype

    assert dtype(Casting.FloatDowncastToHalf) == torch.float16
    assert dtype(Casting.HalfUpcastToFloat) == torch.float32


@pytest.mark.parametrize("function", [torch.Tensor.to, torch.Tensor.copy_, torch.equal])
def test_conversions_keep_their_types(function):
    pair = torch.ones(1), torch.ones(1).half()
    assert downcast(function, pair, {}) == (pair, {})


def test_moving_statistics_stay_and_lists_are_cast():
    x, wide = torch.ones(2, 2).half(), torch.ones(2)
    args, kwargs = downcast(
        torch.nn.functional.batch_norm, (x, wide, wide, wide), {"running_x": wide, "bias": wide}
    )
    assert [a.dtype for a in args] == [torch.float16, torch.float32, torch.float32, torch.float16]
    assert kwargs["running_x"].dtype == torch.float32
    assert kwargs["bias"].dtype == torch.float16
    ((a, b),), _ = downcast(torch.cat, ([x, wide],), {})
    assert a.dtype == b.dtype == torch.float16
