"""Keras models in several real processes: the bits of one process (law, golden messages)."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ipu.frontends.tensorflow.engine.replica_set import dealt
from ipu.frontends.tensorflow.workers.popdist_strategy import PopDistStrategy
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, session, tf
from tests.ipu.frontends.tensorflow.workers import keras_program
from tests.ipu.frontends.tensorflow.workers.processes import (
    LIMIT,
    command,
    ended,
    environment,
    tf_configs,
    workers,
)

KERAS = Path(__file__).with_name("keras_program.py")
#: binary16 with stochastic rounding: sums, updates and every replica's own operations draw.
WAY = ["--sr", "--policy", "p=f32,c=f16"]


def line(*arguments):
    whole = command(KERAS, *map(str, arguments))
    return [*whole[:4], *WAY, *whole[4:]]


def told(output):
    """What each process prints, by its number."""
    names = ("process", "weights", "losses", "statistics", "predictions")
    rows = re.findall(" ".join(rf"{name} (\w+)" for name in names), output)
    return {int(number): tuple(values) for number, *values in rows}


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.tier("full"))])
def alone(request):
    """Replicas, and weights, losses and statistics of one process that has all of them."""
    # Random bits follow the names of nodes, and Keras numbers the layers of a process.
    tf.keras.backend.clear_session()
    with machine(sr=True, policy="p=f32,c=f16"):
        result = keras_program.trained("one", request.param)
    return request.param, [result[name] for name in ("weights", "losses", "statistics")]


def check(alone, processes, output):
    replicas, (weights, losses, statistics) = alone
    rows = told(output)
    assert sorted(rows) == list(range(processes)), output[-4000:]
    for row in rows.values():
        assert row[:2] == (weights, losses)
        rounds = keras_program.ROUNDS * keras_program.BATCH
        assert int(row[3]) == rounds * replicas // processes, "of its own data"
    assert rows[0][2] == statistics
    assert rows[1][2] != statistics, "moving statistics are each replica's own"


def test_workers_of_tf_config_have_the_bits_of_one_process(alone):
    lines = [line("multi", alone[0])] * 2
    with workers(tf_configs(2), *lines) as started:
        done = [ended(process) for process in started]
    assert [status for status, _, _ in done] == [0, 0], done[0][2][-4000:] + done[1][2][-4000:]
    check(alone, 2, "".join(output for _, output, _ in done))


#: A callback inside of `fit`, or an assignment after batches, changes a weight of one process.
DIVERGING = """
import sys; sys.path.insert(0, {folder!r})
import keras_program as k
import numpy as np
import tensorflow as tf

build = k.model

def model(number, steps):
    net = build(number, steps if {inside} else 1)

    class Change(tf.keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            if number:
                net.trainable_variables[0].assign_add(tf.ones((8, 16)))

    fit = net.fit

    def fit_and_change(rows, **options):
        if {inside}:
            return fit(rows, callbacks=[Change()], **options)
        for _ in range(3):
            net.train_on_batch(np.ones((8, 8), np.float32), np.zeros(8, np.int32))
        Change().on_train_end()
        sys.exit(0)

    net.fit = fit_and_change
    return net

k.model = model
print(k.trained("multi", 2))
"""


@pytest.mark.parametrize(
    "inside", [True, pytest.param(False, marks=pytest.mark.tier("full"))], ids=["fit", "batches"]
)
def test_weights_that_differ_at_the_end_of_a_short_training_stop_all(tmp_path, inside):
    program = tmp_path / "diverging.py"
    program.write_text(DIVERGING.format(folder=str(KERAS.parent), inside=inside))
    with workers(tf_configs(2), *[command(program)] * 2) as started:
        done = [ended(process) for process in started]
    assert [status for status, _, _ in done] == [3, 3], done[0][2][-4000:] + done[1][2][-4000:]
    for _, output, errors in done:
        assert re.search(
            r"^fpsim: worker 1 at .* has variables with digest \w+, worker 0 at .* \w+, after step "
            r"\d+; they must be equal", errors, re.MULTILINE,
        ), errors
        assert "weights" not in output
        assert "Traceback" not in errors


@pytest.mark.tier("full")
@pytest.mark.parametrize(
    ("first", "second", "names"),
    [(["--seed", "0"], ["--seed", "7"], ("seed: 0", "seed: 7")),
     (["--policy", "fp16"], ["--policy", "fp32"], ("policy: p=f16", "policy: p=f32"))],
)
def test_seeds_and_policies_that_differ_are_refused_before_the_training(first, second, names):
    lines = [[*whole[:4], *way, *whole[4:]] for way in (first, second)
             for whole in [command(KERAS, "multi", "2")]]
    with workers(tf_configs(2), *lines) as started:
        done = [ended(process) for process in started]
    for status, output, errors in done:
        assert status == 2, errors[-4000:]
        assert all(name in errors for name in names), errors[-4000:]
        assert "start all workers alike" in errors
        assert "weights" not in output


@pytest.mark.tier("full")
def test_each_worker_has_a_page_of_its_own(tmp_path):
    whole = command(KERAS, "multi", "2", "1")
    told = [*whole[:4], "--report", str(tmp_path / "out"), *whole[4:]]
    with workers(tf_configs(2), told, told) as started:
        done = [ended(process) for process in started]
    assert [status for status, _, _ in done] == [0, 0], done[0][2][-4000:]
    pages = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("index.html"))
    assert pages == ["out/worker-0/index.html", "out/worker-1/index.html"]
    assert all((tmp_path / page).with_name("report.json").exists() for page in pages)


def poprun(instances, replicas, transport, *program):
    if not find_spec("grpc_tools" if transport == "grpc" else "mpi4py"):
        pytest.skip(f"the extra {transport} is not installed")
    options = ["--num-instances", instances, "--num-replicas", replicas, "--transport", transport]
    done = subprocess.run(
        [sys.executable, "-m", "ipu.experiments.cli", "poprun", *map(str, options),
         "--allow-run-as-root", *program],
        env=environment(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"),
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.tier("full")
@pytest.mark.parametrize("transport", ["grpc", "mpi"])
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_of_poprun_have_the_bits_of_one_process(alone, transport, processes):
    if processes > alone[0]:
        pytest.skip("a process has one replica or more")
    status, output, errors = poprun(processes, alone[0], transport, *line("popdist", alone[0]))
    assert status == 0, errors[-4000:]
    check(alone, processes, output)


@pytest.mark.tier("full")
def test_a_process_with_fewer_batches_stops_all_with_a_sentence(tmp_path):
    program = tmp_path / "uneven.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(KERAS.parent)!r})\n"
        "import keras_program as k, popdist\n"
        "k.ROUNDS = 2\n"
        "print(k.trained('popdist', 2, epochs=1 + popdist.getInstanceIndex()))\n"
    )
    status, _, errors = poprun(2, 2, "grpc", *command(program))
    assert status == 3
    places = r"fpsim: worker \d at .* has come to .*, worker \d at .* to .*; run the same program"
    assert re.search(f"{places} on all processes, with the same number of batches", errors)
    assert "Traceback" not in errors


# One process --------------------------------------------------------------------------------------


def test_without_poprun_it_is_a_strategy_of_one_process():
    with machine():
        strategy = PopDistStrategy()
        config = ipu.config.IPUConfig()
        strategy.update_ipu_config(config)
        assert config.experimental.multi_replica_distribution.process_count == 1
        configured(1)
        assert strategy.num_replicas_in_sync == 1
        assert strategy.input_context.num_input_pipelines == 1
        with strategy.scope() as inside:
            assert inside is strategy
        assert float(strategy.run(tf.function(lambda x: x + 1.0), (tf.constant(1.0),))) == 2.0
    assert ipu.distributed.popdist_strategy.PopDistStrategy is PopDistStrategy
    assert ipu.horovod is not None


def test_replicas_without_sums_are_refused():
    with pytest.raises(ValueError, match="add_ipu_cross_replica_reductions=False is not modelled"):
        PopDistStrategy(add_ipu_cross_replica_reductions=False)


def test_processes_of_a_configuration_need_the_strategy():
    with machine():
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.experimental.multi_replica_distribution.process_count = 2
        config.configure_ipu_system()
        with pytest.raises(RuntimeError, match="dealt to 2 processes, and this launch is of 1"):
            ipu.ipu_strategy.IPUStrategyV1().run(tf.function(lambda: tf.constant(1.0) + 1.0))


def test_a_program_of_tensorflow_1_is_refused(monkeypatch):
    """At the scope, and where a program leaves the scope out: before anything is traced."""
    sentence = "a graph of TensorFlow 1 under a PopDistStrategy is not modelled; train by fit or"
    with machine(), session():
        with pytest.raises(NotImplementedError, match=sentence), PopDistStrategy().scope():
            pass
        monkeypatch.setattr(dealt, "processes", 2)
        with pytest.raises(NotImplementedError, match=f"{sentence}.* auto_select_ipus = their n"):
            ipu.ipu_compiler.compile(lambda: pytest.fail("was traced"))
