"""Sessions: whole trainings against torch, equal bits, reports (differential, law, golden)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fpsim import BINARY16
from tests.ipu.frontends.torch.framework import images, machine, mlp, run, torch, train

ROOT = Path(__file__).parents[4]
HALF = {"policy": "p=f16,c=f16", "sr": True}
SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW


@pytest.mark.parametrize(("net", "shape"), [(mlp, (6,)), (images, (1, 8, 8))])
@pytest.mark.parametrize(
    ("optimiser", "options"), [(SGD, {"momentum": 0.9}), (ADAMW, {"lr": 0.01})]
)
def test_binary32_follows_torch_for_fifty_steps(net, shape, optimiser, options):
    expected = train(net(), shape, 50, optimiser, **options)
    losses, session = run(train, net(), shape, 50, optimiser, **options)
    assert max(abs(a - b) for a, b in zip(losses, expected, strict=True)) <= 2e-6
    report = session.report()
    assert report["native"] == 0
    assert report["host"]["share"] == 0
    assert report["steps"] == 50


@pytest.mark.parametrize(("net", "shape"), [(mlp, (6,)), (images, (1, 8, 8))])
def test_two_runs_have_the_same_bits(net, shape):
    a, b = net(), net()
    first, _ = run(train, a, shape, 4, ADAMW, eps=1e-4, machine_options=HALF)
    second, _ = run(train, b, shape, 4, ADAMW, eps=1e-4, machine_options=HALF)
    assert first == second
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.equal(p, q)
        assert torch.equal(p, p.half().float())  # values of binary16 in float32 tensors


def test_the_seed_decides_the_bits():
    losses = [run(train, mlp(), (6,), 3, machine_options=HALF | {"seed": s})[0] for s in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_a_diagnostic_operation_moves_no_bits():
    def look(output):
        output.mean()
        (output * 0.3).sum()

    plain, _ = run(train, images(), (1, 8, 8), 4, machine_options=HALF)
    looked, _ = run(train, images(), (1, 8, 8), 4, on_output=look, machine_options=HALF)
    assert plain == looked


def test_micro_batches_have_places_of_their_own():
    def accumulate():
        net = mlp()
        x = torch.ones(2, 6)
        slopes = []
        for _ in range(2):
            net.zero_grad()
            net(x).sum().backward()
            slopes.append(net[0].weight.grad.clone())
        return slopes

    (first, second), _ = run(accumulate, machine_options=HALF)
    assert not torch.equal(first, second)


def test_half_modules_compute_in_binary16():
    def step():
        net = mlp().half()
        optimiser = ADAMW(net.parameters(), lr=0.01)
        torch.manual_seed(1)
        (net(torch.randn(4, 6).half()).square().mean() * 0.01).backward()
        optimiser.step()
        return net

    net, session = run(step, machine_options={"count": True})
    assert all(p.dtype == torch.float16 for p in net.parameters())
    layers = session.report()["layers"]
    # AdamW's eps of 1e-8 is zero in binary16: what users come for.
    assert layers["optimizer"]["optimizer"]["DIVBYZERO"] > 0
    others = [row for name, row in layers.items() if name != "optimizer"]
    assert sum(counts["DIVBYZERO"] for row in others for counts in row.values()) == 0
    constants = session.report()["constants"]
    (epsilon,) = [c for c in constants if c["value"] == 1e-8]
    assert (epsilon["layer"], epsilon["format"], epsilon["becomes"]) == (
        "optimizer", "binary16", "zero",
    )


@pytest.mark.source("S3-32", "S4-17")
def test_layers_have_their_own_policies():
    net = mlp()
    policy = {"0": "f16", "3": "p=f32,c=f16", "*": "f32"}
    session = machine(policy)
    with session:
        net(torch.randn(4, 6)).sum().backward()
    assert torch.equal(net[0].weight, net[0].weight.half().float())
    assert not torch.equal(net[3].weight, net[3].weight.half().float())
    for layer in (net[0], net[3]):
        assert torch.equal(layer.weight.grad, layer.weight.grad.half().float())


def test_master_weights_stay_in_binary32():
    losses, _ = run(train, mlp(), (6,), 20, machine_options={"policy": "p=f32,c=f16"})
    expected = train(mlp(), (6,), 20)
    assert max(abs(a - b) for a, b in zip(losses, expected, strict=True)) < 0.01


def test_traps_stop_where_the_operation_stands():
    with machine("p=f16,c=f16", traps=True):
        x = torch.full((3,), 60000.0)
        with pytest.raises(FloatingPointError, match="OVERFLOW") as caught:
            x * 2.0
    assert "aten.mul.Tensor" in caught.value.__notes__[0]


def test_a_trap_in_an_update_leaves_parameters_as_they_were():
    net = mlp()
    optimiser = torch.optim.SGD(net.parameters(), lr=10.0, momentum=0.9)
    with machine("p=f16,c=f16", traps=True) as session:
        net(torch.ones(2, 6)).square().mean().backward()
        optimiser.step()
        before = [p.detach().clone() for p in net.parameters()]
        momenta = [s["momentum_buffer"].clone() for s in optimiser.state.values()]
        net[-1].bias.grad.fill_(60000.0)  # the last parameter: the others are updated before it
        with pytest.raises(FloatingPointError, match="OVERFLOW") as caught:
            optimiser.step()
        assert "layer 'optimizer'" in caught.value.__notes__[0]
        assert not session.layers.in_update
    for p, q in zip(net.parameters(), before, strict=True):
        assert torch.equal(p, q)
    for slot, momentum in zip(optimiser.state.values(), momenta, strict=True):
        assert torch.equal(slot["momentum_buffer"], momentum)


@pytest.mark.parametrize("foreach", [False, True])
def test_a_trap_in_the_first_update_leaves_no_state_of_the_optimiser(foreach):
    net = mlp()
    optimiser = torch.optim.AdamW(net.parameters(), foreach=foreach)  # its eps is zero in binary16
    with machine("p=f16,c=f16", traps=True):
        net(torch.ones(2, 6)).sum().backward()
        net[0].weight.grad.fill_(0.0)
        before = [p.detach().clone() for p in net.parameters()]
        with pytest.raises(FloatingPointError, match="INVALID"):  # 0 / 0
            optimiser.step()
    assert not optimiser.state
    for p, q in zip(net.parameters(), before, strict=True):
        assert torch.equal(p, q)


def test_a_trap_in_batch_norm_leaves_its_statistics():
    norm = torch.nn.BatchNorm1d(1)
    x = torch.tensor([[-1000.0], [1000.0]])
    with machine("p=f16,c=f16", traps=True), pytest.raises(FloatingPointError, match="OVERFLOW"):
        norm(x + 1000.0)
    assert norm.running_mean.item() == 0


def test_a_trap_in_a_backward_pass_stops_it():
    x = torch.ones(3, requires_grad=True)
    with machine("p=f16,c=f16", traps=True):
        loss = (x * 100.0).sum()
        with pytest.raises(FloatingPointError, match="OVERFLOW") as caught:
            loss.backward(torch.tensor(1024.0))
    assert "aten.mul.Tensor, layer 'aten.mul' (backward)" in caught.value.__notes__[0]
    assert x.grad is None


def test_models_are_saved_and_copied_after_a_session(tmp_path):
    import copy

    net = mlp()
    run(train, net, (6,), 1, machine_options=HALF)
    torch.save(net.state_dict(), tmp_path / "net.pt")
    loaded = torch.load(tmp_path / "net.pt")
    twin = copy.deepcopy(net)
    for name, value in net.state_dict().items():
        assert torch.equal(loaded[name], value)
        assert torch.equal(twin.state_dict()[name], value)


def test_the_report_is_plain_data_with_versions():
    _, session = run(train, mlp(), (6,), 1, machine_options=HALF | {"count": True})
    report = json.loads(json.dumps(session.report()))
    assert report["versions"]["torch"] == torch.__version__
    kinds = report["operations"]
    assert kinds["all"] == kinds["machine"] + kinds["exact"] + kinds["host"] + kinds["integer"]
    assert {"0", "2", "3", "optimizer"} <= set(report["layers"])
    assert set(report["layers"]["0"]) == {"forward", "backward"}


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="ties='last' is not known; use first or all"):
        machine(ties="last")
    with pytest.raises(ValueError, match="computes in binary16, binary32, not in bfloat16; use"):
        machine("bf16")
    with pytest.raises(TypeError, match="sr='maybe' is neither True nor False"):
        machine(sr="maybe")
    with pytest.raises(TypeError, match=r"changes=3 is no fpsim\.torch\.Changes"):
        machine(changes=3)
    with machine(), pytest.raises(RuntimeError, match="a session is open already"):
        machine().__enter__()


def test_a_session_leaves_torch_as_it_was():
    before = torch.backends.mkldnn.enabled
    with pytest.raises(KeyError), machine():
        raise KeyError
    assert torch.backends.mkldnn.enabled == before
    assert float(torch.ones(1) / 3) == float(torch.tensor(1 / 3))
    with machine():
        pass


def test_fpsim_does_not_import_torch():
    code = "import fpsim, ipu.machine, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize(("policy", "narrow"), [("p=f32,c=f16", False), ("p=f16,c=f16", True)])
def test_parameters_that_the_program_computes_take_the_format_of_parameters(policy, narrow):
    """A parameter that is made by arithmetic holds the format of computation before."""

    class Shifted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = torch.nn.Parameter(torch.ones(3) * 0.5)

        def forward(self, x):
            return x + self.shift

    with machine(policy):
        net = Shifted()
        optimiser = torch.optim.SGD(net.parameters(), lr=2.0**-13)
        net(torch.zeros(3)).sum().backward()
        optimiser.step()
    # 0.5 - 2**-13 needs 12 digits: binary16 rounds the tie to the even neighbour.
    expected = 0.5 if narrow else 0.5 - 2.0**-13
    assert net.shift.tolist() == [expected] * 3


# Patterns that match no layer -------------------------------------------------------------------


def test_a_pattern_of_no_layer_is_refused_at_the_first_backward_pass():
    net = mlp()
    before = [p.clone() for p in net.parameters()]
    with machine({"*": "f32", "O": "f16"}) as session:
        loss = net(torch.ones(2, 6)).sum()
        words = r"'O' matches no layer .* which would run in p=f32"
        for _ in range(2):  # a program that goes on does not get past it
            with pytest.raises(ValueError, match=words):
                loss.backward()
        assert session.step == 0
        session._patterns = []
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("pattern", ["0", "*.weird", "haed", "aten.mul"])
def test_patterns_of_programs_without_a_backward_pass(pattern):
    """Layers are modules, and operations outside of them."""

    def work():
        with machine({pattern: "f16"}):
            mlp()(torch.ones(2, 6)) * 2.0

    if pattern in ("0", "aten.mul"):
        work()
    else:
        with pytest.raises(ValueError, match="matches no layer"):
            work()


def test_the_programs_own_error_comes_first():
    def stops():
        with machine({"haed": "f16"}):
            mlp()(torch.ones(2, 6))
            raise KeyError

    with pytest.raises(KeyError):
        stops()


def test_a_module_that_runs_later_is_waited_for():
    """Layers are trained one after the other; a decoder waits for its turn."""
    encoder, decoder = mlp(), torch.nn.Sequential(torch.nn.Linear(3, 2))

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.out = decoder

        def forward(self, x):
            return self.out(x)

    late = Decoder()
    with machine({"out.*": "f16"}) as session:
        for net, x in ((encoder, torch.ones(2, 6)), (late, torch.ones(2, 3))):
            net(x).sum().backward()
    assert session.memory.format_of(decoder[0].weight) == BINARY16


def test_a_part_of_a_model_that_is_called_alone_has_other_names():
    """Of a first layer that is called by itself the layers are 0, 1 …, not 0.0, 0.1 …"""
    model = torch.nn.Sequential(mlp(), torch.nn.ReLU())
    with pytest.raises(ValueError, match=r"'0\.\*' matches no layer"), machine({"0.*": "f16"}):
        model[0](torch.ones(2, 6)).sum().backward()


def test_a_trial_with_a_pattern_of_no_layer_is_told_in_its_row():
    with machine("f16", count=True) as session:
        train(mlp(), (6,), 2)
    advised = session.advise(lambda seed: train(mlp(), (6,), 4), ["fp16+nose=f32"], pairs=5)
    (row,) = [t for t in advised.trials if "nose" in str(t.way)]
    assert "'nose' matches no layer" in row.error


def test_a_pattern_is_refused_of_a_step_without_a_backward_pass():
    """An optimiser that steps on gradients from elsewhere; its parameters stay as they are."""
    net = mlp()
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    before = [p.clone() for p in net.parameters()]
    with machine({"haed": "f16"}) as session:
        net(torch.ones(2, 6))
        with pytest.raises(ValueError, match="'haed' matches no layer"):
            torch.optim.SGD(net.parameters(), lr=0.1).step()
        session._patterns = []
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
