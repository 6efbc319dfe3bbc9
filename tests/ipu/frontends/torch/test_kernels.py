"""Whole kernels are off in a session, and as they were after it (law)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

pytest.importorskip("ipu.frontends.torch.kernels")
ROOT = Path(__file__).parents[4]

#: Compiled functions of a program that has imported no compiler before.
PROGRAM = """
import sys, torch, fpsim.torch
before = torch.compile
assert "torch._dynamo" not in sys.modules
with fpsim.torch.machine("f16") as run:
    step = torch.compile(lambda x: (x * 0.1).sin(), backend="aot_eager")
    net = torch.compile(torch.nn.Linear(5, 2))
    y = step(torch.ones(5)) + net(torch.ones(1, 5)).sum(1)
assert torch.equal(y, y.half().float()), y
assert run.report()["native"] == 0
assert torch.compile is before
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
"""


#: A program that trains and compiles nothing; sessions may be inside of each other's program.
TRAINING = """
import sys, torch, fpsim.torch
from torch.optim import SGD, AdamW
codes = [kind.step.__code__ for kind in (SGD, AdamW)]

def train(kind, **options):
    net = torch.nn.Linear(3, 2)
    with torch.no_grad():
        net.weight.fill_(0.5), net.bias.fill_(0.25)
    optimiser = kind(net.parameters(), lr=0.25, **options)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
    heard = []
    optimiser.register_step_post_hook(lambda *_: heard.append(torch.is_grad_enabled()))
    def loss():
        optimiser.zero_grad()
        value = net(torch.ones(1, 3)).square().sum()
        value.backward()
        return value
    for _ in range(2):
        optimiser.step(loss)
        schedule.step()
    optimiser.load_state_dict(optimiser.state_dict())
    assert heard == [True, True], heard
    return optimiser, loss, [p.detach().clone() for p in net.parameters()]

runs = []
for kind in (SGD, AdamW):
    with fpsim.torch.machine("fp32") as run:
        runs.append(train(kind))
    assert run.report()["native"] == 0
assert "torch._dynamo" not in sys.modules, "imported by an optimiser"
for (optimiser, loss, inside), kind in zip(runs, (SGD, AdamW)):
    optimiser.step(loss)  # after the session: torch's own
    assert "torch._dynamo" in sys.modules
    assert all(torch.allclose(x, y) for x, y in zip(inside, train(kind)[2]))
with fpsim.torch.machine("fp32"):
    again = train(SGD)[2]
assert all(torch.equal(x, y) for x, y in zip(again, runs[0][2]))
"""


@pytest.mark.parametrize("program", [PROGRAM, TRAINING], ids=["compiles", "trains"])
def test_a_program_meets_the_compiler_where_it_asks_for_it(program):
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, cwd=ROOT)


@pytest.mark.filterwarnings("ignore")
def test_compiled_functions_run_as_they_are_written():
    twice = torch.compile(lambda x: x * 2 + 1)
    with machine() as session:
        assert torch.equal(twice(torch.ones(3)), torch.full((3,), 3.0))
    assert session.report()["operations"]["machine"] == 2


def test_settings_of_torch_are_as_before():
    def settings():
        return (
            torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled,
            torch.backends.cuda.flash_sdp_enabled(), torch.compile,
        )

    before = settings()
    with machine():
        assert settings() != before
    assert settings() == before
    with pytest.raises(KeyError), machine():
        raise KeyError
    assert settings() == before
