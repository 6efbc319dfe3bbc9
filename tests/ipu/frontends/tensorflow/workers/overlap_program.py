"""Two layers, trained by an estimator of several workers whose sums go on beside the launch.

PROGRAM FOLDER STEPS. The backward pass of the first layer waits until the hosts have summed the
gradient of the second one: without overlap a step would never end. Prints the account's overlap,
that of this host, and the variables at the end as hexadecimal numbers.
"""

import sys
import threading

import numpy as np

if __name__ != "__main__":
    import tests.ipu.frontends.tensorflow.framework  # noqa: F401  skips without TensorFlow

import tensorflow as tf
from tensorflow.python import ipu

from ipu.frontends.tensorflow.engine.current import current_run

v1 = tf.compat.v1
#: Seconds after which a sum that does not come is missed.
LIMIT = 120.0


def input_fn(mode, input_context=None):
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    if input_context:
        data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return data.repeat().batch(8, drop_remainder=True)


def model_fn(features, labels, mode):
    with v1.variable_scope("net", use_resource=True):
        start = v1.constant_initializer(0.5)
        first = v1.get_variable("first", [3, 4], initializer=start)
        second = v1.get_variable("second", [4, 1], initializer=start)
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.matmul(features, first), second) - labels))
    optimizer = v1.train.GradientDescentOptimizer(0.01)
    gradients, variables = zip(*optimizer.compute_gradients(loss, [first, second]), strict=True)

    def host_model_fn(*host_gradients):
        return optimizer.apply_gradients(zip(host_gradients, variables, strict=True))

    return ipu.ipu_estimator.IPUEstimatorSpec(
        mode, loss=loss, train_op=tf.identity(loss), host_call=(host_model_fn, list(gradients))
    )


def wait_for_sums(workers):
    """The last product of the backward pass waits for the sum of the second layer's gradient."""
    summed, add = threading.Event(), workers.reduced

    def reduced(x, **names):
        total = add(x, **names)
        if "second" in names.get("name", ""):
            summed.set()
        return total

    def see(event):
        if event.direction == "backward" and tuple(event.array.shape) == (3, 4):
            assert summed.wait(LIMIT), "no gradient was summed beside the backward pass"
            summed.clear()

    workers.reduced = reduced
    current_run().watch(see)


def main(folder, steps):
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategy(
        cluster, variables_on_host=True
    )
    wait_for_sums(strategy.workers)
    options = ipu.utils.create_ipu_config()
    ipu.utils.auto_select_ipus(options, num_ipus=1)
    config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=ipu.ipu_run_config.IPURunConfig(ipu_options=options),
        train_distribute=strategy, tf_random_seed=1,
    )
    classifier = ipu.ipu_estimator.IPUEstimator(model_fn, folder, config)
    classifier.train(input_fn, max_steps=int(steps))
    report = current_run().report()
    overlap = report["overlap"]
    print("overlap", overlap["workers"], overlap["account"]["hidden"], overlap["host"]["overlap"])
    print("left", *(name.rpartition("/")[2] for name in overlap["host"]["left"]))
    print("told", *(line for line in report["plan"] if "host" in line), sep="\n")
    for name in ("net/first", "net/second"):
        print(name, np.asarray(classifier.get_variable_value(name)).tobytes().hex(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
