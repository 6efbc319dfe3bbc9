"""Listings of the tutorial on half and mixed precision."""

from __future__ import annotations

from ipu.experiments.listings.sources import DocumentListing

__all__ = ["LISTINGS"]

_IMPORTS = """
    import types
    import numpy as np
    import tensorflow as tf
    from tensorflow.python import ipu

    args = types.SimpleNamespace(use_float16_partials=False)
"""

#: What a training body needs around it, and a run of forty batches that must lower the loss.
_NETWORK = f"""{_IMPORTS}
    LOSS_SCALING_FACTOR, LEARNING_RATE = 256.0, 0.01
    half = PRECISION

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.from_bool(half)
    config.configure_ipu_system()

    def chosen_getter(getter, name, dtype=None, trainable=True, shape=None, *rest, **named):
        kept = tf.float32 if trainable else dtype
        variable = getter(name, shape, kept, *rest, trainable=trainable, **named)
        return variable if kept == dtype else tf.cast(variable, dtype, name=name + "_cast")

    def dense(x, units, name):
        with tf.variable_scope(name, use_resource=True):
            kernel = tf.get_variable("kernel", [x.shape[-1], units], x.dtype,
                                     initializer=tf.glorot_uniform_initializer(seed=units))
            return tf.matmul(x, kernel)

    def model_function(x):
        return dense(tf.nn.relu(dense(x, 16, "hidden")), 4, "output")

    def model(x, training):
        return model_function(x)
"""
_TRAIN = """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 320)
    images = (rng.normal(size=(320, 8)) * 0.3 + np.eye(4, 8)[labels]).astype(np.float16)
    data = tf.data.Dataset.from_tensor_slices((images, labels.astype(np.int32)))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data.repeat().batch(32, drop_remainder=True))

    def epoch():
        start = tf.constant(0, CARRIED)
        return ipu.loops.repeat(10, training_loop_body, [start], infeed)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        total = ipu.ipu_compiler.compile(epoch)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), infeed.initializer])
        losses = [float(np.ravel(sess.run(total))[0]) / 10 for _ in range(4)]
    print(losses)
    assert losses[-1] < 0.8 * losses[0]
"""


def _flat(*runs: tuple[int, int]) -> str:
    """Levels from pairs of level and number of lines."""
    return "".join(str(level) * lines for level, lines in runs)


LISTINGS = (
    DocumentListing("swamped_a_little", "004", 42, 46, levels=_flat((0, 5))),
    DocumentListing(
        "swamped_by_degrees", "004", 55, 64, levels=_flat((0, 3), (1, 4), (2, 2), (1, 1))
    ),
    DocumentListing("swamped", "004", 72, 76, levels=_flat((0, 5))),
    DocumentListing("stalled_sum", "004", 86, 90, levels=_flat((0, 3), (1, 1), (0, 1))),
    DocumentListing(
        "stochastic_sums", "004", 114, 136, tf1=True, before=_IMPORTS,
        levels=_flat((0, 10), (1, 1), (0, 3), (1, 1), (0, 1), (1, 3), (2, 3), (1, 1)),
        after="""
            assert all(0.9 <= total <= 1.1 for total in running_total)
            assert abs(np.mean(np.float64(running_total)) - 1) <= 0.01
            assert len(set(running_total.tolist())) > 5
        """,
    ),
    DocumentListing(
        "method_2_dense", "004", 152, 173, tf1=True, before=_IMPORTS,
        levels=_flat((0, 3), (1, 19)),
        after="""
            config = ipu.config.IPUConfig()
            config.auto_select_ipus = 1
            config.configure_ipu_system()
            tf.get_variable_scope().set_use_resource(True)
            x = tf.placeholder(tf.float16, [3])

            def forward_and_backward(x):
                output = method_2_dense(x, 2)
                return [output, *tf.gradients(tf.reduce_sum(output), tf.trainable_variables())]

            with ipu.scopes.ipu_scope("/device:IPU:0"):
                results = ipu.ipu_compiler.compile(forward_and_backward, [x])
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                output, by_weights, by_biases = sess.run(results, {x: [1.0, 2.0, 3.0]})
            assert output.dtype == np.float16 and output.shape == (2,)
            assert by_weights.dtype == by_biases.dtype == np.float32
            assert by_weights.tolist() == [[1, 2, 3], [1, 2, 3]]
        """,
    ),
    DocumentListing(
        "custom_getter", "004", 190, 202, tf1=True, before=_IMPORTS,
        levels=_flat((0, 3), (1, 1), (2, 4), (1, 1), (2, 4)),
        after="""
            tf.get_variable_scope().set_use_resource(True)
            with tf.variable_scope("all", custom_getter=fp32_parameter_getter):
                half = tf.get_variable("w", shape=[2], dtype=tf.float16)
                single = tf.get_variable("v", shape=[2], dtype=tf.float32)
                counter = tf.get_variable("n", shape=[], dtype=tf.float16, trainable=False)
            assert half.dtype == tf.float16 and half.name.startswith("all/w_cast")
            assert not hasattr(half, "assign") and hasattr(single, "assign")
            kept = {v.op.name: v.dtype for v in tf.global_variables()}
            assert kept == {"all/w": tf.float32, "all/v": tf.float32, "all/n": tf.float16}
        """,
    ),
    DocumentListing(
        "convolution", "004", 207, 225, tf1=True,
        levels=_flat((0, 2), (1, 4), (2, 13)),
        broken="a default stands before a positional argument",
    ),
    DocumentListing(
        "getter_in_a_scope", "004", 234, 243, tf1=True,
        levels=_flat((0, 2), (1, 3), (2, 1), (1, 1), (2, 3)),
        broken="labels is not defined",
    ),
    DocumentListing(
        "scaled_loss", "004", 271, 295, tf1=True,
        before=_NETWORK.replace("PRECISION", "False"),
        levels=_flat((0, 2), (1, 2), (2, 21)),
        after=_TRAIN.replace("CARRIED", "tf.float32"),
    ),
    DocumentListing(
        "scaled_rate", "004", 301, 314, tf1=True,
        before=_NETWORK.replace("PRECISION", "True"),
        levels=_flat((0, 1), (1, 13)),
        after=_TRAIN.replace("CARRIED", "tf.float16"),
    ),
    DocumentListing(
        "exceptions", "004", 341, 352, tf1=True, before=_IMPORTS,
        levels=_flat((0, 9), (1, 2), (0, 1)),
        after="""
            big = tf.placeholder(tf.float16, [2])
            with ipu.scopes.ipu_scope("/device:IPU:0"):
                squared = ipu.ipu_compiler.compile(lambda x: x * x, [big])
            with tf.Session() as sess:
                assert sess.run(squared, {big: [2.0, 3.0]})[0].tolist() == [4, 9]
                try:
                    sess.run(squared, {big: [2.0, 10000.0]})
                except Exception as trap:
                    text = str(trap)
            assert "OFLO 0x1" in text and "DIV0 0x0" in text and "mul" in text, text
        """,
    ),
    DocumentListing(
        "stable_statistics", "004", 378, 378, tf1=True,
        before=_IMPORTS + "\n    ipu_configuration = ipu.config.IPUConfig()",
        after="assert ipu_configuration.norms.use_stable_statistics",
    ),
    DocumentListing(
        "half_partials", "004", 397, 399, tf1=True, levels=_flat((0, 1), (1, 2)),
        before=_IMPORTS + "\n    args.use_float16_partials = True"
        "\n    ipu_configuration = ipu.config.IPUConfig()",
        after="""
            ipu_configuration.configure_ipu_system()
            assert ipu_configuration.to_dict()["matmuls.poplar_options"] == {"partialsType": "half"}
        """,
    ),
)
