"""The vendor's names (golden)."""

from __future__ import annotations

from ipu.frontends.tensorflow.estimator import estimator, names, specs
from tests.ipu.frontends.tensorflow.framework import ipu


def test_the_estimator_and_its_spec():
    assert ipu.ipu_estimator is names
    assert names.IPUEstimator is estimator.IPUEstimator
    assert names.IPUEstimatorSpec is specs.IPUEstimatorSpec
