"""Listings of the user guide's chapter on training: feeds, implicit feeds, results during a run."""

from __future__ import annotations

from ipu.experiments.listings.sources import DocumentListing

__all__ = ["LISTINGS"]

_STRATEGY = """
    import tensorflow as tf
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
"""

_LINE = """
    import numpy as np

    rng = np.random.default_rng(0)
    xs = rng.normal(size=(64, 4)).astype(np.float32)
    ys = xs @ np.float32([[1.0], [-2.0], [0.5], [0.25]])

    def create_dataset():
        data = tf.data.Dataset.from_tensor_slices((xs, ys))
        return data.batch(8, drop_remainder=True).repeat()

    def create_model():
        return tf.keras.Sequential([tf.keras.layers.Dense(1)])

    @tf.function(jit_compile=True)
    def training_loop(iterator, steps, outfeed, model, optimizer):
        for _ in tf.range(steps):
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            outfeed.enqueue(loss)
"""

LISTINGS = (
    DocumentListing(
        "feed_loop", "000", 29, 78, numbered=True,
        after="""
            assert result["d1"].shape == (10, 800), result["d1"].shape
            assert (result["d1"] == 2).numpy().all() and (result["d2"] == 0).numpy().all()
            assert int(count_out) == 10
            print("same")
        """,
    ),
    DocumentListing(
        "implicit_iterator", "000", 108, 109, inside=1,
        before=f"""{_STRATEGY}
    def create_dataset():
        return tf.data.Dataset.from_tensors(tf.ones([4])).repeat()

    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with strategy.scope():""",
        after="""
            @tf.function(jit_compile=True)
            def total(source):
                return tf.reduce_sum(next(source))

            with strategy.scope():
                assert float(strategy.run(total, args=(iterator,))) == 4
            print("same")
        """,
    ),
    DocumentListing(
        "next_in_loop", "000", 113, 116, blanks=(("...", "steps_per_execution, iterator"),),
        before=_STRATEGY,
        after="""
                outfeed.enqueue(tf.reduce_sum(features) + labels)

            outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
            strategy = ipu.ipu_strategy.IPUStrategyV1()
            with strategy.scope():
                pairs = tf.data.Dataset.from_tensor_slices((tf.ones([6, 2]), tf.range(6.0)))
                source = iter(pairs)
                strategy.run(tf.function(model_fn), args=(5, source))
            assert [float(x) for x in outfeed] == [2, 3, 4, 5, 6]
            print("same")
        """,
    ),
    DocumentListing(
        "iterated_outfeed", "000", 120, 149, numbered=True, before=_STRATEGY + _LINE,
        after="""
            assert float(total) / steps_per_execution < 1e-3, total
            print("same")
        """,
    ),
    DocumentListing(
        "dequeue_thread", "000", 155, 243, numbered=True,
        before="""
            import tensorflow

            tensorflow.keras.utils.set_random_seed(1)
        """,
    ),
    DocumentListing(
        "concurrent_stages", "000", 325, 342, numbered=True,
        broken="args... and a0, a1, ... are no Python",
    ),
    DocumentListing(
        "cast_gradients", "000", 410, 414, before=_STRATEGY,
        after="""
            variable = tf.Variable(tf.constant([1.0, 2.0], tf.float16))
            CastGradientsSGD(0.5).apply_gradients([(tf.constant([1.0, 1.0]), variable)])
            assert variable.dtype == tf.float16 and variable.numpy().tolist() == [0.5, 1.5]
            print("same")
        """,
    ),
    DocumentListing(
        "benchmark_json", "000", 446, 456, tf1=True,
        blanks=(("= ...", "= tf.data.Dataset.from_tensors(tf.ones([8])).repeat()"),),
        after="""
            assert len(json_object["epochs"]) == 10
            assert json_object["epochs"][0]["elements_processed"] == 512
            assert json_object["epochs"][0]["total_bytes_processed"] == 512 * 32
            print("same")
        """,
    ),
)
