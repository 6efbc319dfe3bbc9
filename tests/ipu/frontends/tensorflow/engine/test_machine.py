"""The machine of a program: settings, choices, iterations (law)."""

from __future__ import annotations

import pytest

from fpsim import BINARY16
from ipu.frontends.tensorflow.engine.current import aside
from tests.ipu.frontends.tensorflow.framework import (
    Choices,
    configured,
    current,
    launch,
    machine,
    tf,
)


def test_a_configuration_makes_a_new_machine():
    with machine() as before:
        assert current() is before
        after = configured(nanoo=True)
        assert after is not before
        assert current() is after
        assert after.device.control.nanoo
        assert after.device.control.nanoo


def test_a_choice_wins_over_the_programs_settings():
    with machine(sr=True):
        assert configured().device.control.esr
    with machine(sr=False):
        assert not configured(set_all=True).device.control.esr


@pytest.mark.parametrize(
    ("choice", "text"),
    [({"ties": "some"}, "ties='some' is not known; use first or all"),
     ({"found_inf": "no"}, "found_inf='no' is not known; use values or status")],
)
def test_unknown_choices_are_refused(choice, text):
    with pytest.raises(ValueError, match=text):
        Choices(**choice)


def test_formats_that_the_target_lacks_are_refused():
    with pytest.raises(ValueError, match="computes in"), machine(policy="bf16"):
        pass


def test_steps_forget_places_and_keep_the_status():
    with machine() as used:
        used.accumulation = 2
        used.device.status_word = 4
        used.advance()
        assert used.has_overflown
        used.advance()
        assert (used.iteration, used.status_before) == (2, 4)
        assert used.status.oflo
        assert not used.has_overflown


def test_a_seed_begins_again():
    with machine(sr=True) as used:
        context = used.device.context(BINARY16)
        first = context.array([0.1] * 8).values.tolist()
        used.advance()
        used.reseed(0)
        assert used.iteration == 0
        assert context.array([0.1] * 8).values.tolist() == first
        used.reseed(1)
        assert context.array([0.1] * 8).values.tolist() != first


def test_a_new_machine_counts_into_the_same_record():
    with machine(count=True) as first:
        first.launches, first.device.status_word = 3, 4
        first.advance()
        first.device.context(BINARY16).array([0.1])
        second = configured(nanoo=True)
        second.advance()
        assert (second.launches, second.step, second.iteration, second.iterations) == (3, 2, 1, 2)
        assert second.status.oflo
        assert second.account is first.account
        assert second.run is first.run
        assert second.device.context(BINARY16).counts is first.device.counts
        second.reseed(1)
        assert (second.iteration, second.iterations) == (0, 2)


@pytest.mark.parametrize("is_configured", [False, True])
def test_what_runs_aside_leaves_the_machine_and_its_places(is_configured):
    with machine() as before:
        used = configured() if is_configured else before
        used.advance()
        used.clock.operation += 1
        drawn = used.clock.operation
        with aside():
            inner = current()
            assert inner is not used
            assert (inner.iteration, inner.step) == (0, 1)
            other = configured()
            other.advance()
            other.launches += 1
        assert current() is used
        assert (used.iteration, used.step, used.iterations, used.launches) == (1, 2, 2, 1)
        assert used.clock.operation == drawn


@pytest.mark.source("S3-28")
def test_a_program_for_other_shapes_is_compiled_once_and_switched_to():
    """Batches of 3 and of 2 by turns: each change back moves the weights, 8 numbers of 4 bytes."""
    weight = tf.Variable(tf.ones((4, 2)), name="w")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x @ weight)
        weight.assign_sub(1e-3 * tape.gradient(loss, weight))
        return loss

    with machine() as used:
        for rows in (3, 2, 3, 3, 2):
            launch(step, tf.ones((rows, 4)))
        report = used.run.report()
    assert report["programs"] == {"compiled": 2, "switches": 2}
    line = "2 programs compiled, 2 switches between them: each moves 32 bytes out and in, "
    assert any(told.startswith(line) for told in report["plan"])
