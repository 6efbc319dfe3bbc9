"""Installing: names, errors, and what is not imported (law)."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from ipu.frontends.processes.vendor_names import vendor_names
from tests.ipu.frontends.tensorflow.framework import tf

from tensorflow.python.autograph.core import config  # isort: skip
from ipu.frontends.tensorflow.install import MODULES, install  # isort: skip


def python(program, **environment):
    """Standard output of a program in a new process."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True,
        timeout=120, check=False, env=os.environ | environment,
    )
    return done.returncode, done.stdout.strip(), done.stderr


def test_every_name_of_the_vendor_is_a_module_of_ours():
    for name in MODULES:
        if name == "horovod":  # importing it needs MPI
            pytest.importorskip("mpi4py")
        module = importlib.import_module(f"tensorflow.python.ipu.{name}")
        assert module.__name__.startswith("ipu.frontends.tensorflow.")
        assert module is importlib.import_module(module.__name__)
        assert module.__spec__.name == module.__name__


IMPORTS = [
    "from tensorflow.keras import ipu; ipu.PipelineStage",
    "from tensorflow.keras.ipu import PipelineStage, layers",
    "import tensorflow.keras.ipu.layers as layers; layers.GroupNormalization",
    "from ipu_tensorflow_addons.keras import layers; layers.GroupNormalization",
    "from ipu_tensorflow_addons.keras.layers import LayerNormalization",
    "import ipu_tensorflow_addons as addons; addons.keras.layers.InstanceNormalization",
    "from tensorflow.python.ipu import custom_ops, ipu_session_run_hooks, ipu_pipeline_estimator",
    "from tensorflow.python.ipu.ops import custom_ops; custom_ops.precompiled_user_op",
    "from tensorflow.python.ipu.utils import SelectionOrder; SelectionOrder.SNAKE",
]


@pytest.mark.parametrize("line", IMPORTS)
def test_programs_import_these(line):
    exec(line, {})


@pytest.mark.parametrize(("line", "text"), [
    ("from tensorflow.python.ipu import embedding_ops", "is not modelled; use tf.nn.embedding"),
    ("from tensorflow.python.ipu.ops import functional_ops", "functional_ops is not modelled"),
    ("import tensorflow.python.ipu.serving", "programs are not exported"),
    ("from ipu_tensorflow_addons.keras import optimizers", "or ALSOptimizer of"),
    ("import ipu_tensorflow_addons.v1", "use tf.compat.v1.train"),
])
def test_modules_that_are_not_modelled_say_what_is(line, text):
    with pytest.raises(ImportError, match=text):
        exec(line, {})


def test_horovod_for_tensorflow_is_the_strategys():
    pytest.importorskip("mpi4py")
    with vendor_names():
        hvd = importlib.import_module("horovod.tensorflow")
        assert hvd is importlib.import_module("ipu.frontends.tensorflow.workers.horovod")
        with pytest.raises(ImportError, match="train by fit in the scope of a PopDistStrategy"):
            importlib.import_module("horovod.tensorflow.keras")


def test_data_sets_of_keras_are_there():
    from tensorflow.python.keras.datasets import mnist

    assert mnist is importlib.import_module("ipu.frontends.tensorflow.datasets.mnist")


def test_installing_twice_changes_nothing():
    before = list(sys.meta_path), config.CONVERSION_RULES
    install()
    assert (list(sys.meta_path), config.CONVERSION_RULES) == before


def test_keras_is_the_one_that_the_documents_use():
    assert tf.keras.Model.__module__.startswith("tf_keras.")


def test_a_tensorflow_with_another_keras_is_refused(monkeypatch):
    others = [finder for finder in sys.meta_path if "ipu.frontends" not in str(finder)]
    monkeypatch.setattr(sys, "meta_path", others)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    with pytest.raises(RuntimeError, match="TensorFlow was imported with Keras 3 before"):
        install()
    assert sys.meta_path == others


def test_the_arithmetic_and_the_networks_leave_tensorflow_alone():
    program = (
        "import sys, fpsim, ipu.learn, ipu.learn.nn, ipu.feed, ipu.run; "
        "print('tensorflow' in sys.modules, 'tf_keras' in sys.modules)"
    )
    assert python(program)[1] == "False False"


def test_an_unknown_name_is_an_import_error():
    with pytest.raises(ImportError):
        importlib.import_module("tensorflow.python.ipu.unknown")


def test_a_name_that_is_missing_is_told_with_those_that_are_there():
    loops = importlib.import_module("tensorflow.python.ipu.loops")
    with pytest.raises(
        AttributeError, match=r"ipu\.loops has no 'for_loop' here; there are repeat"
    ):
        _ = loops.for_loop
    assert not hasattr(loops, "for_loop")


def test_keras_alone_is_the_same_keras():
    """Programs of later SDKs write `import keras`, of which parts have moved since."""

    def module(name):
        return importlib.import_module(f"keras{name}")

    k, moved = tf.keras, module(".optimizer_v2")
    assert module("").layers.Dense is module(".layers").Dense is k.layers.Dense
    assert module(".optimizer_v2.gradient_descent").SGD is moved.gradient_descent.SGD
    assert moved.gradient_descent.SGD is k.optimizers.SGD
    assert module(".optimizer_v2.adam").Adam is k.optimizers.Adam
    older = module(".optimizer_v2.optimizer_v2").OptimizerV2
    assert issubclass(older, k.optimizers.legacy.Optimizer)
    assert module("").ipu is module(".ipu") is k.ipu
    assert module(".ipu.layers").GroupNormalization is k.ipu.layers.GroupNormalization
    assert module(".datasets.mnist").load_data is module("").datasets.mnist.load_data
    assert module(".datasets.mnist").load_data.__module__.startswith("ipu.")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'keras\.unknown'"):
        module(".unknown")


def test_operations_have_two_names():
    vendor = importlib.import_module("tensorflow.python.ipu")
    assert vendor.ops.pipelining_ops is vendor.pipelining_ops
