"""A notebook's one line: vendors' names from then on (golden)."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOTEBOOK = """
import fpsim.poptorch
import popart, popdist, poptorch, torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.loss = torch.nn.CrossEntropyLoss()
    def forward(self, x, labels):
        with poptorch.Block("B1", ipu_id=0):
            x = self.layer(x)
            return x, self.loss(x, labels)

model = Model()
training = poptorch.trainingModel(
    model, poptorch.Options(), optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1)
)
print(tuple(training(torch.ones(3, 4), torch.tensor([0, 1, 0]))[0].shape), popart.__name__)
"""


def test_import_poptorch_works_after_one_line_without_the_launcher():
    pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[0] == "(3, 2) ipu.frontends.popart"
