"""Names that TensorFlow 2.21 lacks (golden)."""

from __future__ import annotations

import pytest

from ipu.feed.data import MissingError
from ipu.frontends.tensorflow.additions import add_names
from ipu.frontends.tensorflow.estimator import training
from tests.ipu.frontends.tensorflow.framework import tf


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
