"""fpsim.tf gives the names of the front end, or says what is missing (golden)."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest


def test_names():
    pytest.importorskip(
        "tests.ipu.frontends.tensorflow.framework",
        reason="tensorflow is not installed; run: make test-tensorflow",
    )
    import fpsim.tf
    from ipu.frontends.tensorflow.engine.current import TensorFlowRun, machine

    assert (fpsim.tf.machine, fpsim.tf.TensorFlowRun) == (machine, TensorFlowRun)


def test_without_tensorflow_the_import_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tensorflow" else
        find(name, *rest),
    )
    for name in [n for n in sys.modules if n.startswith(("ipu.frontends.tensorflow", "fpsim.tf"))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match="TensorFlow is not installed; install it with"):
        importlib.import_module("fpsim.tf")
