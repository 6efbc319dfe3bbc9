"""fpsim plan: the front, the page, refusals (golden)."""

from __future__ import annotations

import importlib.util

import pytest

from ipu.experiments.cli import main
from tests.experiments.accessible import NARROW, faults, walk

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed; make test-torch"
)
PROGRAM = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimiser = torch.optim.Adam(net.parameters())
for step in range(1000):
    optimiser.zero_grad()
    net(torch.ones(16, 64)).square().mean().backward()
    optimiser.step()
    print("step", step)
"""


def written(tmp_path, text):
    path = tmp_path / "train.py"
    path.write_text(text)
    return str(path)


def test_a_program_gets_a_plan_its_code_and_a_page(browser, tmp_path, capsys):
    out = tmp_path / "page"
    program = written(tmp_path, PROGRAM)
    assert main(["plan", "--ipus", "2", "--report", str(out), program]) == 0
    printed = capsys.readouterr()
    assert "step 1" not in printed.out, "the program ends with its first update"
    assert "use the plan with *: " in printed.out
    assert "options.Training.gradientAccumulation(" in printed.out
    assert "one update of 16 micro-batches" in printed.out
    assert "s of processor time" in printed.err
    page = (out / "index.html").read_text()
    assert "train.py: which plan?" in page
    assert "options = poptorch.Options()" in page
    assert page.count("<svg") == 2
    assert (out / "front.png").exists()
    assert (out / "plan.png").exists()
    assert (faults(browser, out / "index.html"), walk(browser, out / "index.html", NARROW)) == (
        [], [])


def test_more_ipus_than_layers_need_replicas(tmp_path, capsys):
    program = written(tmp_path, PROGRAM)
    assert main(["plan", "--ipus", "9", "--replicas", "1", program]) == 2
    error = capsys.readouterr().err
    assert "ipus=9 with replicas=1: the model has 5 layers that can be cut" in error
    assert "use ipus=5, or more replicas" in error


@pytest.mark.parametrize(("text", "reason"), [
    ("print(1)", "no torch.nn.Module was called with gradients on"),
    ("import torch\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))", "no backward pass ran"),
    (PROGRAM.replace("    optimiser.step()\n", ""), "no optimiser of torch took a step"),
])
def test_a_program_without_a_step_of_a_model_is_refused(tmp_path, capsys, text, reason):
    text = text.replace("range(1000)", "range(2)")
    assert main(["plan", written(tmp_path, text)]) == 2
    error = capsys.readouterr().err
    assert "has no training step to plan" in error
    assert reason in error


def test_bad_input_is_one_line(tmp_path, capsys):
    assert main(["plan", str(tmp_path / "none.py")]) == 2
    assert "is not a file" in capsys.readouterr().err
    assert main(["plan", "--target", "mk9", written(tmp_path, PROGRAM)]) == 2
    assert "target='mk9' is not known" in capsys.readouterr().err
    assert main(["plan", written(tmp_path, "1 / 0")]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


POPTORCH = """
import torch, poptorch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
    def forward(self, x):
        with poptorch.Block("all", ipu_id=0):
            y = self.layers(x)
        return y, poptorch.identity_loss(y.square(), reduction="mean")
net, options = Net(), poptorch.Options()
options.Training.gradientAccumulation(4)
optimiser = poptorch.optim.AdamW(net.parameters(), lr=0.1)
training = poptorch.trainingModel(net, options, optimiser)
for step in range(1000):
    training(torch.ones(8, 8))
    print("step", step)
"""


def test_a_program_of_poptorch_is_cut_between_its_layers(tmp_path, capsys):
    assert main(["plan", "--ipus", "2", written(tmp_path, POPTORCH)]) == 0
    printed = capsys.readouterr().out
    assert "step 1" not in printed
    assert "one update of 4 micro-batches" in printed
    # Offloading the optimiser's state is worth something: it is known.
    assert any("layers." in line and " state " in line for line in printed.splitlines())
