"""Four dense layers in half precision, as a pipeline and without one."""

from __future__ import annotations

import numpy as np

from tests.ipu.frontends.tensorflow.framework import current, ipu, machine, session, tf

v1 = tf.compat.v1
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 8)).astype(np.float16)
Y = RNG.integers(0, 4, 64).astype(np.int32)


def dense(x, units, name):
    """A dense layer without bias."""
    initial = v1.glorot_uniform_initializer(seed=units)
    return tf.matmul(x, v1.get_variable(name, [x.shape[-1], units], x.dtype, initial))


def hidden(name):
    """A stage that threads the labels through."""
    return lambda x, y: (tf.nn.relu(dense(x, 16, name)), y)


def last(x, y):
    """The stage with the loss."""
    logits = dense(x, 4, "last")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.reduce_mean(losses)


STAGES = [hidden("first"), hidden("second"), hidden("third"), last]


def momentum():
    """The optimiser of all."""
    return v1.train.MomentumOptimizer(0.1, 0.9)


def optimizer_function(loss):
    """Of the pipelines."""
    return ipu.pipelining_ops.OptimizerFunctionOutput(momentum(), loss)


def run(build, *, ipus=4, esr=False, recompute=False, launches=2):
    """What the outfeed gave, the weights and the machine; `build(infeed, outfeed)` is compiled."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.allow_recompute = recompute
    config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.from_bool(esr)
    with machine(), session() as opened:
        config.configure_ipu_system()
        rows = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(4, drop_remainder=True)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(rows)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        done = ipu.ipu_compiler.compile(lambda: build(infeed, outfeed))
        results = outfeed.dequeue() if outfeed.enqueued else []
        opened.run([v1.global_variables_initializer(), infeed.initializer])
        for _ in range(launches):
            opened.run(done)
        actual, weights = opened.run([results, v1.trainable_variables()])
        opened.run(infeed.deleter)
        used = current()
    return actual, weights, used


def plain(count, **options):
    """The model without a pipeline, with the accumulation of one."""

    def build(infeed, outfeed):
        def body(x, y):
            for stage in STAGES[:-1]:
                x, y = stage(x, y)
            loss = last(x, y)
            sent = outfeed.enqueue(loss)
            inner = ipu.optimizers.GradientAccumulationOptimizerV2(momentum(), count, **options)
            return sent, inner.minimize(loss)

        return ipu.loops.repeat(2 * count, body, [], infeed)

    return build


def pipelined(count=8, stages=STAGES, **options):
    """The model as a pipeline that runs twice in a launch."""

    def build(infeed, outfeed):
        named = {"infeed_queue": infeed, "outfeed_queue": outfeed, "repeat_count": 2,
                 "optimizer_function": optimizer_function} | options
        return ipu.pipelining_ops.pipeline(stages, count, **named)

    return build
