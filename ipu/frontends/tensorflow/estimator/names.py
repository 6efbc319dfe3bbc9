"""`tensorflow.python.ipu.ipu_estimator`: the estimator and its spec under one name."""

from __future__ import annotations

from ipu.frontends.tensorflow.estimator.estimator import IPUEstimator
from ipu.frontends.tensorflow.estimator.specs import IPUEstimatorSpec

__all__ = ["IPUEstimator", "IPUEstimatorSpec"]
