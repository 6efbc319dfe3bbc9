"""fpsim torch: options, exit status, pages of one way and of several (golden)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from ipu.experiments.cli import main

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed; make test-torch"
)
PROGRAM = """
import sys, torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 2).half()
optimiser = torch.optim.AdamW(net.parameters())
for _ in range(3):
    optimiser.zero_grad()
    loss = net(torch.ones(2, 4).half()).square().mean()
    loss.backward()
    optimiser.step()
print("loss", loss.item())
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def test_bad_options_are_one_line(tmp_path, capsys):
    assert main(["torch", str(tmp_path / "none.py")]) == 2
    error = capsys.readouterr().err
    assert "is not a file" in error
    assert error.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_one_sentence_says_so(program, capsys):
    assert main(["torch", str(program)]) == 2
    assert "PyTorch is not installed" in capsys.readouterr().err


@needs_torch
@pytest.mark.parametrize(
    ("options", "message"),
    [(["--policy", "f99"], "f99"), (["--policy", "bf16"], "bfloat16"),
     (["--compare", "fp16+nonsense"], "nonsense"), (["--compare", ""], "one way at least"),
     (["--compare", "fp16", "--sr"], "leave --policy and --sr out"), (["--seed", "x"], "seed"),
     (["--target", "mk9"], "mk9"), (["--unit", "V100_F16_F32"], "unit"),
     (["--ties", "last"], "last"), (["--nosuch"], "No such option")],
)
def test_bad_ways_are_one_line(program, capsys, options, message):
    assert main(["torch", *options, str(program)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


PIPELINE = """
import torch
from ipu.frontends import poptorch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x, labels):
        with poptorch.Block("B1"):
            x = torch.relu(self.first(x))
        with poptorch.Block("B2"):
            x = self.last(x)
            return x, torch.nn.functional.cross_entropy(x, labels)


options = poptorch.Options().setExecutionStrategy(poptorch.PipelinedExecution("B1", "B2"))
options.Training.gradientAccumulation(4)
model = poptorch.trainingModel(Net(), options)
model(torch.ones(12, 4), torch.zeros(12, dtype=torch.long))
"""


@needs_torch
@pytest.mark.parametrize("is_checked", [True, False])
def test_a_plan_is_told_and_memory_is_checked_unless_switched_off(
    tmp_path, capsys, monkeypatch, is_checked
):
    monkeypatch.setattr("ipu.plan.explain.capacity", lambda plan, target: 100)
    program, out = tmp_path / "pipeline.py", tmp_path / "out"
    program.write_text(PIPELINE)
    switch = [] if is_checked else ["--no-memory-check"]
    status = main(["torch", *switch, "--report", str(out), str(program)])
    assert status == int(is_checked)
    told = capsys.readouterr().err
    assert ("out of memory: the plan needs" in told) is is_checked
    plan = json.loads((out / "report.json").read_text())["plan"]
    if is_checked:
        assert plan == []
    else:
        assert plan[0] == "2 stages on IPU 0 1, popart, 6 slots"
        names = {path.name for path in (out / "plan").iterdir()}
        assert names == {"schedule.json", "account.json", "trace.json", "plan.png", "which"}
        page = (out / "plan" / "which" / "index.html").read_text()
        assert "options.Training.gradientAccumulation(4)" in page


@needs_torch
def test_a_run_writes_its_page_and_has_the_programs_status(program, tmp_path, capsys):
    out = tmp_path / "out"
    line = ["torch", "--policy", "fp16", "--sr", "--count", "--report", str(out)]
    assert main([*line, str(program), "3"]) == 3
    captured = capsys.readouterr()
    assert captured.out.startswith("loss 0.2")
    assert "constant 1e-08 becomes zero in binary16: optimizer" in captured.err
    assert str(out / "index.html") in captured.err
    report = json.loads((out / "report.json").read_text())
    assert report["stochastic_rounding"] is True
    assert report["native"] == 0
    page = (out / "index.html").read_text()
    assert "1e-08" in page
    assert "Set eps" not in page  # nothing was divided by it


@needs_torch
def test_the_machine_is_chosen_and_reaches_every_way(program, tmp_path):
    """Products of binary16 go through the tensor cores that were asked for."""
    choice = ["--target", "hypothetical", "--unit", "V100_F16_F32"]
    out = tmp_path / "out"
    ways = ["--compare", "fp16+eps=1e-4", "--report", str(out)]
    assert main(["torch", *choice, *ways, str(program)]) == 0
    report = json.loads((out / "fp16+eps=0.0001" / "report.json").read_text())
    assert report["target"] == "hypothetical"
    assert "V100_F16_F32" in json.dumps(report["units"])


@needs_torch
def test_traps_stop_the_program_where_they_are_switched_on(tmp_path, capsys):
    path = tmp_path / "divide.py"
    path.write_text("import torch\n\ntorch.ones(2) / torch.zeros(2)\n")
    assert main(["torch", str(path)]) == 0
    assert main(["torch", "--traps", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"fpsim: {path}:3: FloatingPointTrap: ")


@needs_torch
def test_an_error_of_the_program_is_one_line(tmp_path, capsys):
    path = tmp_path / "bad.py"
    path.write_text("import torch\n\ntorch.ones(2) + torch.ones(3)\n")
    assert main(["torch", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"fpsim: {path}:3: RuntimeError: The size of tensor a (2) must match")
    assert error.count("\n") == 1


@needs_torch
def test_the_page_tells_why_a_program_stopped(tmp_path, capsys):
    """Of an error and of an interrupt; what ran before is on the page."""
    for what, status, words in (
        ("raise ValueError('no <data>')", 1, "bad.py:4: ValueError: no &lt;data&gt;"),
        ("raise KeyboardInterrupt", 130, "interrupted in step 0"),
    ):
        path, out = tmp_path / "bad.py", tmp_path / str(status)
        path.write_text(f"import torch\n\ntorch.ones(2).half() * 60000\n{what}\n")
        assert main(["torch", "--report", str(out), str(path)]) == status
        page = (out / "index.html").read_text(encoding="utf-8")
        assert f"The program stopped: {words}" in page.replace(str(tmp_path) + "/", "")
        assert json.loads((out / "report.json").read_text())["operations"]["machine"] == 2
    assert "fpsim: interrupted" in capsys.readouterr().err


@needs_torch
def test_a_folder_that_cannot_be_written_is_told_before_the_program_runs(program, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for choice in ([], ["--compare", "fp32"]):
        assert main(["torch", *choice, "--report", str(tmp_path / "file"), str(program)]) == 2
        shown = capsys.readouterr()
        assert shown.err.startswith(f"fpsim: report='{tmp_path / 'file'}' is no folder for a page")
        assert not shown.out


@needs_torch
def test_all_ways_read_the_same_standard_input(tmp_path):
    path, data = tmp_path / "read.py", tmp_path / "data"
    path.write_text("import sys\nprint('read', sys.stdin.read().strip(), 'end')\n")
    data.write_text("seven\n")
    line = [sys.executable, "-m", "ipu.experiments.cli", "torch", "--compare", "fp32,fp16",
            "--report", str(tmp_path / "out"), str(path)]
    with data.open() as file:
        shown = subprocess.run(line, stdin=file, capture_output=True, text=True, check=True)
    assert shown.stdout.count("read seven end") == 2
    piped = subprocess.run(line, input="seven\n", capture_output=True, text=True, check=True)
    assert piped.stdout.count("read  end") == 2


@needs_torch
def test_ways_run_side_by_side(program, tmp_path, capfd):
    out = tmp_path / "out"
    assert main(["torch", "--compare", "fp32,fp16+eps=1e-4", "--pairs", "1", "--report", str(out),
                 str(program)]) == 0
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "train.py: side by side" in page
    for way in ("fp32", "fp16+eps=0.0001"):
        assert f'download="{way}-index.html"' in page
        assert (out / way / "report.json").exists()
    wide = json.loads((out / "fp32" / "report.json").read_text())
    assert wide["policy"].startswith("p=f32")
    assert not wide["constants"]  # binary32 although the program calls .half()
    assert capfd.readouterr().out.count("loss ") == 2
    assert "poptorch" not in sys.modules


SCALED = """
import torch
net = torch.nn.Linear(4, 2)
optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for _ in range(2):
    optimiser.zero_grad()
    scaler.scale((net(torch.randn(8, 4)) - 1).square().mean()).backward()
    scaler.step(optimiser)
    scaler.update()
"""


@needs_torch
@pytest.mark.parametrize(("options", "status", "told"), [
    ([], 0, True), (["--found-inf", "status"], 0, False), (["--nanoo"], 0, False),
    (["--found-inf", "values"], 1, False),
])
def test_a_gradient_scaler_reads_the_status_where_overflow_saturates(
    options, status, told, tmp_path, capfd
):
    path = tmp_path / "train.py"
    path.write_text(SCALED)
    assert main(["torch", "--policy", "mixed", *options, str(path)]) == status
    printed = capfd.readouterr().err
    assert ("gradient scalers read the status register" in printed) == told
    assert ("looks for infinities" in printed) == bool(status)


@needs_torch
@pytest.mark.parametrize("found_inf", [[], ["--found-inf", "values"]])
def test_gradient_scalers_are_compared_by_the_status(found_inf, tmp_path, capfd):
    """Of itself: by the gradients' values a scaler is refused where overflow saturates."""
    path, out = tmp_path / "train.py", tmp_path / "out"
    path.write_text(SCALED)
    assert main(["torch", "--compare", "fp32,mixed", "--pairs", "1", *found_inf, "--report",
                 str(out), str(path)]) == bool(found_inf)
    printed, told = capfd.readouterr().err, "gradient scalers read the status register"
    assert (told in printed) == (not found_inf)
    assert (told in (out / "index.html").read_text(encoding="utf-8")) == (not found_inf)
    assert ("looks for infinities" in printed) == bool(found_inf)


#: Trains on its share of the data; with "both" one process adds the gradients of two shares.
SHARES = """
import hashlib, sys, popdist, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(12, 6), torch.randint(0, 3, (12,))
both = sys.argv[1:] == ["both"]
shares = (0, 1) if both else (popdist.getInstanceIndex(),)
for step in range(3):
    rows = []
    for share in shares:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x[share::2]), y[share::2]).backward()
        rows.append([p.grad for p in net.parameters()])
    if both:
        with torch.no_grad():
            for p, first, second in zip(net.parameters(), *rows):
                p.grad = (first + second) * 0.5
    optimiser.step()
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest())
"""
needs_grpc = pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None, reason="gRPC is not installed: the extra grpc"
)


def fpsim(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ipu.experiments.cli", *arguments], capture_output=True, text=True,
        timeout=300,
    )
    return done.returncode, sorted(done.stdout.split()), done.stderr


@needs_torch
@needs_grpc
def test_replicas_train_as_one_process_that_averages(program, tmp_path):
    program.write_text(SHARES)
    options = "torch", "--policy", "fp16"
    status, (digest,), errors = fpsim(*options, str(program), "both")
    assert status == 0, errors
    out = "--report", str(tmp_path / "out")
    status, words, errors = fpsim(*options, "--replicas", "2", *out, str(program))
    assert (status, words) == (0, sorted(["[0]", digest, "[1]", digest])), errors
    pages = [(tmp_path / "out" / f"replica-{r}" / "index.html").exists() for r in range(2)]
    assert pages == [True, True]


@needs_torch
@needs_grpc
@pytest.mark.tier("full")
def test_a_replica_that_fails_ends_the_others(program):
    program.write_text(SHARES.replace("for step in", "assert shares == (0,)\nfor step in"))
    status, _, errors = fpsim("torch", "--replicas", "2", str(program))
    assert status in (1, 3)
    assert "AssertionError" in errors
    assert "[0] fpsim: worker 1 at" in errors


@needs_torch
@pytest.mark.tier("full")
def test_replicas_over_mpi_have_the_same_weights(program):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: the extra mpi")
    program.write_text(SHARES)
    _, (digest,), _ = fpsim("torch", str(program), "both")
    counts = "--num-instances", "2", "--num-replicas", "2"
    launch = "poprun", *counts, "--transport", "mpi", "--allow-run-as-root"
    status, words, errors = fpsim(*launch, "fpsim", "torch", str(program))
    assert (status, words) == (0, sorted(["[0]", digest, "[1]", digest])), errors


@needs_torch
def test_replicas_that_cannot_be_are_one_line(program, capsys, monkeypatch):
    assert main(["torch", "--replicas", "2", "--compare", "fp32,fp16", str(program)]) == 2
    assert "leave --replicas out" in capsys.readouterr().err
    for name, value in (("INSTANCES", "1"), ("TOTAL_REPLICAS", "2"), ("LOCAL_REPLICAS", "2")):
        monkeypatch.setenv(f"POPDIST_NUM_{name}", value)
    monkeypatch.setenv("POPDIST_INSTANCE_INDEX", "0")
    monkeypatch.setenv("FPSIM_TRANSPORT", "local")
    program.write_text(SHARES)
    assert main(["torch", str(program), "both"]) == 1
    message = "a model that is not PopTorch's is one replica; use --num-instances 2"
    assert message in capsys.readouterr().err


@needs_torch
def test_a_module_runs_as_of_python_m(tmp_path, monkeypatch, capsys):
    """Its options are its own; in every way of a comparison too."""
    package = tmp_path / "package_of_m"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(PROGRAM.replace("print(", "print(sys.argv, __package__, "))
    monkeypatch.chdir(tmp_path)
    argv = [str(package / "train.py"), "3", "--policy"]
    try:
        assert main(["torch", "--policy", "fp16", "-m", "package_of_m.train", *argv[1:]]) == 3
    finally:
        for name in [n for n in sys.modules if n.startswith("package_of_m")]:
            del sys.modules[name]
    assert capsys.readouterr().out.startswith(f"{argv} package_of_m loss 0.2")
    out = tmp_path / "out"
    line = ["--compare", "fp32,fp16", "--pairs", "1", "--report", str(out), "-m",
            "package_of_m.train"]
    assert main(["torch", *line]) == 0
    assert capsys.readouterr().out.count("package_of_m loss") == 2
    assert main(["torch", "-m", "no_package.train"]) == 2
    assert "module='no_package.train' is not there" in capsys.readouterr().err


@needs_torch
def test_a_relative_program_is_told_with_its_line(tmp_path, monkeypatch, capsys):
    """By the error and by its note; traps too."""
    (tmp_path / "relative.py").write_text("import torch\n\ntorch.ones(2) / torch.zeros(2)\n")
    monkeypatch.chdir(tmp_path)
    assert main(["torch", "--traps", "relative.py"]) == 1
    place = f"{tmp_path / 'relative.py'}:3"
    error = capsys.readouterr().err
    assert error.startswith(f"fpsim: {place}: FloatingPointTrap: ")
    assert f"at {place})" in error


@needs_torch
def test_a_pattern_of_no_layer_is_a_bad_option(program, capsys):
    assert main(["torch", "--policy", "fp16+Liner=f32", str(program)]) == 2
    error = capsys.readouterr().err
    assert "policy pattern 'Liner' matches no layer of this program" in error
    assert "did you mean 'Linear'?" in error
    assert error.count("\n") == 1
    assert main(["torch", "--policy", "fp16+Linear=f32", str(program)]) == 0


@needs_torch
def test_the_first_step_is_chosen(tmp_path, capsys):
    """Under stochastic rounding a step has bits of its own."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.replace("AdamW(net.parameters())", "SGD(net.parameters(), lr=0.1)"))
    shown = []
    for options in ([], ["--step", "0"], ["--step", "7"]):
        assert main(["torch", "--policy", "fp16", "--sr", "--count", *options, str(path)]) == 0
        captured = capsys.readouterr()
        shown.append(captured.out)
    assert shown[0] == shown[1] != shown[2]
    assert "3 steps from step 7 on" in captured.err
    assert main(["torch", "--step", "-1", str(path)]) == 2


@needs_torch
def test_a_program_beside_the_machine_is_told_everywhere(tmp_path, capsys):
    path, out = tmp_path / "empty.py", tmp_path / "out"
    path.write_text("print(2)\n")
    words = "nothing was computed on the machine"
    assert main(["torch", str(path)]) == 0
    assert words not in capsys.readouterr().err
    for options in (["--policy", "fp16"], ["--report", str(out)], ["--count"]):
        assert main(["torch", *options, str(path)]) == 0
        assert capsys.readouterr().err.count(words) == 1
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "Nothing was computed on the machine." in page
    assert "peaks for a change" not in page
    path.write_text("import nosuch\n")
    assert main(["torch", "--report", str(out), str(path)]) == 1
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "Mend what stopped the program: " in page
    assert "peaks for a change" not in page


@needs_torch
def test_a_policy_is_compared_by_the_tolerance_of_a_perturbed_run(tmp_path, capsys):
    """fp16 of the same program is within; where weights become another thing the line is named."""
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, torch\n"
        "torch.manual_seed(0)\n"
        "nn = torch.nn\n"
        "net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))\n"
        "with torch.no_grad(): net[2].weight *= float(sys.argv[1])\n"
        "optimiser = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for _ in range(2):\n"
        "    optimiser.zero_grad()\n"
        "    net(torch.ones(4, 8)).square().mean().backward()\n"
        "    optimiser.step()\n"
    )

    def digest(name, *options, factor=1.0):
        path = tmp_path / name
        assert main(["torch", *options, "--digest", str(path), "--sketch", str(program),
                     str(factor)]) == 0
        return str(path)

    reference, half = digest("a"), digest("b", "--policy", "fp16")
    wrong = digest("d", factor=1.001)
    moved, moved_more = (
        digest(name, "--perturb", name, "--seed", "1") for name in ("binary32", "binary16"))
    capsys.readouterr()
    assert main(["diff", reference, half, "--tolerance", moved_more]) == 0
    assert "within the tolerance" in capsys.readouterr().out
    assert main(["diff", reference, half, "--tolerance", moved]) == 2
    assert "write them with --perturb binary16" in capsys.readouterr().err
    assert main(["diff", reference, wrong, "--tolerance", moved]) == 1
    told = capsys.readouterr().out
    assert f"aten.mul in optimizer (optimizer), step 0, {program}:5: the error 0.001 " in told
    assert main(["torch", "--sketch", str(program), "1.0"]) == 2
    assert "--keep and --sketch belong to --digest FILE" in capsys.readouterr().err
