"""A line, trained by an estimator of several workers: PROGRAM KIND FOLDER STEPS.

KIND is multi, horovod or failing, where the second worker raises an error in its third step. Prints
a word after each step, and the variables at the end as hexadecimal numbers.
"""

import sys

import numpy as np

if __name__ != "__main__":
    import tests.ipu.frontends.tensorflow.framework  # noqa: F401  skips without TensorFlow

import tensorflow as tf
from tensorflow.python import ipu

v1 = tf.compat.v1


def strategy_of(kind):
    if kind == "horovod":
        from tensorflow.python.ipu import horovod as hvd
        from tensorflow.python.ipu.horovod import ipu_horovod_strategy

        hvd.init()
        return ipu_horovod_strategy.IPUHorovodStrategy(variables_on_host=True)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategy(cluster, variables_on_host=True)


def rows():
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    return x, (x @ np.float32([[1.0], [-2.0], [0.5]])).astype(np.float32)


def input_fn(mode, input_context=None):
    data = tf.data.Dataset.from_tensor_slices(rows())
    if input_context:
        data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return data.repeat().batch(8, drop_remainder=True)


def model_fn(features, labels, mode):
    with v1.variable_scope("line", use_resource=True):
        w = v1.get_variable("w", [3, 1], initializer=v1.random_normal_initializer())
        b = v1.get_variable("b", [1], initializer=v1.zeros_initializer())
        largest = v1.get_variable(
            "largest", [], initializer=v1.zeros_initializer(), trainable=False
        )
    loss = tf.reduce_mean(tf.square(tf.matmul(features, w) + b - labels))
    if mode == tf.estimator.ModeKeys.EVAL:
        metric = v1.metrics.mean(tf.reduce_max(features))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"largest": metric})
    optimizer = v1.train.MomentumOptimizer(0.05, 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss, [w, b]), strict=True)

    def host_model_fn(*host_gradients):
        return optimizer.apply_gradients(zip(host_gradients, variables, strict=True))

    with tf.control_dependencies([largest.assign(tf.reduce_max(features))]):
        train_op = tf.identity(loss)  # each worker has a largest feature of its own
    return ipu.ipu_estimator.IPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, host_call=(host_model_fn, list(gradients))
    )


class Steps(v1.train.SessionRunHook):
    """Prints a word after each step; raises an error after the last."""

    def __init__(self, last=None):
        self.last, self.done = last, 0

    def after_run(self, run_context, run_values):
        print("step", flush=True)
        self.done += 1
        if self.done == self.last:
            raise ArithmeticError("the line is bent")


def main(kind, folder, steps):
    strategy = strategy_of(kind)
    options = ipu.utils.create_ipu_config()
    ipu.utils.auto_select_ipus(options, num_ipus=1)
    config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=ipu.ipu_run_config.IPURunConfig(ipu_options=options),
        train_distribute=strategy, eval_distribute=strategy,
        tf_random_seed=1 + strategy.input_context.input_pipeline_id,
    )
    v1.logging.set_verbosity(v1.logging.INFO)
    classifier = ipu.ipu_estimator.IPUEstimator(model_fn, folder, config)
    last = 3 if kind == "failing" and strategy.workers.rank else None
    classifier.train(input_fn, hooks=[Steps(last)], max_steps=int(steps))
    for name in sorted(classifier.get_variable_names()):
        print(name, np.asarray(classifier.get_variable_value(name)).tobytes().hex(), flush=True)
    metrics = classifier.evaluate(input_fn, steps=4)
    print("evaluated", metrics["global_step"], metrics["loss"], metrics["largest"], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
