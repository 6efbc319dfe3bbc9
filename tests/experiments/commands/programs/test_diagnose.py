"""fpsim diagnose: exit status, files, bad options (golden)."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest

from ipu.experiments.cli import main
from ipu.experiments.commands.programs.diagnose import framework_of

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed; make test-torch"
)
PROGRAM = """
import torch
net = torch.nn.Linear(4, 2)
optimiser = torch.optim.Adam(net.parameters(), lr=0.01, eps=EPS)
for _ in range(9):
    optimiser.zero_grad()
    x = torch.randn(8, 4) * torch.tensor([1.0, 1.0, 1.0, 0.0])
    loss = (net(x) - 1).square().mean()
    loss.backward()
    optimiser.step()
print("the program's own output")
"""
SCALED = """
import torch
net = torch.nn.Linear(4, 2)
optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, backoff_factor=0.99)
for _ in range(4):
    optimiser.zero_grad()
    loss = (net(torch.randn(8, 4)) - 1).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    scaler.update()
"""


@needs_torch
@pytest.mark.parametrize(("eps", "status", "answer"), [("1e-9", 3, "ill"), ("1e-3", 0, "healthy")])
def test_status_files_and_patch(tmp_path, capsys, eps, status, answer):
    program, out = tmp_path / "train.py", tmp_path / "out"
    program.write_text(PROGRAM.replace("EPS", eps))
    assert main(["diagnose", "--steps", "3", "--seconds", "300", "--report", str(out),
                 str(program)]) == status
    printed = capsys.readouterr().out
    data = json.loads((out / "diagnosis.json").read_text())
    assert (data["answer"], data["steps"]) == (answer, 3)
    assert "the program's own output" not in printed
    page = (out / "index.html").read_text()
    assert f"{data['way']}: {answer}</h1>" in page
    verdicts = re.findall(r"cures( over 9 steps)?</td>", page)  # the program has no more
    assert len(verdicts) == len(data["remedies"]) + len(data["doses"])
    assert all(remedy["steps"] == 9 for remedy in data["remedies"])
    patch = (out / "remedy.patch").read_text()
    assert any(row.startswith("+") for row in patch.splitlines()) == (answer == "ill")
    assert (out / "diagnosis.txt").read_text().strip() in printed


@needs_torch
def test_a_format_that_no_ipu_has_runs_on_the_target_that_is_asked_for(tmp_path, capsys):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.replace("EPS", "1e-3"))
    words = ["diagnose", "--policy", "bf16", "--steps", "3", "--seconds", "300"]
    assert main([*words, str(program)]) == 2
    assert "target='hypothetical'" in capsys.readouterr().err
    assert main([*words, "--target", "hypothetical", str(program)]) == 0
    assert "beside binary32: healthy" in capsys.readouterr().out


@needs_torch
@pytest.mark.parametrize(("scale", "status"), [("2.0 ** 8", 0), ("2.0 ** 26", 3)])
def test_a_gradient_scaler_reads_the_status(tmp_path, capsys, scale, status):
    program = tmp_path / "train.py"
    program.write_text(SCALED.replace("SCALE", scale))
    assert main(["diagnose", "--policy", "mixed", "--steps", "3", str(program)]) == status
    printed = capsys.readouterr().out
    assert ("the loss scale is too high" in printed) == (status == 3)


@needs_torch
@pytest.mark.parametrize("is_scaled", [False, True])
def test_the_printed_command_is_the_users(tmp_path, capsys, is_scaled):
    """Its arguments and options are those that were given; a scaler asks for the status too."""
    program = tmp_path / "train.py"
    text = "import sys\nassert sys.argv[1:] == ['two words']\n" + PROGRAM.replace(", eps=EPS", "")
    if is_scaled:
        text = text.replace("loss.backward()", "scaler.scale(loss).backward()").replace(
            "optimiser.step()", "scaler.step(optimiser)\n    scaler.update()").replace(
            "for _", "scaler = torch.amp.GradScaler('cpu', init_scale=64.0)\nfor _")
    program.write_text(text)
    assert main(["diagnose", "--steps", "3", "--seed", "5", str(program), "two words"]) == 3
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("+fpsim torch --policy fp16+")
    options = "--seed 5 --found-inf status" if is_scaled else "--seed 5"
    assert last.endswith(f" {options} {program} 'two words'")
    assert ("--found-inf" in last) == is_scaled


@needs_torch
def test_options_of_the_other_front_end(tmp_path, capsys):
    program = tmp_path / "train.py"
    program.write_text("import torch\n")
    assert main(["diagnose", "--nanoo", "--tf1", str(program)]) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(("text", "framework"), [
    ("import numpy\nimport tensorflow as tf\n", "tensorflow"), ("import poptorch.x\n", "torch"),
    ("from tensorflow.python import ipu\nimport torch\n", "tensorflow"), ("x = (\n", "torch"),
    ("def f():\n    import keras\n", "tensorflow"), ("'import tensorflow'\n", "torch"),
])
def test_a_front_end_is_known_by_imports(tmp_path, text, framework):
    program = tmp_path / "train.py"
    program.write_text(text)
    assert framework_of(str(program)) == framework


@pytest.mark.parametrize(("options", "message"), [
    (["--policy", "f99"], "f99"), (["--steps", "0"], "--steps"), (["--seconds", "0"], "--seconds"),
])
@needs_torch
def test_bad_options_are_one_line(tmp_path, capsys, options, message):
    program = tmp_path / "train.py"
    program.write_text("")
    assert main(["diagnose", *options, str(program)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@needs_torch
def test_a_file_that_is_not_there(tmp_path, capsys):
    assert main(["diagnose", str(tmp_path / "none.py")]) == 2
    assert "is not a file" in capsys.readouterr().err
