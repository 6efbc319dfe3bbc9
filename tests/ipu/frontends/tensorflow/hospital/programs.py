"""Programs of the hospital in TensorFlow: every model with every illness, in sizes of the cause.

A program is the text of a user's file, as for torch; `Illness` is the same. What is computed amidst
the model stands in `middle`, under a scope of that name.
"""

from __future__ import annotations

from tests.ipu.frontends.hospital import Illness

__all__ = ["HEALTHY", "ILLNESSES", "MODELS", "program_text"]

_HEAD = """\
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
tf.random.set_seed({seed})
rng = np.random.RandomState({seed})


def middle(h):
    with tf.name_scope("middle"):
        {stage}
        return h


{model}

strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    net = build()
    optimiser = {optimiser}
    {before}

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = objective(y, net(x, training=True)){weight}
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, net.trainable_variables)]
        {update}
        optimiser.apply_gradients(zip(gradients, net.trainable_variables))
        {after}
        return loss

    for _ in range({steps}):
        loss = strategy.run(step, args=batch())
print("loss", float(loss))
"""

#: Each has `build`, `batch` and `objective`.
MODELS = {
    "mlp": """
layers = tf.keras.layers


def objective(y, logits):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.reduce_mean(losses)

centres = rng.randn(3, 12)


def build():
    x = layers.Input((12,))
    h = layers.Dense(24, "tanh", name="fc1")(x)
    return tf.keras.Model(x, layers.Dense(3, name="fc2")(layers.Lambda(middle, name="stage")(h)))


def batch():
    y = rng.randint(0, 3, 24)
    return (centres[y] + 0.3 * rng.randn(24, 12)).astype("float32"), y.astype("int32")
""",
    "cnn": """
layers = tf.keras.layers


def objective(y, logits):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.reduce_mean(losses)


def build():
    x = layers.Input((8, 8, 1))
    h = layers.Conv2D(6, 3, padding="same", activation="relu", name="conv")(x)
    h = layers.Lambda(middle, name="stage")(layers.Flatten()(layers.MaxPool2D(4)(h)))
    return tf.keras.Model(x, layers.Dense(2, name="head")(h))


def batch():
    y = rng.randint(0, 2, 16)
    x = 0.3 * rng.randn(16, 8, 8, 1)
    x[:, 2:6, 2:6, 0] += y.reshape(-1, 1, 1)
    return x.astype("float32"), y.astype("int32")
""",
    "attention": """
layers = tf.keras.layers


def objective(y, logits):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.reduce_mean(losses)


def attended(qkv):
    q, k, v = tf.split(qkv, 3, -1)
    return tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 8 ** 0.5) @ v


def build():
    x = layers.Input((5, 8))
    h = layers.Lambda(attended, name="attended")(layers.Dense(24, name="qkv")(x))
    h = layers.Lambda(middle, name="stage")(layers.Add()([x, h]))
    return tf.keras.Model(x, layers.Dense(4, name="head")(h))


def batch():
    x = rng.randn(6, 5, 8)
    return x.astype("float32"), (x.sum(-1) > 0).astype("int32")
""",
    "recurrent": """
layers = tf.keras.layers


def objective(y, z):
    return tf.reduce_mean(tf.square(y - z))


def build():
    x = layers.Input((4, 6))
    inner, outer = layers.Dense(20, name="inner"), layers.Dense(20, "tanh", name="outer")
    h = outer(inner(x[:, 0]))
    for i in range(1, 4):
        h = outer(layers.Add()([inner(x[:, i]), h]))
    return tf.keras.Model(x, layers.Dense(1, name="head")(layers.Lambda(middle, name="stage")(h)))


def batch():
    x = rng.randn(20, 4, 6)
    return x.astype("float32"), x.sum((1, 2))[:, None].astype("float32") / 5
""",
    "words": """
layers = tf.keras.layers


def objective(y, logits):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.reduce_mean(losses)


def build():
    x = layers.Input((3,), dtype="int32")
    h = layers.GlobalAveragePooling1D()(layers.Embedding(40, 16, name="table")(x))
    h = layers.Dense(16, "relu", name="hidden")(layers.Lambda(middle, name="stage")(h))
    return tf.keras.Model(x, layers.Dense(40, name="head")(h))


def batch():
    x = rng.randint(0, 40, (32, 3))
    return x.astype("int32"), x.max(1).astype("int32")
""",
}

_ADAM = "tf.keras.optimizers.Adam(0.01)"
_WIDE_EPS = "tf.keras.optimizers.Adam(0.01, epsilon=1e-3)"
_UNSCALED = "gradients = [g / {a} for g in gradients]"
_CLIPPED = """\
norm = tf.sqrt(tf.add_n([tf.reduce_sum(g * g) for g in gradients]))
        gradients = [g * tf.minimum(1.0 / norm, 1.0) for g in gradients]"""
_EMA = """\
for average, w in zip(averages, net.trainable_variables):
            average.assign({a} * average + (1 - {a}) * w)"""
_STAGE = "(middle|stage)"


def _stage(*lines: str) -> str:
    return "\n        ".join(lines)


ILLNESSES = {
    "eps": Illness(
        ("constant 1e-", "zero"), policy="fp16", sizes=("1e-8", "1e-9", "1e-10"),
        optimiser="tf.keras.optimizers.Adam(0.01, epsilon={a})", remedy="fp16+eps=1e-4",
        stage="h = h * tf.cast(tf.range(h.shape[-1]) > 0, h.dtype)",  # whose gradients are zero
    ),
    "scale too high": Illness(
        ("scale|gradient", "high|overflow"), optimiser=_WIDE_EPS, weight=" * {a}",
        update=_UNSCALED, sizes=("2.0 ** 22", "2.0 ** 24", "2.0 ** 23"), well="2.0 ** 7",
    ),
    "scale too low": Illness(
        ("gradient", "zero|underflow|vanish"), optimiser=_ADAM, weight=" * {a}",
        sizes=("1e-7", "3e-8", "5e-8"), well="1.0",
    ),
    "swallowed updates": Illness(
        ("update", "left|swallow"), policy="fp16", sizes=("1e-4", "3e-5", "6e-5"),
        optimiser="tf.keras.optimizers.SGD({a})", remedy="fp16+sr",
    ),
    "variance of a norm": Illness(
        (_STAGE, "mul|pow|square|\\*", "overflow|satur|largest"), optimiser=_ADAM,
        stage=_stage("h = {a} * (1.0 + h * h)", "square = tf.reduce_mean(h * h, -1, keepdims=True)",
                     "h = h / tf.sqrt(square + 1e-3)"),
        sizes=("900.0", "1500.0", "1200.0"), well="1.0",
    ),
    "cancelled variance": Illness(
        (_STAGE, "sqrt|div|sub", "negative|invalid|zero|cancel"), optimiser=_ADAM,
        stage=_stage("h = h * 0.02 + {a}", "mean = tf.reduce_mean(h, 0)",
                     "square = tf.reduce_mean(h * h, 0)",
                     "h = (h - mean) / tf.sqrt(square - mean * mean)"),
        sizes=("30.0", "45.0", "38.0"), well="0.0",
    ),
    "softmax without maximum": Illness(
        (_STAGE, "exp", "overflow|satur|largest"), optimiser=_ADAM,
        stage=_stage("e = tf.exp({a} * h * h + {a} * 0.5)",
                     "h = h + e / tf.reduce_sum(e, -1, keepdims=True)"),
        sizes=("30.0", "40.0", "35.0"), well="0.0",
    ),
    "long sum": Illness(
        (_STAGE, "add|sum", "absorb|unchanged|left"), optimiser=_ADAM,
        stage=_stage("total = tf.zeros_like(h) + {a}", "for i in range(8):",
                     "    total = total + 0.1 * tf.sigmoid(h)", "h = total - {a}"),
        sizes=("1024.0", "2048.0", "1500.0"), well="0.0",
    ),
    "clipping by a norm": Illness(
        ("clip|norm|square|mul|sum|sqrt", "overflow|satur|largest"), policy="fp16",
        optimiser="tf.keras.optimizers.SGD(0.1)", weight=" * {a}", update=_CLIPPED,
        sizes=("2.0 ** 14", "2.0 ** 13", "2.0 ** 15"), well="2.0 ** 2",
    ),
    "average of weights": Illness(
        ("average|add|mul|lerp|assign", "absorb|unchanged|left|is 1"), policy="fp16",
        optimiser="tf.keras.optimizers.SGD(0.1)",
        before="averages = [tf.Variable(w, trainable=False) for w in net.trainable_variables]",
        after=_EMA, sizes=("0.9999", "0.99995", "0.99993"), well="0.9",
    ),
    "average by TensorFlow": Illness(
        ("average|sums", "is 1", "unchanged"), policy="fp16",
        optimiser="tf.keras.optimizers.SGD(0.1)",
        before="ema = tf.train.ExponentialMovingAverage({a}); ema.apply(net.trainable_variables)",
        after="ema.apply(net.trainable_variables)", sizes=("0.9998", "0.9999", "0.99985"),
        well="0.9",
    ),
    "counter of a checkpoint": Illness(
        ("sums", "unchanged"), policy="fp16", optimiser="tf.keras.optimizers.SGD(0.1)",
        before="samples = tf.Variable({a}, trainable=False)",
        after="samples.assign_add(float(x.shape[0]) / 4)",
        sizes=("40000.0", "60000.0", "50000.0"), well="0.0",
    ),
    "metric": Illness(
        ("add", "absorb|unchanged|left"), optimiser=_ADAM,
        before="total = tf.Variable(tf.fill([16], tf.constant({a}, tf.half)), trainable=False)",
        after="total.assign(total + tf.ones([16], tf.half))",
        sizes=("2048.0", "4096.0", "3000.0"), well="0.0",
    ),
    "positions": Illness(
        ("integer|position|range|whole", "rounded|not hold|2048"), optimiser=_ADAM,
        stage=_stage("position = tf.cast(tf.range({a}, {a} + h.shape[-1]), tf.float32)",
                     "h = h + 0.1 * tf.sin(position)"),
        sizes=("3000", "9000", "5001"), well="0",
    ),
    "large vocabulary": Illness(
        (_STAGE, "sum|add", "overflow|satur|largest"), optimiser=_ADAM,
        stage=_stage("e = tf.repeat(tf.exp(h + 5.0), {a}, -1)",
                     "h = h + 10 * h / tf.reduce_sum(e, -1, keepdims=True)"),
        sizes=("200", "400", "300"), well="1",
    ),
    "diverges in binary32": Illness(
        ("diverge|grow", "binary32"), steps=10, sizes=("400.0", "1000.0", "700.0"),
        optimiser="tf.keras.optimizers.SGD({a}, momentum=0.9)", well="0.05",
    ),
    "cancelled variance beside an eps": Illness(
        ("sub of " + _STAGE, "loses the digits"), optimiser=_WIDE_EPS,
        stage=_stage("h = 4 * tf.tanh(h) + {a}", "mean = tf.reduce_mean(h, 0)",
                     "square = tf.reduce_mean(h * h, 0)",
                     "variance = tf.nn.relu(square - mean * mean)",
                     "variance = variance + 3e-3 * tf.ones_like(mean)",
                     "h = (h - mean) / tf.sqrt(variance)"),
        sizes=("120.0", "140.0", "130.0"), well="0.0",
    ),
    "bound of a logarithm": Illness(
        (_STAGE, "bound 0.9999999 of the minimum", "is 1", "log"), optimiser=_WIDE_EPS,
        stage=_stage("p = tf.clip_by_value(tf.sigmoid({a} + h), 1e-7, 1 - 1e-7)",
                     "h = h + 0.01 * tf.math.log(1 - p)"),
        sizes=("12.0", "14.0", "13.0"), well="0.0",
    ),
}

_MASK = _stage("mask = np.zeros(h.shape[-1], np.float32)", "mask[::2] = {a}",
               "h = h + tf.nn.softmax(h + mask)")
_MASKS = _stage("mask = np.zeros(h.shape[-1], np.float32)", "mask[::2] = {a}",
                "h = h + tf.nn.softmax(h + mask + mask)")

#: Programs with nothing wrong: `names` must hold of the sentence, and no advice is given.
HEALTHY = {
    "plain": Illness(("^No ",), optimiser=_ADAM),
    "scaled": Illness(("^No ",), optimiser=_WIDE_EPS, weight=" * {a}", update=_UNSCALED,
                      sizes=("2.0 ** 7", "2.0 ** 8", "2.0 ** 6")),
    "masked": Illness(("^No ",), optimiser=_ADAM, stage=_MASK, sizes=("-1e9", "-1e4", "-1e30")),
    "masked twice": Illness(("^No ",), optimiser=_ADAM, stage=_MASKS,
                            sizes=("-1e9", "-6e4", "-1e30")),
    "half optimiser": Illness(
        ("^No ",), policy="fp16", sizes=("1e-3", "7e-4", "5e-4"),
        optimiser="tf.keras.optimizers.Adam(0.01, epsilon={a})",
    ),
    "dropout": Illness(("^No ",), optimiser=_ADAM, stage="h = tf.nn.dropout(h, {a})",
                       sizes=("0.1", "0.5", "0.3")),
    "binary32": Illness(("^No ",), policy="fp32", optimiser=_ADAM),
}


def program_text(model: str, illness: Illness, size: str, seed: int = 0) -> str:
    """The file of a user."""
    text = _HEAD.format(
        seed=seed, steps=illness.steps, model=MODELS[model], stage=illness.stage or "pass",
        optimiser=illness.optimiser, before=illness.before or "pass", weight=illness.weight,
        update=illness.update or "pass", after=illness.after or "pass",
    )
    return text.replace("{a}", size)
