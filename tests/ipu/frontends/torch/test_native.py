"""The machine beside torch itself, operation by operation (differential, statistical)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipu.experiments.cli import main
from ipu.run.tolerance import compare_within
from tests.tiers import pick

torch = pytest.importorskip("torch")

from ipu.frontends.torch import machine, native  # noqa: E402
from ipu.frontends.torch.program import perturbed, run_program  # noqa: E402

PERCEPTRON = """
import sys, torch
torch.manual_seed(int(sys.argv[1]))
nn = torch.nn
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1),
                    nn.Linear(32, 32), nn.Hardswish(), nn.Linear(32, 4))
scale = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
with torch.no_grad():
    net[4].weight *= scale
optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
for _ in range(4):
    order = torch.randperm(64)[:32]
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(net(x[order]), y[order])
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimiser.step()
    print(repr(loss.item()))
"""
ATTENTION = """
import sys, torch
torch.manual_seed(int(sys.argv[1]))
F = torch.nn.functional
qkv, out, head = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16), torch.nn.Linear(16, 11)
table, norm = torch.nn.Embedding(11, 16), torch.nn.LayerNorm(16)
net = torch.nn.ModuleList([qkv, out, head, table, norm])
optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
tokens = torch.randint(0, 11, (4, 9))
for _ in range(3):
    x = table(tokens[:, :-1])
    q, k, v = qkv(norm(x)).view(4, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
    mask = torch.full((8, 8), float("-inf")).triu(1)
    weights = (q @ k.transpose(-1, -2) / 8 ** 0.5 + mask).softmax(-1)
    x = x + out((weights @ v).transpose(1, 2).reshape(4, 8, 16))
    optimiser.zero_grad()
    loss = F.cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimiser.step()
    print(repr(loss.item()))
"""
IMAGES = """
import sys, torch
torch.manual_seed(int(sys.argv[1]))
nn = torch.nn
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                    nn.Linear(8, 4))
optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
x, y = torch.randn(16, 3, 10, 10), torch.randint(0, 4, (16,))
for _ in range(3):
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimiser.step()
    print(repr(loss.item()))
"""
PROGRAMS = {"perceptron": PERCEPTRON, "attention": ATTENTION, "images": IMAGES}


@pytest.fixture
def digests(tmp_path):
    """Digests of a program of this name: of a session, perturbed or as it is."""

    def written(name, session, seed, *, noise="", more=()):
        program, path = tmp_path / f"{name}.py", tmp_path / f"{noise}{id(session)}"
        program.write_text(PROGRAMS[name])
        arguments = [str(seed), *more]
        if not noise:
            with session.digest(path, sketch=True):
                assert run_program(session, program, arguments) == 0
            return path
        session.perturb(noise, seed + 1_000)
        with perturbed(noise, seed + 1_000), session.digest(path, sketch=True):
            assert run_program(session, program, arguments) == 0
        return path

    return written


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_machine_is_within_of_torch_itself(digests, capfd, name):
    """Statistical: no alarm in so many programs of other seeds, which one in 20 would be 5 % of."""
    for seed in range(pick(1, 7, 20)):
        reference = digests(name, native(), seed)
        tolerance = digests(name, native(), seed, noise="binary32")
        compliance = compare_within(reference, digests(name, machine(), seed), [tolerance])
        assert compliance.is_within, f"seed {seed}: {compliance}"
        assert compliance.matched > 9 * compliance.unmatched
        assert compliance.untold < compliance.matched / 10


def test_a_native_run_prints_what_torch_computes(digests, capfd):
    """The program without fpsim, in this process, has the same losses to their last digits."""
    digests("perceptron", native(), 3)
    ours = [float(line) for line in capfd.readouterr().out.splitlines()]
    program = compile(PERCEPTRON, "program", "exec")
    import sys

    before, sys.argv = sys.argv, ["program", "3"]
    try:
        exec(program, {})
    finally:
        sys.argv = before
    theirs = [float(line) for line in capfd.readouterr().out.splitlines()]
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_a_changed_constant_is_named(digests, capfd):
    """One layer's weights times 1.0001: the multiplication itself, in the first step."""
    reference = digests("perceptron", native(), 0)
    tolerance = digests("perceptron", native(), 0, noise="binary32")
    wrong = digests("perceptron", machine(), 0, more=("1.0001",))
    compliance = compare_within(reference, wrong, [tolerance])
    assert not compliance.is_within
    assert compliance.line.name == "aten.mul"
    assert compliance.line.line.endswith("perceptron.py:9")
    assert compliance.line.place.startswith("0/")


@pytest.mark.parametrize("layer", ["0", "4", "6"])
def test_one_layer_with_fewer_digits_is_named(digests, capfd, layer):
    """Its results are rounded to binary16, under the name of binary32."""
    reference = digests("perceptron", native(), 0)
    tolerance = digests("perceptron", native(), 0, noise="binary32")
    # Beside a policy of binary32 alone, this one rounds a layer's operands and results.
    worse = digests("perceptron", machine({layer: "p=f32,c=f16,part=f32", "*": "fp32"}), 0)
    Path(worse).write_text(Path(worse).read_text().replace("\tbinary16\t", "\tbinary32\t"))
    compliance = compare_within(reference, worse, [tolerance])
    assert not compliance.is_within
    assert (compliance.line.layer, compliance.line.direction) == (layer, "forward")


def test_underflow_is_no_matter_of_precision(digests, capfd):
    """bfloat16 is within of what its precision explains; binary16 loses squares of gradients."""
    reference = digests("perceptron", machine(), 0)
    half, brain = (
        compare_within(
            reference, digests("perceptron", machine(policy, target=target), 0),
            [digests("perceptron", machine(), 0, noise=noise)])
        for policy, target, noise in (
            ("fp16", None, "binary16"), ("bf16", "hypothetical", "bfloat16")))
    assert brain.is_within
    assert not half.is_within
    assert (half.line.name, half.line.direction) == ("aten.addcmul", "optimizer")


def test_the_command_line(tmp_path, capfd):
    """fpsim torch --native beside the machine, and what it does not go with."""
    program = tmp_path / "train.py"
    program.write_text(PERCEPTRON)
    paths = {name: str(tmp_path / name) for name in ("torch", "machine", "noise")}
    for name, options in (
        ("torch", ["--native"]), ("machine", []),
        ("noise", ["--native", "--perturb", "binary32", "--seed", "1"]),
    ):
        assert main(["torch", *options, "--digest", paths[name], "--sketch", str(program),
                     "0"]) == 0
    capfd.readouterr()
    assert main(["diff", paths["torch"], paths["machine"], "--tolerance", paths["noise"]]) == 0
    assert "within the tolerance: " in capfd.readouterr().out
    for options in (["--native"], ["--native", "--count", "--digest", paths["torch"]],
                    ["--native", "--policy", "fp16", "--digest", paths["torch"]]):
        assert main(["torch", *options, str(program), "0"]) == 2
        assert "--native runs nothing on the machine" in capfd.readouterr().err
    assert main(["torch", "--native", "--digest", paths["torch"], str(program), "word"]) == 1
    assert "ValueError" in capfd.readouterr().err
