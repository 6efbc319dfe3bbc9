"""Executables: compiled once for a shape, kept, and what changing them costs (law, golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import (
    STRATEGIES,
    Net,
    bits,
    data,
    options,
    poptorch,
    same,
    sgd,
    torch,
)


def plain_net():
    net = Net()
    net.norm, net.drop = torch.nn.Identity(), torch.nn.Identity()
    return net.half()


def wrapped():
    net = plain_net()
    run_options = options(STRATEGIES["pipelined"](), sr=False)
    return poptorch.trainingModel(net, run_options, sgd(net.parameters()))


@pytest.mark.source("S3-28")
def test_a_shape_that_was_compiled_before_is_switched_to():
    model = wrapped()
    for rows in (21, 42, 21, 21, 42):
        model(*data(rows))
    assert (model.compilations, model.executables.switches) == (2, 2)
    assert model.executables.seconds > 0
    # Four layers and their momenta; weights of two bytes, momenta of four.
    weights = 6 * 8 + 8 + 2 * (8 * 8 + 8) + 8 * 3 + 3
    text = str(model.report())
    assert "2 programs compiled in " in text
    assert f"2 switches between them: each moves {weights * 2 + weights * 4} bytes out" in text


def test_optimiser_and_loss_scale_go_along_with_a_switch():
    model, fresh = wrapped(), wrapped()
    for n, rows in enumerate((21, 42, 21)):
        model(*data(rows, seed=n))
        if fresh.executables.switches == 0 and rows == 21 and n:
            fresh.executables._programs.clear()  # compiles again where the other one switches
        fresh(*data(rows, seed=n))
    assert (model.executables.switches, fresh.executables.switches) == (1, 0)
    assert same(bits(model), bits(fresh))
    model.setOptimizer(sgd(model.model.parameters(), lr=0.5))
    fresh.setOptimizer(sgd(fresh.model.parameters(), lr=0.5))
    model(*data(42, seed=9))
    fresh.executables._programs.clear()
    fresh(*data(42, seed=9))
    assert same(bits(model), bits(fresh))
