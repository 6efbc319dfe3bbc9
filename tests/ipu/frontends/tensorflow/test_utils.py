"""utils: a seed gives the same bits again, in both TensorFlows (law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, ipu, launch, machine, session, tf

utils = ipu.utils
ON = ipu.config.StochasticRoundingBehaviour.ON


def test_a_seed_gives_the_same_bits_again():
    double = tf.function(lambda x: x + tf.constant(1e-3, tf.half))
    one = tf.ones(4096, tf.half)
    with machine():
        configured(esr=ON)
        first = launch(double, one).numpy()
        second = launch(double, one).numpy()
        utils.reset_ipu_seed(0)
        again = launch(double, one).numpy()
        utils.reset_ipu_seed(7)
        other = launch(double, one).numpy()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert len(set(first.tolist())) == 2  # measured on the machine


def test_in_a_session_it_is_an_operation():
    with machine() as used, session() as run:
        before = used.device.source
        operation = utils.reset_ipu_seed(7)
        assert used.device.source is before
        run.run(operation)
        assert used.device.source is not before


def test_a_seed_is_an_integer():
    for seed in (1.5, True):
        with pytest.raises(TypeError, match=f"seed={seed!r} is not an integer"):
            utils.reset_ipu_seed(seed)


def test_functions_of_before_are_there():
    assert callable(utils.create_ipu_config)
    assert utils.move_variable_initialization_to_cpu() is None
    assert set(utils.__all__) <= set(dir(utils))


def test_the_machine_is_asked_for_its_ipus(monkeypatch):
    with machine():
        configured(4)
        assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:0") == 4
    assert not ipu.utils.running_on_ipu_model()
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model --max_compilation_threads=1")
    assert ipu.utils.running_on_ipu_model()


def test_enumerations_of_earlier_releases_are_there():
    config = ipu.utils.create_ipu_config(selection_order=ipu.utils.SelectionOrder.SNAKE)
    assert config.selection_order is ipu.config.SelectionOrder.SNAKE
    assert ipu.utils.DeviceConnectionType is ipu.config.DeviceConnectionType
    kinds = [kind.name for kind in ipu.utils.ExecutionProfileType]
    assert kinds == ["NO_PROFILE", "DEVICE_PROFILE", "IPU_PROFILE", "TILE_PROFILE"]
