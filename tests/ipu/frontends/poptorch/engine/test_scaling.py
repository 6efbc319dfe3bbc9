"""The loss scale: a constant, or PopART's automatic one (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import STRATEGIES, bits, data, options, torch, train


def scaled(initial, *, half=True, steps=1, name="unsplit", **extra):
    run_options = options(STRATEGIES[name](), sr=False)
    run_options.Training.setAutomaticLossScaling(True)
    return train(run_options, half=half, steps=steps, loss_scaling=initial, **extra)[0]


def test_the_scale_doubles_while_gradients_are_small_and_halves_when_they_are_not():
    assert scaled(1.0)._executor.scaling.value == 2
    assert scaled(1.0, steps=3)._executor.scaling.value == 8
    assert scaled(65504.0, steps=1)._executor.scaling.value == 32752


def test_the_plan_moves_no_scale_and_no_bit():
    one, two = scaled(1.0, steps=2), scaled(1.0, steps=2, name="pipelined")
    assert one._executor.scaling.value == two._executor.scaling.value
    assert all(torch.equal(x, bits(two)[name]) for name, x in bits(one).items())


def test_binary32_gradients_cannot_be_tracked():
    with pytest.raises(ValueError, match="saw no binary16 gradients"):
        scaled(1.0, half=False)


def test_a_constant_scale_follows_the_optimiser():
    model, _ = train(options(STRATEGIES["unsplit"](), sr=False), steps=1)
    assert model._executor.scaling.value == 64
    from tests.ipu.frontends.poptorch.framework import sgd

    model.setOptimizer(sgd(model.model.parameters(), loss_scaling=8.0))
    model(*data(21))
    assert model._executor.scaling.value == 8


def test_groups_share_one_loss():
    def optimiser(parameters, **extra):
        from tests.ipu.frontends.poptorch.framework import poptorch

        first, *rest = parameters
        return poptorch.optim.SGD(
            [{"params": [first], "loss_scaling": 2.0}, {"params": rest}], lr=0.1
        )

    with pytest.raises(ValueError, match="a loss has one scale"):
        train(options(STRATEGIES["unsplit"]()), optimiser)
