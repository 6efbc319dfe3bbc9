"""Names that TensorFlow lacks, that are missing, and compiled code: refusals (golden)."""

from __future__ import annotations

import pytest

from ipu.feed.data import MissingError
from ipu.frontends.tensorflow.additions import add_names
from ipu.frontends.tensorflow.estimator import training
from tests.ipu.frontends.tensorflow.framework import ipu, tf

from ipu.frontends.tensorflow.missing import no_name, refusing  # isort: skip
from tests.ipu.frontends.tensorflow.framework import launch, machine, session


@pytest.mark.parametrize("module", [tf, tf.compat.v1], ids=["v2", "v1"])
def test_estimators_are_ours_and_data_sets_download_nothing(module, monkeypatch):
    add_names()
    assert module.estimator.TrainSpec is training.TrainSpec
    assert module.estimator.SessionRunHook is tf.compat.v1.train.SessionRunHook
    with pytest.raises(AttributeError, match="has no 'DNNClassifier' here; there are"):
        _ = module.estimator.DNNClassifier
    monkeypatch.delenv("FPSIM_DATA", raising=False)
    for name in ("mnist", "fashion_mnist", "cifar10"):
        with pytest.raises(MissingError, match="set FPSIM_DATA"):
            getattr(module.keras.datasets, name).load_data()


def test_what_the_vendor_has_is_not_modelled_and_other_names_are_not_there():
    refuse = refusing("ipu.room", {"chair"}, ["table", "lamp"])
    with pytest.raises(NotImplementedError, match=r"^ipu\.room\.chair is not modelled; ther"):
        refuse("chair")
    with pytest.raises(AttributeError, match=no_name("ipu.room", "stool", ["table", "lamp"])):
        refuse("stool")


@pytest.mark.parametrize("module", [ipu.nn_ops, ipu.keras.layers])
def test_modules_refuse_by_it(module):
    assert "missing.py" in module.__getattr__.__code__.co_filename
    assert not hasattr(module, "__wrapped__")


@pytest.mark.parametrize("name", ["precompiled_user_op", "cpu_user_operation"])
def test_a_library_cannot_be_executed(name):
    with pytest.raises(NotImplementedError, match=f"{name}: library_path='lib.so' .*; write it"):
        getattr(ipu.custom_ops, name)([tf.constant(1.0)], "lib.so", outs={"output_types": []})


def test_an_expression_cannot_be_fused():
    def square(x):
        return x * x

    with pytest.raises(NotImplementedError, match="square becomes a fused codelet"):
        ipu.custom_ops.codelet_expression_op(square, tf.constant(1.0))


show = ipu.internal_ops.print_tensor


@pytest.mark.source("S4-37")
def test_a_tensor_of_a_program_is_shown(capfd):
    def program(x):
        show(x + 1, name="sum")
        return x

    with machine():
        launch(tf.function(program), tf.constant([0.5, 1.0], tf.half))
    assert "sum: [1.5 2. ]" in capfd.readouterr().err


def test_a_program_of_a_session_has_to_need_it(capfd):
    with machine(), session() as run:
        result = ipu.ipu_compiler.compile(lambda: [tf.constant(1.5), show(tf.constant(2.5))])
        run.run(result)
    assert "Const" in capfd.readouterr().err


def test_an_eager_tensor_is_shown_at_once(capfd):
    show(tf.constant(3))
    assert "tensor: 3" in capfd.readouterr().err
