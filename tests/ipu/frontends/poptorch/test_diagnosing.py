"""Diagnosis of PopTorch programs by replay (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, torch

from fpsim.torch import machine  # isort: skip
from ipu.frontends.processes.diagnosing import diagnose_program  # isort: skip
from ipu.frontends.processes.programs import run_file  # isort: skip
from ipu.run.ways import Way  # isort: skip

PROGRAM = """
import poptorch
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(12, 24), torch.nn.Linear(24, 3)

    def forward(self, x, y):
        h = torch.tanh(self.first(x)) * FACTOR
        h = self.last(h / torch.sqrt((h * h).mean(-1, keepdim=True) + 1e-3))
        return h, torch.nn.functional.cross_entropy(h, y)


net = Net()
options = poptorch.Options().deviceIterations(2)
model = poptorch.trainingModel(net, options, poptorch.optim.SGD(net.parameters(), lr=0.1))
for _ in range(5):
    model(torch.randn(8, 12), torch.randint(0, 3, (8,)))
"""


@pytest.mark.parametrize(("factor", "answer"), [("900.0", "ill"), ("1.0", "healthy")])
def test_a_model_on_the_device_is_diagnosed(tmp_path, factor, answer):
    assert poptorch
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.replace("FACTOR", factor))
    result = diagnose_program(machine("mixed", count=True), program, [], 2, seconds=300.0)
    assert (result.answer, len(result.losses)) == (answer, 2)
    if answer == "ill":
        assert {site.layer for site in result.necessary} == {"Net"}
        assert "overflows binary16" in result.sentence
        assert str(result.cure.way) == "mixed+Net=f32"
    assert torch.is_grad_enabled()


ACCUMULATING = """
import poptorch
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(12, 3)

    def forward(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.last(x), y)
        return LOSS


net, options = Net()HALF, poptorch.Options()
options.Training.gradientAccumulation(16)
options.Training.setMeanAccumulationAndReplicationReductionStrategy(
    poptorch.MeanReductionStrategy.Post)
optimizer = poptorch.optim.SGD(
    net.parameters(), lr=RATE, loss_scaling=SCALE, accum_type=torch.float16)
model = poptorch.trainingModel(net, options, optimizer)
for _ in range(4):
    y = torch.randint(0, 3, (64,))
    model((torch.randn(64, 12) + torch.eye(3, 12)[y] * 6)HALF, y)
"""


def accumulating(**texts):
    """The program with these texts in place of its capitals."""
    program = ACCUMULATING
    for name, text in texts.items():
        program = program.replace(name.upper(), text)
    return program


def vanishing(scale):
    """Its gradients are too small for accumulators of float16, and the rate makes up for that."""
    return accumulating(
        loss='poptorch.identity_loss(loss * 2.0**-23, "none")', half="", rate="0.05 * 2.0**23",
        scale=scale)


def test_accumulators_that_the_program_makes_half_are_wide_in_the_run_beside_it(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        accumulating(loss="loss", half=".half()", rate="0.5", scale="65536.0 / 4"))
    result = diagnose_program(machine("fp16", count=True), program, [], 4, seconds=300.0)
    assert result.answer == "ill"
    assert result.losses[-1] != result.reference[-1]
    assert "accumulate" in result.sentence
    assert "overflows" in result.sentence
    assert "each loss is the mean over the 16 backward passes of a step" in str(result)
    assert result.cure is not None
    assert str(result.cure.way) == "fp16+states=f32"


def test_a_loss_scale_from_outside_is_the_optimisers(tmp_path):
    """Its gradients are unscaled behind the accumulators, as PopTorch does it (differential)."""
    losses = []
    for scale, way in (("1.0", "mixed+scale=4096"), ("4096.0", "mixed")):
        program = tmp_path / "train.py"
        program.write_text(vanishing(scale))
        run = machine(Way.parse(way).policy, changes=Way.parse(way).changes, count=True)
        with run:
            run_file(program, [])
        losses.append(run.report()["losses"])
    assert losses[0] == losses[1]


def test_a_loss_scale_is_advised_in_poptorchs_words(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(vanishing("1.0"))
    result = diagnose_program(machine("mixed", count=True), program, [], 4, seconds=300.0)
    assert result.answer == "ill"
    assert result.cure is not None
    assert "loss_scaling=" in result.cure.what
    assert result.cure.way.changes.loss_scale > 1
