"""What the listings mean that cannot run as printed, as programs of our own.

concurrent_stages    stages in an inner list get the same arguments, and the next stage gets the
                     results of the first of them, then those of the second.
convolution          a convolution whose kernel has the type of its input, and a scope of its own.
getter_in_a_scope    a training step whose model asks for its variables through a custom getter.

Source    seeds 000 (concurrent pipeline stages), 004 (custom getters); `broken` of the listings
          says why they do not run.
"""

from __future__ import annotations

from textwrap import dedent
from typing import NamedTuple

__all__ = ["MEANINGS", "Meaning"]


class Meaning(NamedTuple):
    """A program for `fpsim tf --tf1`, and the listings whose meaning it shows."""

    listings: tuple[str, ...]
    program: str


_CONCURRENT = """
    import numpy as np
    import tensorflow as tf
    from tensorflow.python import ipu
    from tensorflow.python.ipu.ops import pipelining_ops

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(64, 6)).astype(np.float32)
    targets = rows @ rng.normal(size=(6, 1)).astype(np.float32)


    def weighted(x, name, width):
        with tf.variable_scope(name, use_resource=True, reuse=tf.AUTO_REUSE):
            start = tf.glorot_uniform_initializer(seed=len(name))
            return tf.matmul(x, tf.get_variable("w", [x.shape[-1], width], initializer=start))


    def first(x, y):
        return tf.nn.relu(weighted(x, "first", 8)), y


    def left(x, y):
        return weighted(x, "left", 4), y


    def right(x, y):
        return weighted(x, "right", 3)


    def join(from_left, y, from_right):
        return tf.concat([from_left, from_right], 1), y


    def last(x, y):
        return tf.reduce_mean(tf.square(weighted(x, "last", 1) - y))


    def both(x, y):
        return (*left(x, y), right(x, y))


    def train(stages, devices):
        tf.reset_default_graph()
        data = tf.data.Dataset.from_tensor_slices((rows, targets)).repeat()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data.batch(4, drop_remainder=True))
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def optimise(loss):
            return pipelining_ops.OptimizerFunctionOutput(
                tf.train.GradientDescentOptimizer(0.02), loss
            )

        def program():
            return pipelining_ops.pipeline(
                stages, gradient_accumulation_count=8, repeat_count=6, infeed_queue=infeed,
                outfeed_queue=outfeed, optimizer_function=optimise, device_mapping=devices,
            )

        run = ipu.ipu_compiler.compile(program)
        losses = outfeed.dequeue()
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), infeed.initializer])
            session.run(run)
            result = session.run([losses, tf.trainable_variables()])
            session.run(infeed.deleter)
        return result


    losses, weights = train([first, [left, right], join, last], [0, [1, 2], 2, 3])
    same_losses, same_weights = train([first, both, join, last], [0, 1, 2, 3])
    assert np.array_equal(losses, same_losses)
    assert all(map(np.array_equal, weights, same_weights))
    assert np.mean(losses[-8:]) < 0.8 * np.mean(losses[:8])
    print("same")
"""

_GETTER = """
    import numpy as np
    import tensorflow as tf
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()


    def convolution(x, size, channels, name, stride=1, padding="SAME"):
        with tf.variable_scope(name, use_resource=True):
            shape = [size, size, int(x.shape[-1]), channels]
            kernel = tf.get_variable("kernel", shape, x.dtype)
        kinds.append(kernel.dtype)
        return tf.nn.conv2d(x, filters=kernel, strides=[1, stride, stride, 1], padding=padding)


    def wide_getter(getter, *names, dtype, trainable, **options):
        stored = tf.float32 if trainable else dtype
        variable = getter(*names, dtype=stored, trainable=trainable, **options)
        return tf.cast(variable, dtype)


    def step(total, images, labels):
        with tf.variable_scope("model", use_resource=True, custom_getter=wide_getter):
            features = tf.nn.relu(convolution(images, 3, 8, "stem"))
            features = convolution(features, 3, 4, "head", stride=2)
        logits = tf.cast(tf.reduce_mean(features, [1, 2]), tf.float32)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        return total + loss, train


    kinds = []
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 128).astype(np.int32)
    patterns = rng.normal(size=(4, 8, 8, 2))
    images = (patterns[labels] + 0.3 * rng.normal(size=(128, 8, 8, 2))).astype(np.float16)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).repeat()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data.batch(32, drop_remainder=True))
    tf.set_random_seed(1)

    (total,) = ipu.ipu_compiler.compile(
        lambda: ipu.loops.repeat(10, step, [tf.constant(0.0)], infeed)
    )
    stored = {v.op.name: v.dtype.base_dtype for v in tf.trainable_variables()}
    assert stored == {"model/stem/kernel": tf.float32, "model/head/kernel": tf.float32}
    assert set(kinds) == {tf.float16}
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), infeed.initializer])
        losses = [float(session.run(total)) / 10 for _ in range(5)]
        session.run(infeed.deleter)
    assert losses[-1] < 0.8 * losses[0], losses
    print("same")
"""

MEANINGS = (
    Meaning(("concurrent_stages",), dedent(_CONCURRENT)),
    Meaning(("convolution", "getter_in_a_scope"), dedent(_GETTER)),
)
