"""A line fitted on the machine: short trainings whose weights and losses tests compare."""

from __future__ import annotations

import numpy as np

from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, session, tf

v1 = tf.compat.v1
RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 3))
Y = X @ np.array([[1.0], [-2.0], [0.5]])


def data(dtype, batch):
    """Batches of the line, without end."""
    kind = dtype.as_numpy_dtype
    rows = tf.data.Dataset.from_tensor_slices((X.astype(kind), Y.astype(kind)))
    return rows.repeat().batch(batch, drop_remainder=True)


def fit(optimiser, *, iterations=8, launches=2, dtype=tf.float32, ipus=1, batch=4, esr=False):
    """Losses, and the weights after every iteration, with the replicas' side by side."""
    kinds = ipu.config.StochasticRoundingBehaviour
    rounding = esr if isinstance(esr, kinds) else kinds.from_bool(esr)
    with machine(), session() as run:
        configured(ipus=ipus, esr=rounding)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data(dtype, batch))
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def body(x, y):
            w = v1.get_variable("w", [3, 1], dtype, v1.zeros_initializer())
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
            with tf.control_dependencies([optimiser().minimize(loss)]):
                return outfeed.enqueue((loss, w.read_value()))

        done = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(iterations, body, [], infeed))
        results = outfeed.dequeue()
        run.run([v1.global_variables_initializer(), infeed.initializer])
        for _ in range(launches):
            run.run(done)
        losses, weights = run.run(results)
        run.run(infeed.deleter)
    return np.asarray(losses), np.asarray(weights)


def expected(count, method, iterations=16, batch=4, rate=0.05, momentum=0.9, replicas=1):
    """Weights after every iteration, in binary64."""
    w, velocity, total = np.zeros((3, 1)), np.zeros((3, 1)), np.zeros((3, 1))
    weights, first = [], 0
    for n in range(iterations):
        gradients = []
        for _ in range(replicas):
            rows = np.arange(first, first + batch) % len(X)
            gradients.append(2 / batch * X[rows].T @ (X[rows] @ w - Y[rows]))
            first += batch
        total = total + np.mean(gradients, axis=0)
        if (n + 1) % count == 0:
            velocity = momentum * velocity + (total if method == "SUM" else total / count)
            w, total = w - rate * velocity, np.zeros((3, 1))
        weights.append(w)
    return np.array(weights)
