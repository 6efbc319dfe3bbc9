"""Steps of torch's optimisers as rows are torch's operations one by one (law, by chance).

Bits of parameters and slots, formats, flags, the status register, random places, the report's
histograms and the error of a trap are equal: the same program runs with rows and without.
"""

from __future__ import annotations

import random
import re
import warnings
from importlib import import_module

import pytest

from ipu.ops.updates import UPDATES
from ipu.run.changes import Changes
from tests.ipu.frontends.torch.framework import machine, mlp, torch, train
from tests.tiers import pick

updates = pytest.importorskip("ipu.frontends.torch.updates")
NAMES = {
    "SGD": "sgd", "Adam": "adam", "AdamW": "adam", "Adagrad": "adagrad", "RMSprop": "rmsprop",
    "Adadelta": "adadelta", "Adamax": "adamax", "NAdam": "nadam", "RAdam": "radam",
    "Rprop": "rprop", "ASGD": "asgd",
}
BETAS = [(0.9, 0.999), (0.5, 0.9), (0.0, 0.99), (0.9, 0.9996)]
COMMON = {"lr": [1e-3, 0.05, 1.0], "maximize": [False, False, True], "foreach": [None, True, False]}
DECAY = COMMON | {"weight_decay": [0, 0, 0.1, 1e-4]}
EPS = DECAY | {"eps": [1e-8, 1e-4, 1e-2]}
MOMENTS = EPS | {"betas": BETAS}
DECOUPLED = {"decoupled_weight_decay": [False, True]}
ADAM = MOMENTS | {"amsgrad": [False, True], "fused": [None, None, True]}
OPTIONS = {
    "SGD": DECAY | {"momentum": [0, 0.9, 0.5], "nesterov": [False, True],
                    "dampening": [0, 0.1, 1]},
    "Adam": ADAM | DECOUPLED,
    "AdamW": ADAM,
    "Adagrad": EPS | {"lr_decay": [0, 0.1], "initial_accumulator_value": [0, 0.1]},
    "RMSprop": EPS | {"alpha": [0.99, 0.9], "momentum": [0, 0.9], "centered": [False, True]},
    "Adadelta": EPS | {"rho": [0.9, 0.5]},
    "Adamax": MOMENTS,
    "NAdam": MOMENTS | DECOUPLED | {"momentum_decay": [4e-3, 0.1]},
    "RAdam": MOMENTS | DECOUPLED,
    "Rprop": COMMON | {"etas": [(0.5, 1.2), (0.3, 1.1)], "step_sizes": [(1e-6, 50), (1e-3, 0.1)]},
    "ASGD": DECAY | {"lambd": [1e-4, 0.1], "t0": [1e6, 1, 2]},
}
POLICIES = ("f32", "f16", "p=f32,c=f16", "p=f32,c=f16,part=f16", "bf16", "p=f32,c=bf16")


def module(name):
    return import_module(f"torch.optim.{name}")


def options_of(name, chance):
    options = {key: chance.choice(values) for key, values in OPTIONS[name].items()}
    if name == "SGD" and not options["momentum"]:
        options |= {"nesterov": False, "dampening": 0}
    if options.get("nesterov"):
        options["dampening"] = 0
    if options.get("fused"):
        options["foreach"] = None
    return options


def network(chance):
    """Two layers, a parameter with other strides, and a single number."""
    torch.manual_seed(chance.randrange(1000))
    net = mlp()
    if chance.random() < 0.3:
        net[0].weight = torch.nn.Parameter(torch.randn(6, 8).t())
    net.register_parameter("scalar", torch.nn.Parameter(torch.tensor(0.7)))
    return net


def run_of(chance):
    """A session's options; halves: the network is float16."""
    policy, is_half = chance.choice(POLICIES), chance.random() < 0.15
    changes = Changes(
        wide_states=chance.random() < 0.1 and not is_half,
        eps=chance.choice([None, None, None, 1e-3]), loss_scale=chance.choice([1.0, 1.0, 64.0]),
    )
    return is_half, {
        "policy": policy, "target": "hypothetical" if "b" in policy else "mk2",
        "sr": chance.random() < 0.6, "count": chance.random() < 0.6,
        "nanoo": chance.random() < 0.3, "traps": chance.random() < 0.2, "changes": changes,
    }


def codes(x):
    return x.detach().clone().contiguous().reshape(-1).view(torch.uint8).tolist()


def trained(name, seed):
    """Everything that a training leaves, of options by chance."""
    chance = random.Random(f"{name} {seed}")
    options, (is_half, way) = options_of(name, chance), run_of(chance)
    net, size = network(chance), chance.choice([1, 1, 300.0, 1e-3, 1e30])
    net = net.half() if is_half else net
    rest = [p for layer in list(net)[1:] for p in layer.parameters()]
    groups = [{"params": [*net[0].parameters(), net.scalar]}, {"params": rest, "lr": 0.02}]
    optimiser = getattr(torch.optim, name)(groups, **options)
    told, error = [], ""
    if chance.random() < 0.25:  # states from outside
        for p in net.parameters():
            p.grad = torch.full_like(p, 0.125)
        optimiser.step()
    session = machine(**way, seed=seed)
    try:
        with session, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in range(7 if name == "RAdam" else 3):
                optimiser.zero_grad()
                x = torch.randn(4, 6)
                y = net((x.half() if is_half else x) * net.scalar)
                (y.square().mean() * size).backward()
                if step == 1 and chance.random() < 0.2:
                    net[3].bias.grad = None
                optimiser.step()
                told.append((session.device.status_word, session.clock.k))
    except FloatingPointError as stopped:
        error = str(stopped)
    # Births are named after torch's operations or after the row, and lines after the test's frames.
    named = ("operations", "host", "births", "carried")
    report = re.sub(r"\.py:\d+", "", str({
        k: v for k, v in session.report().items() if k not in named
    }))
    slots = [
        (codes(p), p.stride(), key, codes(x), x.stride(), session.memory.format_of(x))
        for p in net.parameters() for key, x in sorted(optimiser.state.get(p, {}).items())
        if torch.is_tensor(x)
    ]
    return [codes(p) for p in net.parameters()], slots, told, error, report


@pytest.mark.parametrize("seed", range(pick(2, 12, 60)))
@pytest.mark.parametrize("name", OPTIONS)
def test_a_row_is_torchs_operations(name, seed, monkeypatch):
    rows = []
    run = updates.StepRows._run
    monkeypatch.setattr(
        updates.StepRows, "_run", lambda *arguments: rows.append(arguments[1]) or run(*arguments)
    )
    with_rows = trained(name, seed)
    assert set(rows) <= {NAMES[name]}
    monkeypatch.setattr(updates.StepRows, "takes", lambda *_: False)
    rows.clear()
    without = trained(name, seed)
    assert not rows
    for part, other in zip(with_rows, without, strict=True):
        assert part == other


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam"])
def test_watchers_see_the_same_of_updates_in_one_call_and_one_by_one(name, monkeypatch):
    """Of results and operands, in order; with room for all, for some tensors, and for none."""
    shown, weights = [], []
    for room in (None, 300, -1):
        if room is not None:
            monkeypatch.setattr("ipu.ops.updates.together._SHOWN", room)
        events, net, session = [], mlp(), machine("f16", sr=True)
        session.watch(lambda event, into=events: into.append((
            event[:4], [(x.format, x.carrier.tobytes()) for x in (event.array, *event.operands)]
        )))
        with session:
            train(net, (6,), 2, getattr(torch.optim, name))
        shown.append(events)
        weights.append([codes(p) for p in net.parameters()])
    assert shown[0] == shown[1] == shown[2]
    assert weights[0] == weights[1] == weights[2]
    assert sum(event[0][2] == "optimizer" for event in shown[0]) > 8


@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_torch_is_reached(name, monkeypatch):
    rows = []
    run = updates.StepRows._run
    monkeypatch.setattr(
        updates.StepRows, "_run", lambda *arguments: rows.append(arguments[1]) or run(*arguments)
    )
    with machine("f16", sr=True) as session:
        train(mlp(), (6,), 2, getattr(torch.optim, name))
    assert rows == [NAMES[name]] * 2
    assert session.report()["native"] == session.report()["host"]["elements"] == 0


def test_the_table_and_torch_have_the_same_rows():
    assert {f"torch {name}" for name in updates.LISTS} == {
        name for name in UPDATES if name.startswith("torch ")
    }
    for name, lists in updates.LISTS.items():
        assert len(UPDATES[f"torch {name}"].slots) == len(lists)
        assert hasattr(module(name), f"_single_tensor_{name}")


def outside_step(net):
    with torch.no_grad():
        module("sgd").sgd(
            list(net.parameters()), [p.grad for p in net.parameters()], [None] * 6, foreach=False,
            weight_decay=0, momentum=0, lr=0.1, dampening=0, nesterov=False, maximize=False,
        )


def under_another_mode(net):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        torch.optim.SGD(net.parameters(), lr=0.1).step()


def with_sparse_gradients(net):
    table = torch.nn.EmbeddingBag(4, 2, sparse=True, mode="sum")
    table.weight.grad = torch.eye(4)[:, :2].to_sparse(1)
    torch.optim.SGD(table.parameters(), lr=0.1).step()


UNUSUAL = {
    "a rate that is a tensor": lambda net: torch.optim.Adam(
        net.parameters(), lr=torch.tensor(0.1)).step(),
    "differentiable": lambda net: torch.optim.SGD(
        [p.detach().clone() for p in net.parameters()], lr=0.1, differentiable=True).step(),
    "double precision": lambda net: torch.optim.SGD(net.double().parameters(), lr=0.1).step(),
    "a function called by the program": outside_step,
    "another mode looks": under_another_mode,
    "sparse": with_sparse_gradients,
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_torchs_operations_stay_where_a_form_is_unusual(what, monkeypatch):
    monkeypatch.setattr(updates.StepRows, "_run", lambda *_: pytest.fail("a row"))
    net = mlp()
    with machine("f32"):
        net(torch.ones(2, 6)).sum().backward()
        try:
            UNUSUAL[what](net)
        except NotImplementedError:
            assert what == "sparse"


def test_functions_of_torch_are_its_own_again():
    before = module("sgd")._single_tensor_sgd
    with machine("f32"):
        assert module("sgd")._single_tensor_sgd is not before
    assert module("sgd")._single_tensor_sgd is before


def test_a_trap_names_the_step_and_nothing_has_happened():
    net = mlp()
    step = torch.optim.Adam(net.parameters(), lr=0.1)
    before = [p.detach().clone() for p in net.parameters()]
    with machine("f32", traps=True):
        net(torch.ones(2, 6)).sum().backward()
        net[3].bias.grad.fill_(1e30)
        with pytest.raises(FloatingPointError) as stopped:
            step.step()
    (note,) = stopped.value.__notes__
    assert note.startswith("in torch.optim.adam, layer 'optimizer' (optimizer), at ")
    assert "test_updates.py:" in note
    assert all(torch.equal(p, was) for p, was in zip(net.parameters(), before, strict=True))
    assert not step.state


@pytest.mark.parametrize("policy", ["fp16", "fp32"])
def test_parameters_that_share_memory_are_updated_one_after_the_other(policy):
    def train(in_one_call):
        torch.manual_seed(3)
        first, second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        net = torch.nn.Sequential(first, torch.nn.ReLU(), second)
        second.weight.data = first.weight.data
        stepping = torch.optim.SGD(net.parameters(), lr=0.125, momentum=0.5)
        x = torch.randn(4, 6)
        with machine(policy, sr=policy == "fp16", seed=2) as run:
            run.device.in_one_call = in_one_call
            for _ in range(4):
                stepping.zero_grad()
                (net(x) ** 2).mean().backward()
                stepping.step()
        return [p.detach().numpy().tobytes() for p in net.parameters()]

    assert train(True) == train(False)
