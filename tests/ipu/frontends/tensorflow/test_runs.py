"""Runs of TensorFlow programs by `machine()`: report, trials, events, errors (golden, law)."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import Choices, current, ipu, tf

from fpsim import BINARY16  # isort: skip
from fpsim.tf import machine  # isort: skip
from ipu.frontends.tensorflow.settings import system  # isort: skip


def configure(**bits):
    """As a program does it."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    for name, value in bits.items():
        setattr(config.floating_point_behaviour, name, value)
    config.configure_ipu_system()


def train(seed, steps=3, rate=0.05):
    """Losses of a small classification by Keras, as users write it."""
    configure()
    x = np.random.RandomState(seed).randn(steps * 8, 6).astype("float32")
    y = np.arange(steps * 8) % 3
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = tf.keras.Sequential([
            tf.keras.layers.Dense(8, activation="relu", input_shape=(6,), name="body"),
            tf.keras.layers.Dense(3, name="head"),
        ])
        model.compile(
            tf.keras.optimizers.SGD(rate),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    return model


def test_a_run_reports_what_the_block_did_and_writes_its_page(tmp_path):
    with machine("fp16", sr=True, seed=5, count=True) as run:
        train(0)
        assert current() is run.machine
    report = run.report(tmp_path)
    assert (report["steps"], report["seed"], report["stochastic_rounding"]) == (3, 5, True)
    assert report["layers"]["body"]["forward"]["results"] > 0
    assert len(report["losses"]) == 3
    assert (tmp_path / "index.html").exists()
    written = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert written["policy"] == report["policy"] == "p=f16,c=f16,part=f32"


def test_a_block_leaves_the_programs_run_and_configuration_as_they_were():
    before = current()
    with machine(count=True) as run:
        train(0)
        assert system.is_configured()
    assert not system.is_configured()
    assert current() is before
    assert run.report()["launches"] == 3
    assert before.launches == 0


def test_a_configuration_of_before_holds_inside():
    configure(nanoo=True)
    with machine() as run:
        assert run.machine.device.control.nanoo
    with machine(nanoo=False, traps=True) as run:
        control = run.machine.device.control
        assert control.nanoo
        assert control.inv
        assert control.oflo


def test_equal_blocks_give_equal_bits():
    weights = []
    for _ in range(2):
        with machine("fp16", sr=True, seed=3):
            tf.keras.backend.clear_session()
            tf.keras.utils.set_random_seed(1)
            weights.append([w.tobytes() for w in train(0).get_weights()])
    assert weights[0] == weights[1]


def test_a_second_run_inside_of_a_run_is_refused():
    with machine() as run:
        with pytest.raises(RuntimeError, match="a run is open already; leave it"), machine():
            pass
        with pytest.raises(RuntimeError, match=r"advise\(step\) opens runs of its own"):
            run.advise(train)
    assert current().run is not run


def test_advice_is_tried_from_equal_states():
    tf.keras.utils.set_random_seed(0)
    with machine("fp16", count=True) as run:
        train(0)

    def step(seed):
        train(seed)

    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    advised = run.advise(step, trials=["fp16+sr", "fp16+head=f32"], pairs=5)
    after = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert after == before
    trials = {str(trial.way): trial for trial in advised.trials}
    assert set(trials) == {"fp32", "fp16", "fp16+sr", "fp16+head=f32"}
    assert all(len(trial.losses) == 3 and not trial.error for trial in trials.values())
    assert trials["fp16"].losses == run.report()["losses"]
    assert trials["fp32"].losses != trials["fp16"].losses


def test_ways_that_change_the_program_are_refused():
    with machine("fp16", count=True) as run:
        pass
    with pytest.raises(ValueError, match=r"the program by cache=mxfp8, which fpsim torch"):
        run.advise(train, trials=["fp16+cache=mxfp8"])


def test_a_pattern_that_no_layer_matches_is_refused_at_the_end():
    with machine({"body": "f16", "seq*/head": "f16", "metrics/loss": "f32"}):
        train(0)
    with (
        pytest.raises(ValueError, match=r"'haed' matches no layer .* did you mean 'head'\?"),
        machine({"haed": "f16"}),
    ):
        train(0)
    with pytest.raises(KeyError), machine({"haed": "f16"}):  # the program's own error goes first
        {}[train(0)]
    with machine({"haed": "f16"}) as run:
        pass
    assert run.report()["unreached"]


def test_a_variable_without_a_scope_is_a_layer_that_a_pattern_may_name():
    """As of a metric, whose `total` a report names; what a diagnosis tries can be run alone."""
    with machine({"": "f16", "total": "f32"}) as run:
        train(0)
    assert str(run.way).endswith("+total=f32")


def test_a_trial_that_stops_tells_its_error():
    def step(seed):
        raise ValueError("no such data\nat all")

    assert machine().trial(machine().way, 0, step).error == "no such data"


def test_results_are_events_with_layer_direction_and_place():
    events = []
    with machine("fp16") as run:
        run.watch(events.append)
        train(0)
    products = [e for e in events if e.operation == "MatMul"]
    assert {(e.layer, e.direction) for e in products} == {
        (layer, direction) for layer in ("body", "head") for direction in ("forward", "backward")
    }
    assert {e.place.step for e in products} == {0, 1, 2}
    assert {e.array.format for e in products} == {BINARY16}
    assert run.report()["layers"] == {}  # it does not count


def test_a_watched_run_has_the_same_bits():
    weights = []
    for is_watched in (False, True):
        with machine("fp16", sr=True, seed=3) as run:
            if is_watched:
                run.watch(lambda event: None)
            tf.keras.backend.clear_session()
            tf.keras.utils.set_random_seed(1)
            weights.append([w.tobytes() for w in train(0).get_weights()])
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("choice", "error", "text"),
    [
        ({"policy": "f17"}, ValueError, "policy item 'f17' is not known"),
        ({"policy": 3}, TypeError, "policy=3 is not a policy"),
        ({"policy": "bf16"}, ValueError, "target=mk2 computes in binary16, binary32, not in"),
        ({"target": "mk9"}, ValueError, "target='mk9' is not known"),
        ({"sr": 1}, TypeError, "sr=1 is neither True nor False"),
        ({"count": "yes"}, TypeError, "count='yes' is neither True nor False"),
        ({"ties": "some"}, ValueError, "ties='some' is not known; use first or all"),
        ({"found_inf": "no"}, ValueError, "found_inf='no' is not known; use values or status"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(choice, error, text):
    before = current()
    with pytest.raises(error, match=text):
        machine(**choice)
    assert current() is before


def test_every_argument_reaches_the_choices_of_a_run():
    arguments = {
        "policy": "mixed", "sr": True, "seed": 5, "count": True, "target": "mk1", "ties": "first",
        "nanoo": True, "traps": True, "found_inf": "status", "preset": "exact",
        "f32_denormals": "ieee", "max_nan": "propagate", "sums": "chain",
    }
    run = machine(**arguments)
    assert run.options == Choices(**arguments)
    assert (run.device.target.name, run.device.options.preset) == ("mk1", "exact")


def test_what_is_no_function_watches_nothing():
    with pytest.raises(TypeError, match="see=3 is no function; give one that takes"):
        machine().watch(3)
