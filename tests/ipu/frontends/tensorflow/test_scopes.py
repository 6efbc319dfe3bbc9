"""Scopes: rounding, partial sums, places (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow import scopes
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.framework import configured, ipu, launch, machine, tf

ONES = tf.constant(np.ones(4096), tf.float16)


def distinct(function, esr):
    """How many different sums 1 + 1e-3 has in 4096 lanes."""
    with machine():
        configured(esr=ipu.config.StochasticRoundingBehaviour.from_bool(esr))
        return len(np.unique(launch(function, ONES).numpy()))


@pytest.mark.source("graphcore/tensorflow, floating_point_control_bits_test.py")
def test_the_inner_scope_of_rounding_wins():
    def added(x):
        return x + tf.constant(1e-3, tf.float16)

    @tf.function
    def nested(x):
        with scopes.stochastic_rounding(False), scopes.stochastic_rounding(True):
            return added(x)

    @tf.function
    def off(x):
        with scopes.stochastic_rounding(True), scopes.stochastic_rounding(False):
            return added(x)

    assert [distinct(f, False) for f in (tf.function(added), nested, off)] == [1, 2, 1]
    assert [distinct(f, True) for f in (tf.function(added), nested, off)] == [2, 2, 1]


@pytest.mark.parametrize("place", ["scope", "config"])
def test_half_partials_change_products_and_their_gradients(place):
    a = tf.constant(np.random.default_rng(0).normal(size=(64, 64)), tf.float16)

    def product(kind):
        @tf.function
        def program(x):
            with tf.GradientTape() as tape, scopes.partials_type(kind):
                tape.watch(x)
                y = tf.matmul(x, x)
            return y, tape.gradient(y, x)

        return program

    def plain(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.matmul(x, x)
        return y, tape.gradient(y, x)

    with machine():
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        single = launch(product(np.float32), a)
        half = launch(product(np.float16), a)
        if place == "config":
            config.matmuls.poplar_options = {"partialsType": "half"}
            with pytest.warns(RuntimeWarning, match="Resetting existing IPU configuration"):
                config.configure_ipu_system()
            by_config = launch(tf.function(plain), a)
            assert all((h.numpy() == c.numpy()).all() for h, c in zip(half, by_config, strict=True))
            inside = launch(product(np.float32), a)
            assert all((s.numpy() == i.numpy()).all() for s, i in zip(single, inside, strict=True))
    assert all((s.numpy() != h.numpy()).any() for s, h in zip(single, half, strict=True))


def test_what_runs_on_the_host_keeps_no_rule_of_the_machine():
    big = tf.constant([10000.0], tf.float16)

    @tf.function
    def program(x):
        with scopes.outside_compilation_scope():
            host = x * x
        return x * x, host

    with machine():
        ours, host = launch(program, big)
    assert (ours.numpy().tolist(), host.numpy().tolist()) == ([65504.0], [np.inf])


@pytest.mark.source("graphcore/tensorflow, scopes.py")
def test_variables_of_a_scope_are_resources():
    with tf.Graph().as_default(), tf.compat.v1.variable_scope("", use_resource=False):
        with scopes.ipu_scope("/device:IPU:0"):
            assert hasattr(tf.compat.v1.get_variable("w", [1]), "handle")
        assert not hasattr(tf.compat.v1.get_variable("v", [1]), "handle")


def test_scopes_refuse_what_they_do_not_know():
    with pytest.raises(ValueError, match="device='/cpu:0' is not"), scopes.ipu_scope("/cpu:0"):
        pass
    with pytest.raises(ValueError, match="index=-1 is not an IPU"), scopes.ipu_shard(-1):
        pass
    with pytest.raises(TypeError, match="override=1 is not"), scopes.stochastic_rounding(1):
        pass
    with pytest.raises(ValueError, match="is not a type of partial sums"):
        scopes.partials_type(np.int32).__enter__()
    forget()
    with pytest.warns(RuntimeWarning, match="does not model"), scopes.frontend_attribute("a", "b"):
        pass
    with tf.Graph().as_default(), scopes.ipu_shard([0, 1]), scopes.ipu_scope("/device:IPU:0"):
        assert tf.no_op().node_def.attr["_fpsim_shard"].s == b"0,1"


@pytest.mark.parametrize(("ipus", "last", "replicas"), [(8, 1, 4), (4, 2, 1), (2, 0, 2), (1, 1, 1)])
def test_replicas_are_ipus_over_shards(ipus, last, replicas):
    with machine():
        used = configured(ipus)
        for index in range(last + 1):
            with tf.Graph().as_default(), scopes.ipu_shard(index):
                pass
        assert used.replicas == replicas


def test_ipus_are_a_multiple_of_the_shards():
    refused = pytest.raises(ValueError, match="n_ipus=3 is no multiple of the 2 IPUs")
    with machine():
        configured(3)
        with refused, tf.Graph().as_default(), scopes.ipu_shard(1):
            pass


def test_variables_of_integers_count_outside_too():
    counter = tf.Variable(3)

    @tf.function
    def count():
        with ipu.scopes.outside_compilation_scope():
            counter.assign_add(2)
            return counter.read_value()

    with machine():
        assert [int(launch(count)) for _ in range(2)] == [5, 7]
    assert counter.numpy() == 7
