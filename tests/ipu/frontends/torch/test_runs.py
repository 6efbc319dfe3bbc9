"""Runs of PyTorch programs: events, and reports beside those of native trainings (law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.torch.framework import machine, mlp, torch, train

from fpsim import BINARY16  # isort: skip
from ipu.learn import SGD, Trainer, dense  # isort: skip
from ipu.run import machine as native_machine  # isort: skip
from ipu.run.changes import Changes  # isort: skip
from ipu.run.options import RunOptions  # isort: skip
from ipu.run import OperationEvent, Run  # isort: skip


def test_results_are_events_with_layer_direction_and_place():
    events: list[OperationEvent] = []
    with machine("fp16") as run:
        run.watch(events.append)
        train(mlp(), (6,), 3)
    products = [e for e in events if e.operation in ("aten.addmm", "aten.mm")]
    assert {(e.layer, e.direction) for e in products} == {
        (layer, direction) for layer in ("0", "3") for direction in ("forward", "backward")
    }
    assert {(e.place.step, e.place.layer) for e in products} == {
        (step, layer) for step in range(3) for layer in ("0", "3")
    }
    assert {e.array.format for e in products} == {BINARY16}
    assert isinstance(run, Run)
    assert run.report()["layers"] == {}  # it does not count


def test_a_watched_run_has_the_same_bits():
    weights = []
    for is_watched in (False, True):
        net = mlp()
        with machine("fp16", sr=True, seed=3) as run:
            if is_watched:
                run.watch(lambda event: None)
            train(net, (6,), 3, optimiser=torch.optim.Adam)
        weights.append([p.detach().numpy().tobytes() for p in net.parameters()])
    assert weights[0] == weights[1]


def test_every_argument_reaches_the_options_of_a_session():
    arguments = {
        "policy": "mixed", "sr": True, "seed": 5, "count": True, "target": "mk1", "ties": "all",
        "nanoo": True, "traps": True, "found_inf": "status", "preset": "exact",
        "f32_denormals": "ieee", "max_nan": "propagate", "sums": "chain",
        "changes": Changes(eps=1e-3),
    }
    run = machine(**arguments, step=4)
    assert run.options == RunOptions(**arguments)
    assert (run.first_step, run.device.target.name) == (4, "mk1")
    assert run.device.options.preset == "exact"


def test_what_is_no_function_watches_nothing():
    with pytest.raises(TypeError, match="see='all' is no function; give one that takes"):
        machine().watch("all")


class Dense(torch.nn.Module):
    """A dense layer whose product is rounded before the bias is added, as in ipu.learn."""

    def __init__(self, weights, bias):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.tensor(weights))
        self.bias = torch.nn.Parameter(torch.tensor(bias))

    def forward(self, x):
        return x @ self.weights + self.bias


def test_a_native_training_and_the_same_one_in_torch_have_one_report():
    """A step of one dense layer from equal weights, in binary16 to nearest."""
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(8, 6)).astype(np.float32), np.arange(8) % 3
    native = native_machine("fp16", count=True)
    trainer = Trainer(lambda t: dense(t, 3, "Dense"), SGD(0.125), run=native)
    trainer.forward(x)
    net = Dense(*(np.float32(v.array.values) for v in trainer.variables.trainable))
    trainer.step(x, labels)
    with machine("fp16", count=True) as run:
        optimiser = torch.optim.SGD(net.parameters(), 0.125)
        loss = torch.nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(labels))
        loss.backward()
        optimiser.step()
    ours, theirs = native.report(), run.report()
    assert set(theirs) - set(ours) == {"outside"}
    assert set(ours) <= set(theirs)
    # torch rounds the logarithms of softmax into binary16, ipu.learn the gradient alone.
    np.testing.assert_allclose(ours["losses"], theirs["losses"], rtol=1e-3)
    assert ours["parameters"] == theirs["parameters"] == {"Dense": 21}
    (unit,), (expected_unit,) = ours["units"], theirs["units"]
    assert (unit["unit"], unit["layers"].keys()) == (expected_unit["unit"], {"Dense"})
    # The evaluation that made the variables is one product more.
    assert (unit["products"], expected_unit["products"]) == (3, 2)
    counted, expected = (report["layers"]["Dense"] for report in (ours, theirs))
    assert counted["forward"] == expected["forward"]
    assert counted["forward"]["results"] >= 2 * 24
    rows = [{r["layer"]: r for r in report["exponents"]["weights"]} for report in (ours, theirs)]
    assert rows[0]["Dense"]["format"] == rows[1]["Dense"]["format"] == "binary16"
    assert ours["swallowed"]["Dense"]["nonzero"] == theirs["swallowed"]["Dense"]["nonzero"] == 21
