"""A Keras model whose replicas are dealt to processes: PROGRAM KIND REPLICAS [EPOCHS].

KIND is multi (IPUMultiWorkerStrategy and TF_CONFIG), popdist (PopDistStrategy under poprun) or one
(an IPUStrategy with all replicas in this process). REPLICAS are those of all processes. Prints a
line of names and values: the process, digests of weights, losses and moving statistics, and the
number of its predictions.
"""

import hashlib
import sys

import numpy as np

if __name__ != "__main__":
    import tests.ipu.frontends.tensorflow.framework  # noqa: F401  skips without TensorFlow

import tensorflow as tf
from tensorflow.python import ipu

BATCH, ROUNDS = 8, 6


def digest(arrays):
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


def strategy_of(kind):
    """The strategy, this process's number and how many there are."""
    if kind == "multi":
        cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategy(cluster)
        context = strategy.input_context
        return strategy, context.input_pipeline_id, context.num_input_pipelines
    if kind == "popdist":
        import popdist

        strategy = ipu.distributed.popdist_strategy.PopDistStrategy()
        return strategy, popdist.getInstanceIndex(), popdist.getNumInstances()
    return ipu.ipu_strategy.IPUStrategyV1(), 0, 1


def data(number, processes, replicas):
    """This process's mini-batches: those of its replicas, round by round."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROUNDS, replicas, BATCH, 8)).astype(np.float32)
    y = x[..., :4].argmax(-1).astype(np.int32)
    share = slice(number * replicas // processes, (number + 1) * replicas // processes)
    rows = (x[:, share].reshape(-1, 8), y[:, share].reshape(-1))
    return tf.data.Dataset.from_tensor_slices(rows).batch(BATCH, drop_remainder=True)


def model(number, steps):
    tf.keras.utils.set_random_seed(1 + number)  # the first process's values are those of all
    net = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(16, "relu", input_shape=(8,)),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dense(4),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(
        tf.keras.optimizers.SGD(0.1, 0.9), loss, metrics=["accuracy"], steps_per_execution=steps
    )
    return net


def trained(kind, replicas, epochs=2):
    """Digests of what a process has at the end, by name."""
    strategy, number, processes = strategy_of(kind)
    config = ipu.config.IPUConfig()
    if kind == "popdist":
        import popdist.tensorflow

        popdist.tensorflow.set_ipu_config(config)
        strategy.update_ipu_config(config)
    else:
        config.auto_select_ipus = replicas // processes
    config.configure_ipu_system()
    rows = data(number, processes, replicas)
    with strategy.scope():
        net = model(number, ROUNDS)
        history = net.fit(rows, epochs=epochs, verbose=0).history
        scores = net.evaluate(rows, verbose=0)
        predictions = net.predict(rows, verbose=0)
    return {
        "process": number,
        "weights": digest(v.numpy() for v in net.trainable_variables),
        "losses": digest([history["loss"], history["accuracy"], scores]),
        "statistics": digest(v.numpy() for v in net.non_trainable_variables),
        "predictions": len(predictions),
    }


def main(kind, replicas, epochs="2"):
    result = trained(kind, int(replicas), int(epochs))
    print(*(f"{name} {value}" for name, value in result.items()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
