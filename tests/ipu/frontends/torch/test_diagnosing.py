"""Diagnosis of unedited programs by replay (differential, golden)."""

from __future__ import annotations

import pytest

from ipu.run.restoring import Restoring, sites_of
from tests.ipu.frontends.torch.framework import machine, torch
from tests.ipu.frontends.torch.hospital.programs import HEALTHY, ILLNESSES, program_text

program = pytest.importorskip("ipu.frontends.torch.program")
from ipu.frontends.processes.diagnosing import diagnose_program  # noqa: E402


def diagnosed(tmp_path, illness, model, *, steps=3):
    path = tmp_path / "train.py"
    path.write_text(program_text(model, illness, illness.sizes[0]))
    session = machine(illness.policy, count=True)
    return diagnose_program(session, path, [], steps, seconds=300.0)


def losses_of(path, session):
    program.run_program(session, path, [])
    return session.report()["losses"]


def test_all_sites_given_back_are_binary32_bit_for_bit(tmp_path):
    """And none given back is the run itself."""
    path = tmp_path / "train.py"
    path.write_text(program_text("cnn", HEALTHY["half optimiser"], "1e-3"))
    low = machine("p=f16,c=f16,part=f16", count=True)
    before = losses_of(path, low)
    sites = sites_of(low.report(), low.policy)
    wide = losses_of(path, machine("fp32", count=True))
    assert losses_of(path, low.again(low.way, 0)) == before
    assert losses_of(path, low.again(low.way, 0, Restoring(frozenset(sites)))) == wide
    assert before != wide


def test_a_window_of_steps_is_given_back(tmp_path):
    """Outside of it the run is as it was; a window of all steps is none."""
    path = tmp_path / "train.py"
    path.write_text(program_text("mlp", HEALTHY["plain"], ""))
    low = machine("mixed", count=True)
    before = losses_of(path, low)
    sites = frozenset(sites_of(low.report(), low.policy))
    wide = losses_of(path, low.again(low.way, 0, Restoring(sites)))
    assert losses_of(path, low.again(low.way, 0, Restoring(sites, steps=(0, 99)))) == wide
    late = losses_of(path, low.again(low.way, 0, Restoring(sites, steps=(2, 4))))
    assert late[:2] == before[:2]
    assert late[2] not in (before[2], wide[2])


NORMS = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.GroupNorm(2, 4), nn.LayerNorm(6), nn.Flatten(),
    nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(2):
    loss = model(torch.randn(8, 2, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("role", ["forward", "backward"])
def test_norms_compute_their_directions_in_two_formats(tmp_path, role):
    """What the forward saves is read in the format of the backward."""
    path = tmp_path / "train.py"
    path.write_text(NORMS)
    low = machine("mixed", count=True)
    before = losses_of(path, low)
    sites = frozenset(site for site in sites_of(low.report(), low.policy) if site.role == role)
    assert {"1", "2", "3"} <= {site.layer for site in sites}
    after = losses_of(path, low.again(low.way, 0, Restoring(sites)))
    assert after != before
    assert after == pytest.approx(before, rel=1e-2)


def test_a_constant_of_the_optimiser(tmp_path):
    """The remedy's patch is the program that is well."""
    result = diagnosed(tmp_path, ILLNESSES["eps"], "mlp")
    assert result.answer == "ill"
    assert "1e-08 is zero" in result.sentence
    assert [str(site) for site in result.necessary] == ["optimizer (update)"]
    assert str(result.cure.way).endswith("+eps=0.0001")


def test_a_layer_whose_squares_overflow(tmp_path):
    result = diagnosed(tmp_path, ILLNESSES["variance of a norm"], "cnn")
    assert {site.layer for site in result.necessary} == {"stage"}
    assert "stage=f32" in str(result.cure.way)
    assert result.cure.harm < 0.05
    assert [dose.cures for dose in result.doses] == [False] * 4 + [True] * 3  # a harm of range


def test_a_healthy_program(tmp_path):
    result = diagnosed(tmp_path, HEALTHY["masked"], "words")
    assert (result.answer, result.runs) == ("healthy", 2)


def test_a_step_function_is_diagnosed_too():
    def step(seed):
        net = torch.nn.Linear(8, 4)
        optimiser = torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-9)
        for _ in range(9):
            optimiser.zero_grad()
            net(torch.randn(4, 8)).relu().square().mean().backward()
            optimiser.step()

    run = machine("fp16")
    result = run.diagnose(step, steps=3)
    assert result.answer == "ill"
    assert len(result.losses) == 3
    assert str(result.cure.way) in ("fp16+eps=0.0001", "fp16+states=f32")
    with pytest.raises(TypeError, match="no function"):
        run.diagnose(3)
    with run, pytest.raises(RuntimeError, match="leave this one first"):
        run.diagnose(step)


SADDLE = """
import torch
w = torch.nn.Parameter(torch.full((17,), 2e-5))
optimizer = torch.optim.SGD([w], lr=1000.0)
for step in range(60):
    optimizer.zero_grad()
    error = (w[0] - 1).square() / 2 + (1 - w[1:].square()).square().sum() / 8
    (error * 1e-3).backward()
    optimizer.step()
"""


def test_gradients_whose_underflow_harms_after_the_first_steps(tmp_path):
    """Sixteen weights leave a saddle after twenty steps, and never without gradients."""
    path = tmp_path / "train.py"
    path.write_text(SADDLE)
    few = diagnose_program(machine("fp16", count=True), path, [], 10, seconds=300.0)
    result = diagnose_program(machine("fp16", count=True), path, [], seconds=300.0)
    assert (few.answer, result.answer, result.steps) == ("healthy", "ill", 40)
    assert result.sentence.startswith("Gradients underflow")
    assert "scale" in str(result.cure.way)


NARROW_OPERANDS = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
x, y = torch.randn(64, 8), torch.randn(64, 4)
for step in range(10):
    optimizer.zero_grad()
    (torch.nn.functional.mse_loss(net(x), y) / 4).backward()
    optimizer.step()
"""


def test_gradients_that_the_cast_of_operands_flushes_are_told_in_its_format(tmp_path):
    """Results are binary16, which has all of them."""
    path = tmp_path / "train.py"
    path.write_text(NARROW_OPERANDS)
    run = machine("c=e4m3fn,out=f16", target="hypothetical", count=True)
    result = diagnose_program(run, path, [], 10, seconds=300.0)
    assert result.answer == "ill"
    assert "underflows to zero in the cast of its operands to e4m3fn (backward" in result.sentence


STATISTICS = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32, momentum=MOMENTUM), nn.ReLU(),
                    nn.Linear(32, 4))
x, y = torch.randn(64, 16) + 3, torch.randint(0, 4, (64,))
optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(9):
    optimiser.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimiser.step()
"""


@pytest.mark.parametrize(("momentum", "policy", "answer"), [
    ("1e-4", "fp16", "ill"), ("0.1", "fp16", "healthy"), ("1e-4", "mixed", "ill"),
])
def test_batch_statistics_that_stand_still(tmp_path, momentum, policy, answer):
    """No loss shows it: the norm's layer in binary32 mends it, which is run."""
    path = tmp_path / "train.py"
    path.write_text(STATISTICS.replace("MOMENTUM", momentum))
    result = diagnose_program(machine(policy, count=True), path, [], 5, seconds=300.0)
    assert result.answer == answer
    if answer == "ill":
        assert "1.running_var, which native_batch_norm writes" in result.sentence
        assert {site.layer for site in result.necessary} == {"1"}
        assert str(result.cure.way) == f"{policy}+1=f32"


HALVES = """
import poptorch
import torch
from torch import nn
torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 4)

    def forward(self, x, wanted):
        out = self.body(x)
        return out, poptorch.identity_loss(nn.functional.mse_loss(out, wanted) * SIZE, "none")

x, wanted = torch.randn(32, 16), 0.02 * torch.randn(32, 4)
net = Model().half()
with torch.no_grad():
    net.body.weight.mul_(0.01)
    net.body.bias.mul_(0.01)
optimizer = poptorch.optim.SGD(net.parameters(), lr=0.5 / SIZE, use_combined_accum=False)
model = poptorch.trainingModel(net, poptorch.Options(), optimizer)
for step in range(5):
    model(x.half(), wanted.half())
"""


@pytest.mark.parametrize(("size", "answer"), [("2.0 ** -14", "ill"), ("1.0", "healthy")])
def test_a_program_of_halves_is_judged_beside_binary32_whatever_its_policy(tmp_path, size, answer):
    """In binary32 the halves of the program stay, and those of the run beside it do not."""
    path = tmp_path / "train.py"
    path.write_text(HALVES.replace("SIZE", size))
    result = diagnose_program(machine("fp32", count=True), path, [], 5, seconds=60.0)
    assert (result.answer, result.beside) == (answer, "binary32")
    if answer == "ill":
        assert result.harm > 0.3
        assert "the program's own narrow tensors are no sites" in str(result)


AVERAGE = """
import torch
value, total = torch.ones(8), torch.zeros(8)
for step in range(10_000_000):
    total = total + value * 0.001
"""


def test_a_program_without_steps_ends(tmp_path):
    path = tmp_path / "integrate.py"
    path.write_text(AVERAGE)
    result = diagnose_program(machine("fp16", count=True), path, [], 5, seconds=4.0)
    assert result.steps == 5
    assert result.left_out.startswith(
        "the program ended no step of an optimiser in 1 s, so each run stops after ")


WEIGHTS_AVERAGED = """
import copy
import torch

torch.manual_seed(0)
student = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)
x = torch.randn(64, 16)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(20):
    loss = torch.nn.functional.cross_entropy(student(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.add_(s - t, alpha=0.001)
"""


def test_an_average_of_weights_after_the_optimiser_is_beside_the_training(tmp_path):
    """The model that holds it is told by the name that the program gives it."""
    path = tmp_path / "train.py"
    path.write_text(WEIGHTS_AVERAGED)
    result = diagnose_program(machine("fp16", count=True), path, [], 10, seconds=300.0)
    assert result.answer == "ill"
    assert result.sentence.startswith(
        "The training is binary32's; what is wrong is beside it, in a tensor that no optimiser "
        "updates, as an average of weights is: ")
    assert "train.py:19), in parameters of teacher." in result.sentence
    assert "(beside the optimiser, step " in result.sentence


LEVEL = """
import torch

torch.manual_seed(0)

class Level(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.level = torch.nn.Parameter(torch.full((3,), 1024.0))

    def forward(self, x):
        return self.level - 1024.0 - x

net, x = Level(), torch.full((3,), -20.0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(300):
    loss = (net(x) ** 2).sum() / 20
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_stochastic_rounding_cures_swallowed_updates_over_more_steps(tmp_path):
    """In ten steps three numbers that wander lessen the harm; they follow binary32's later."""
    path = tmp_path / "train.py"
    path.write_text(LEVEL)
    result = diagnose_program(machine("fp16", count=True), path, [], 10, seconds=300.0)
    assert result.sentence.startswith(
        "Updates are swallowed: 30 of 30 updates of level (Level) are at most half a spacing of "
        "the parameter in binary16, typically 1/8 of one (optimizer, step 0, ")
    assert str(result.cure.way) == "fp16+sr"
    assert result.cure.steps >= 40
