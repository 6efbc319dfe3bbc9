"""A line as a model function, and estimators of it."""

from __future__ import annotations

import numpy as np

from ipu.frontends.tensorflow.estimator.training import EstimatorSpec, ModeKeys
from tests.ipu.frontends.tensorflow.framework import ipu, tf

v1 = tf.compat.v1
X = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
Y = (X @ np.float32([[1.0], [-2.0], [0.5]])).astype(np.float32)


def input_fn(batch=4):
    """Batches of the line."""
    rows = tf.data.Dataset.from_tensor_slices((X, Y))
    return rows.repeat().batch(batch, drop_remainder=True)


def predictions(features):
    """The line."""
    with v1.variable_scope("line", use_resource=True):
        return tf.matmul(features, v1.get_variable("w", [3, 1], tf.float32, v1.zeros_initializer()))


def model_fn(features, labels, mode, params):
    """All three modes."""
    line = predictions(features)
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"line": line, "twice": 2 * line})
    loss = tf.reduce_mean(tf.square(line - labels))
    if mode == ModeKeys.EVAL:
        error = v1.metrics.mean_absolute_error(labels, line)
        return EstimatorSpec(mode, loss=loss, eval_metric_ops={"error": error})
    wrap = params.get("wrap", lambda inner: inner)
    return EstimatorSpec(
        mode, loss=loss, train_op=wrap(v1.train.GradientDescentOptimizer(0.1)).minimize(loss)
    )


def estimator(folder, function=model_fn, *, ipus=1, iterations=1, params=None, **options):
    """An estimator of the line."""
    settings = ipu.config.IPUConfig()
    settings.auto_select_ipus = ipus
    run = ipu.ipu_run_config.IPURunConfig(iterations, settings, num_replicas=ipus)
    config = ipu.ipu_run_config.RunConfig(run, tf_random_seed=1)
    return ipu.ipu_estimator.IPUEstimator(
        function, model_dir=str(folder), config=config, params=params or {}, **options
    )
