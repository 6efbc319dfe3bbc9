"""Shadows beside the machine: native binary64, without a trace in the run (differential)."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.ipu.frontends.torch.framework import machine, torch
from tests.tiers import pick

nn, functional = torch.nn, torch.nn.functional


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.attention(self.first(x)).chunk(3, dim=-1)
        heads = [t.unflatten(-1, (2, -1)).transpose(1, 2) for t in (q, k, v)]
        y = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    def __init__(self, width=16, words=11, length=6):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x):
        h = self.words(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(36, 3),
    )


OPTIMISERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "foreach": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True),
}


def trained(make, optimiser, *, wide=False, steps=2, run=None):
    """Parameters and buffers, and gradients of the last step, as the run's shadow has them."""
    torch.manual_seed(0)
    net = make()
    net = net.double() if wide else net
    optimiser = OPTIMISERS[optimiser](net.parameters())
    torch.manual_seed(1)
    is_text = isinstance(net, Transformer)
    x = torch.randint(0, 11, (4, 6)) if is_text else torch.randn(8, 1, 8, 8)
    y = x.roll(1, 1).flatten() if is_text else torch.randint(0, 3, (8,))
    for _ in range(steps):
        optimiser.zero_grad()
        out = net(x.double() if wide and not is_text else x)
        functional.cross_entropy(out.flatten(0, -2), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimiser.step()
    tensors = dict(net.named_parameters()) | dict(net.named_buffers())
    tensors |= {f"{name} gradient": p.grad for name, p in net.named_parameters()}
    tensors = {name: t for name, t in tensors.items() if t.is_floating_point()}
    if run is None:
        return {name: t.detach().clone() for name, t in tensors.items()}
    with torch.utils._python_dispatch._disable_current_modes():
        return {name: run.shadowing.value(t.detach()).clone() for name, t in tensors.items()}


@pytest.mark.parametrize("policy", pick(["mixed"], ["fp32", "mixed"], ["fp32", "mixed", "fp16"]))
@pytest.mark.parametrize("make", [Transformer, convolutional])
@pytest.mark.parametrize("optimiser", list(OPTIMISERS))
def test_shadows_are_native_binary64(make, optimiser, policy):
    """Gradients, parameters and running statistics of two steps, to 1e-12."""
    run = machine(policy)
    run.shadow(9)
    with run:
        shadows = trained(make, optimiser, run=run)
    native = trained(make, optimiser, wide=True)
    # A shadow of another value than the machine's is no copy of it.
    assert shadows.keys() == native.keys()
    for name, value in native.items():
        size = float(value.norm())
        if size < 1e-12:  # bias of keys, whose gradient is zero
            continue
        assert float((shadows[name] - value).norm()) <= 1e-12 * size, name


@pytest.mark.parametrize("policy", ["fp32", "fp16"])
def test_shadows_move_no_bit(policy, tmp_path):
    lines = []
    for steps in (0, 2):
        run = machine(policy, sr=policy == "fp16", seed=3)
        if steps:
            run.shadow(steps)
        path = tmp_path / f"{steps}.txt"
        with run.digest(path), run:
            trained(Transformer, "adamw", steps=3)
        lines.append(path.read_text())
    assert lines[0] == lines[1]


def test_what_is_born_is_the_rounding_of_the_operation():
    x = torch.tensor([1.0 + 2.0**-10, 3.0])
    run = machine("fp16")
    run.shadow(1)
    with run:
        y = x * x
        z = y * 1.0
    squares = [(1 + Fraction(1, 2**10)) ** 2, Fraction(9)]
    born = [Fraction(float(v)) - s for v, s in zip(y, squares, strict=True)]
    expected = float(sum(b * b for b in born)) / float(sum(s * s for s in squares))
    first = run.report()["shadow"]["operations"]
    rows = {row["layer"]: row for row in first}
    assert rows["aten.mul"]["calls"] == 2
    assert rows["aten.mul"]["born"] ** 2 * 2 == pytest.approx(expected, rel=1e-9)
    assert rows["aten.mul"]["inherited"] ** 2 * 2 == pytest.approx(expected, rel=1e-9)
    assert rows["aten.mul"]["amplification"] == pytest.approx(1.0, rel=1e-9)
    assert float(z[0]) == float(y[0])


def test_choices_that_differ_are_told_and_the_machines_goes_on():
    x = torch.tensor([[2048.0, 1.0], [2048.0, 0.0]])
    run = machine("fp16")
    run.shadow(1)
    with run:
        total = (x + torch.tensor([[1.0, 0.0], [2.0, 0.0]]))[:, 0]
        place = total.argmax()
        is_equal = total == 2048.0
    report = run.report()["shadow"]
    assert (int(place), is_equal.tolist()) == (1, [True, False])
    (row,) = [row for row in report["branches"] if row["operation"] == "aten.eq"]
    assert (row["differing"], row["elements"]) == (1, 2)
    assert "test_shadowing.py" in row["line"]


@pytest.mark.parametrize("policy", ["fp16", "fp32"])
def test_an_average_of_weights_stands_still_in_binary16(policy):
    torch.manual_seed(0)
    run = machine(policy)
    run.shadow(4)
    with run:
        net = nn.Linear(64, 32)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
        average = net.weight.detach().clone()
        for _ in range(4):
            optimiser.zero_grad()
            net(torch.randn(8, 64)).square().mean().backward()
            optimiser.step()
            with torch.no_grad():
                average.mul_(1 - 1e-4).add_(net.weight, alpha=1e-4)
    motions = run.report()["shadow"]["motions"]
    (row,) = [row for row in motions if row["shape"] == [32, 64] and not row["name"]]
    assert row["arrived"] < 0.2 if policy == "fp16" else row["arrived"] == pytest.approx(1, abs=0.1)
    assert "test_shadowing.py" in row["line"]
    named = {row["name"]: row["arrived"] for row in motions}
    assert named["Linear.weight"] == pytest.approx(1.0, abs=0.1)


def test_motions_of_new_memory_begin_where_it_is_filled():
    """A parameter made inside moves as one that was made before."""
    motions = []
    for is_inside in (True, False):
        torch.manual_seed(0)
        net = nn.Linear(8, 4)
        run = machine("fp16")
        run.shadow(3)
        with run:
            torch.manual_seed(0)
            net = nn.Linear(8, 4) if is_inside else net
            optimiser = torch.optim.SGD(net.parameters(), lr=1e-4)
            for _ in range(3):
                optimiser.zero_grad()
                net(torch.ones(2, 8)).square().mean().backward()
                optimiser.step()
        named = {row["name"]: row for row in run.report()["shadow"]["motions"]}
        motions.append(named["Linear.weight"]["arrived"])
    assert motions[0] == motions[1] < 0.9


def test_dropout_is_the_machines():
    run = machine("fp16")
    run.shadow(1)
    with run:
        x = functional.dropout(torch.ones(64) * 3.0, 0.25)
        with torch.utils._python_dispatch._disable_current_modes():
            shadow = run.shadowing.value(x)
    assert torch.equal(shadow == 0, x == 0)
    assert shadow.max() == 4.0


def test_what_torch_has_no_kernel_for_begins_anew_and_is_told():
    run = machine("fp32")
    run.shadow(1)
    with run:
        x = torch.ones(8) / 3
        torch.fft.rfft(x)
    (row,) = run.report()["shadow"]["rejoined"]
    assert "complex" in row["why"]


def test_it_is_asked_for_before_the_session():
    run = machine("fp16")
    with run, pytest.raises(RuntimeError, match="before the session"):
        run.shadow(1)


def test_a_report_without_shadows_has_none():
    assert machine("fp16").report()["shadow"] == {}


def test_an_exponential_of_a_distance_tells_the_sum_its_error_grew_in():
    x, c = 100 + torch.arange(8.0).reshape(8, 1) / 3, 100 + torch.arange(9.0).reshape(9, 1) / 3
    run = machine("fp16")
    run.shadow(1)
    with run:
        distance = (x * x).sum(1, keepdim=True) + (c * c).sum(1) - 2 * x @ c.T
        torch.exp(-distance / 2)
    rows = {row["operation"]: row for row in run.report()["shadow"]["operations"]}
    grown, (file, line) = rows["aten.exp"]["grown"], rows["aten.exp"]["line"].rsplit(":", 1)
    assert grown["operation"] == "aten.sub"
    assert grown["amplification"] > 1000
    assert grown["line"] == f"{file}:{int(line) - 1}"
