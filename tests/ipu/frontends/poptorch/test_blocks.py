"""Blocks: three ways to write them, equal stages (golden, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, torch


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)


class ByContext(Layers):
    def forward(self, x):
        with poptorch.Block("one", ipu_id=0):
            x = self.first(x)
        with poptorch.Block("two", ipu_id=1):
            return self.second(x)


class ByBeginning(Layers):
    def __init__(self):
        super().__init__()
        poptorch.BeginBlock(self.first, "one", ipu_id=0)
        poptorch.BeginBlock(self.second, "two", ipu_id=1)

    def forward(self, x):
        return self.second(self.first(x))


class ByFunction(Layers):
    def forward(self, x):
        @poptorch.BlockFunction("one", ipu_id=0)
        def first(x):
            return self.first(x)

        return poptorch.BeginBlock(self.second.forward, "two", ipu_id=1)(first(x))


@pytest.mark.source("S2-12", "S2-13", "S2-21")
def test_three_ways_to_annotate_are_one_plan():
    results = []
    for kind in (ByContext, ByBeginning, ByFunction):
        model = poptorch.inferenceModel(kind(), poptorch.Options().deviceIterations(2))
        output = model(torch.ones(2, 4))
        results.append((model.plan.places, output.tolist()))
    assert results[0][0] == ((0,), (1,))
    assert results[0] == results[1] == results[2]


def test_blocks_do_nothing_outside_of_a_model_of_poptorch():
    x = torch.ones(2, 4)
    assert torch.equal(ByContext()(x), ByBeginning()(x))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: poptorch.Block(3), TypeError, "user_id=3 is not a name"),
        (lambda: poptorch.Block("a", "0"), TypeError, "ipu_id='0' is not the number"),
        (lambda: poptorch.Block("a", -1), ValueError, "ipu_id=-1 is not the number"),
        (lambda: poptorch.BeginBlock(3), TypeError, "module is not an instance of torch.nn.Mod"),
        (lambda: poptorch.BeginBlock(poptorch.BeginBlock(torch.nn.ReLU())), RuntimeError,
         "module has already been assigned to a block"),
    ],
)
def test_bad_input_is_one_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_blocks_of_modules_are_removed():
    """Other hooks stay; a module whose blocks are gone may begin one again."""
    net, calls = ByBeginning(), []
    for module in net.modules():
        module.register_forward_pre_hook(lambda *_: calls.append(1))
    before = poptorch.inferenceModel(ByBeginning(), poptorch.Options().deviceIterations(2))
    before(torch.ones(2, 4))
    poptorch.removeBlocks(net)
    model = poptorch.inferenceModel(net, poptorch.Options())
    model(torch.ones(2, 4))
    assert (before.plan.places, model.plan.places) == (((0,), (1,)), ((0,),))
    assert calls
    for module in net.children():
        poptorch.BeginBlock(module)


def test_only_modules_have_blocks_to_remove():
    with pytest.raises(AssertionError, match=r"not an instance of torch\.nn"):
        poptorch.removeBlocks(lambda x: x)
