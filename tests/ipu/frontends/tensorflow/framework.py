"""TensorFlow with the front end installed; without it the importing test file is skipped."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

if sys.version_info >= (3, 14):
    pytest.skip("TensorFlow serves Python up to 3.13", allow_module_level=True)

if find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed; run: make test-tensorflow", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ipu.frontends.tensorflow  # noqa: I001  installs before TensorFlow is imported
    import tensorflow as tf
    from tensorflow.python import ipu

from ipu.frontends.tensorflow.engine.current import choose, current
from ipu.frontends.tensorflow.engine.machine import Choices
from ipu.frontends.tensorflow.settings import system

__all__ = [
    "Choices", "choose", "configured", "current", "ipu", "launch", "machine", "session", "tf",
]

tf.config.threading.set_intra_op_parallelism_threads(1)


@contextmanager
def machine(**choices):
    """A machine with these choices, and none of the program's settings, for a test.

    It may launch unconfigured; that programs may not is a test of its own (test_launch.py).
    """
    system.reset()
    try:
        yield choose(Choices(**{"unconfigured": True} | choices))
    finally:
        system.reset()
        choose(Choices())


def configured(ipus=1, stable_norms=False, **bits):
    """Configure the system with that many IPUs, norms and floating-point control bits."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.norms.use_stable_statistics = stable_norms
    for name, value in bits.items():
        setattr(config.floating_point_behaviour, name, value)
    config.configure_ipu_system()
    return current()


def launch(function, *arguments):
    """What a function gives on the machine: one launch."""
    return ipu.ipu_strategy.IPUStrategyV1().run(function, arguments)


@contextmanager
def session():
    """A graph of TensorFlow 1 with resource variables, and a session for it."""
    from ipu.frontends.tensorflow.facade import watch_sessions

    watch_sessions()
    graph = tf.Graph()
    resources = tf.compat.v1.variable_scope("", use_resource=True)
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as opened, resources:
        yield opened
