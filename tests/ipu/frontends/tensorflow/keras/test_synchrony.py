"""Keras models of several processes: equal at the start and after, or stopped (law, golden)."""

from __future__ import annotations

import types

import numpy as np
import pytest

from ipu.frontends.tensorflow.engine.replica_set import ALONE, ReplicaProcesses
from ipu.frontends.tensorflow.keras import synchrony
from ipu.frontends.tensorflow.keras.functions import extend_models
from ipu.frontends.tensorflow.keras.synchrony import check_end, in_sync, note_saved
from ipu.members.channel import Channel
from ipu.members.ending import leave
from ipu.members.local_transport import local_transports, run_local
from ipu.members.members import Members
from ipu.members.transport import StoppedError
from tests.ipu.frontends.tensorflow.framework import current, ipu, machine, tf
from tests.ipu.frontends.tensorflow.keras.test_functions import data
from tests.ipu.frontends.tensorflow.keras.test_functions import model as small_model

STEPS = 5


class Model:
    """A model of Keras, as far as it is looked at: a weight, a slot and a moving statistic."""

    def __init__(self, replica_set, start=0.0, shape=(2,)):
        names = ("w", "slot", "mean")
        self.trainable_variables, slots, self.non_trainable_variables = (
            [tf.Variable(np.full(shape, start, np.float32), name=name)] for name in names
        )
        self.optimizer = types.SimpleNamespace(variables=slots)
        self.distribute_strategy = types.SimpleNamespace(replica_set=replica_set)

    @property
    def values(self):
        every = self.trainable_variables + self.optimizer.variables + self.non_trainable_variables
        return [float(v.numpy().flat[0]) for v in every]


def at(step, replicas=1, lines=("seed: 0",)):
    return types.SimpleNamespace(step=step, replicas=replicas, lines=lines)


def stopped(work):
    """What two processes say."""

    def attempt(transport):
        try:
            work(ReplicaProcesses(Members(Channel(transport))), transport.rank)
        except StoppedError as stop:
            return str(stop)
        return "went on"

    return run_local(2, attempt)


def test_the_first_processs_values_are_those_of_all_before_the_first_launch():
    def work(transport):
        model = Model(ReplicaProcesses(Members(Channel(transport))), start=1.0 + transport.rank)
        with in_sync(model, at(0), trains=False):
            before = model.values
        with in_sync(model, at(0), trains=True):
            first = model.values
        model.non_trainable_variables[0].assign([3.0 + transport.rank] * 2)
        with in_sync(model, at(1), trains=True):
            pass
        check_end(model, at(2))
        return before, first, model.values

    for rank, (before, first, last) in enumerate(run_local(2, work)):
        assert before == [1.0 + rank] * 3
        assert first == [1.0] * 3
        assert last == [1.0, 1.0, 3.0 + rank], "moving statistics are each process's own"


@pytest.mark.parametrize("which", ["trainable_variables", "slots"])
def test_weights_and_slots_that_differ_stop_all_at_the_next_comparison(which, monkeypatch):
    monkeypatch.setattr(synchrony, "CHECK_EVERY", STEPS)

    def comparing(processes, rank):
        model = Model(processes)
        reached = at(0)
        for step in range(1, 2 * STEPS + 1):
            with in_sync(model, reached, trains=True):
                reached.step = step
                if step == STEPS + 2 and rank:
                    slots = which == "slots"
                    rows = model.optimizer.variables if slots else model.trainable_variables
                    rows[0].assign([7.0, 7.0])

    texts = stopped(comparing)
    assert all("with digest" in text for text in texts), texts
    assert any(f"after step {2 * STEPS}; they must be equal" in t for t in texts)


def test_models_that_differ_are_refused_before_they_train():
    def work(processes, rank):
        with in_sync(Model(processes, shape=(2 + rank,)), at(0), trains=True):
            raise AssertionError("it trained")

    assert any("has variable w:0: float32 (3,)" in text for text in stopped(work))

    def dealt(processes, rank):
        with in_sync(Model(processes), at(0, 1 + rank), trains=True):
            raise AssertionError("it trained")

    assert any("has replicas of a process: 2, worker 0" in text for text in stopped(dealt))


def test_settings_that_differ_are_refused_before_anything_is_trained():
    def work(processes, rank):
        with in_sync(Model(processes), at(0, lines=[f"seed: {rank}"]), trains=True):
            raise AssertionError("it trained")

    assert any("worker 1 has seed: 1, worker 0 seed: 0" in text for text in stopped(work))


@pytest.mark.parametrize("end", ["fit", "program"])
def test_the_end_compares_what_was_trained_for_few_steps(end):
    """A training that is shorter than the distance between two comparisons."""

    def work(processes, rank):
        model, reached = Model(processes), at(0)
        with in_sync(model, reached, trains=True):
            reached.step = 1
        with in_sync(model, reached, trains=True):
            reached.step = 2
            model.trainable_variables[0].assign([float(rank)] * 2)
        if end == "fit":
            check_end(model, reached)
        leave(processes.members.channel)

    texts = stopped(work)
    assert any("after step 2; they must be equal" in text for text in texts), texts
    assert "went on" not in texts


def test_what_was_compared_at_the_end_of_fit_is_not_compared_again():
    def work(processes, rank):
        model, reached = Model(processes), at(0)
        with in_sync(model, reached, trains=True):
            reached.step = 1
        check_end(model, reached)
        model.trainable_variables[0].assign([float(rank)] * 2)  # the program's own business
        leave(processes.members.channel)

    assert stopped(work) == ["went on"] * 2


def test_the_methods_of_keras_are_ours_once():
    """`fit` has a decorator of Keras that looks like ours."""
    names = ("fit", "reset_metrics", "train_on_batch", "make_train_function")
    methods = [getattr(tf.keras.Model, name) for name in names]
    assert all(hasattr(method, "_fpsim_extended") for method in methods)
    extend_models()
    assert [getattr(tf.keras.Model, name) for name in names] == methods


def test_a_process_that_is_lost_is_told_with_step_and_checkpoint():
    first, second = local_transports(2)
    second.close()
    processes = ReplicaProcesses(Members(Channel(first)))
    with pytest.raises(
        StoppedError, match=r"^worker 1 is gone \(step 3\); there is no checkpoint$"
    ):
        processes.every([np.float32(1)], "a node", 3)
    note_saved(Model(processes), at(2))
    sentence = r"^worker 1 is gone \(step 3\); the last checkpoint is step 2$"
    with pytest.raises(StoppedError, match=sentence):
        processes.every([np.float32(1)], "a node", 3)


def test_saving_a_model_is_noted(tmp_path):
    with machine():
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        (transport,) = local_transports(1)
        with strategy.scope():
            model = small_model()
            for save, name in ((model.save_weights, "weights"), (model.save, "model.keras")):
                together = strategy.replica_set = ReplicaProcesses(Members(Channel(transport)))
                together.size = 2
                current().step = 7
                save(str(tmp_path / name))
                assert together.members.saved == 7


def test_a_model_of_one_process_is_left_alone():
    model = Model(ALONE, start=4.0)
    with in_sync(model, at(0), trains=True):
        assert model.values == [4.0] * 3
    check_end(model, at(1))


def test_what_runs_without_the_machine_is_refused_in_several_processes():
    class Two(ReplicaProcesses):
        def __init__(self):
            self.rank, self.size = 0, 2

    with machine():
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        strategy.replica_set = Two()
        with strategy.scope():
            model = small_model(run_eagerly=True)
            with pytest.raises(RuntimeError, match="Keras models cannot run eagerly"):
                model.fit(data(), verbose=0)
