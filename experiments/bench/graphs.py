"""Training steps of TensorFlow programs through the front end, beside TensorFlow's own in binary32.

Keras networks in one tf.function, batches of 64, by SGD with momentum, the transformer by Adam: in
binary16 by stochastic rounding, the same counted, and in binary32. TensorFlow computes in threads
of its own, so times are the processor time of all threads. Where it is not installed there is
nothing to measure.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from ipu.experiments.bench.timing import Call, Size, TimedCase, processor_seconds
from ipu.ops.heap import keep_freed_memory

__all__ = ["NETWORKS", "SIZES", "cases"]

#: n is that of an operation: a step.
SIZES = Size(n=1, repeats=5), Size(n=1, repeats=1)
#: Policy, its format, whether rounding is stochastic, and whether operations are counted.
_WAYS = (
    ("fp16", "binary16", True, False), ("fp16", "binary16", True, True),
    ("fp32", "binary32", False, False),
)
_BATCH, _CLASSES = 64, 10

#: Changes variables by their gradients.
Update = Callable[[list[Any]], object]


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Each network in each way; a figure is the time of a step."""
    if importlib.util.find_spec("tensorflow") is None:
        return
    keep_freed_memory()
    for name in _QUICK if quick else NETWORKS:
        for policy, fmt, sr, count in _WAYS:
            yield TimedCase(
                f"step {name}", fmt, partial(_on_the_machine, name, policy, sr, count),
                _in_tensorflow(name), 1, size.repeats, "SR" if sr else "RNE", flags=True,
                data="counted" if count else "graph", clock=processor_seconds,
                peer=f"tensorflow {version('tensorflow')}",
            )


def _on_the_machine(name: str, policy: str, sr: bool, count: bool) -> Call:
    front, tf = _front()
    run = front.machine(policy, sr=sr, count=count, unconfigured=True)
    with run:
        ipu: Any = importlib.import_module("tensorflow.python.ipu")
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        with strategy.scope():
            step, batch = _step(tf, name)

    def call() -> Any:
        with run:
            return strategy.run(step, batch)

    return call


def _in_tensorflow(name: str) -> Call:
    step, batch = _step(_front()[1], name)
    return lambda: step(*batch)


def _front() -> tuple[Any, Any]:
    """The front end, which chooses Keras 2, and TensorFlow."""
    return importlib.import_module("fpsim.tf"), importlib.import_module("tensorflow")


def _step(tf: Any, name: str) -> tuple[Callable[..., Any], list[Any]]:
    """A step of the network, and its batch."""
    network, shape, updating = NETWORKS[name]
    tf.keras.utils.set_random_seed(1)
    model = network(tf.keras)
    rng = np.random.default_rng(1)
    images = tf.constant(rng.normal(size=(_BATCH, *shape)), tf.float32)
    labels = tf.constant(rng.integers(_CLASSES, size=_BATCH), tf.int32)
    model(images)  # which makes its variables
    weights = model.trainable_variables
    update = updating(tf, weights)

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(x))
            )
        update(tape.gradient(loss, weights))
        return loss

    return step, [images, labels]


# Updates ----------------------------------------------------------------------------------------


def _by_momentum(tf: Any, weights: list[Any]) -> Update:
    slots = [tf.Variable(tf.zeros_like(w)) for w in weights]

    def update(gradients: list[Any]) -> None:
        for w, g, m in zip(weights, gradients, slots, strict=True):
            m.assign(0.9 * m + g)
            w.assign_sub(0.05 * m)

    return update


def _by_adam(tf: Any, weights: list[Any]) -> Update:
    """One node for each variable."""
    optimiser = tf.keras.optimizers.legacy.Adam(1e-3, epsilon=1e-4)
    return lambda gradients: optimiser.apply_gradients(zip(gradients, weights, strict=True))


# Networks ---------------------------------------------------------------------------------------


def _perceptron(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential([
        layers.Flatten(), layers.Dense(256, "relu"), layers.Dense(256, "relu"),
        layers.Dense(_CLASSES),
    ])


def _convolutions(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential([
        layers.Conv2D(16, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(32, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(128, "relu"), layers.Dense(_CLASSES),
    ])


def _recurrent(keras: Any) -> Any:
    return keras.Sequential([
        keras.layers.LSTM(64, unroll=True), keras.layers.Dense(_CLASSES),
    ])


def _transformer(keras: Any) -> Any:
    """Two blocks of width 64 with four heads, over the rows of an image."""
    layers = keras.layers
    rows = keras.Input((28, 28))
    x = layers.Dense(64)(rows)
    for _ in range(2):
        h = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, 16)(h, h)
        h = layers.Dense(256, "gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dense(64)(h)
    pooled = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(rows, layers.Dense(_CLASSES)(pooled))


#: Networks by name, with the shape of an example (images, images, rows of an image), and what
#: updates their variables.
NETWORKS: dict[
    str, tuple[Callable[[Any], Any], tuple[int, ...], Callable[[Any, list[Any]], Update]]
] = {
    "Keras MLP": (_perceptron, (28, 28, 1), _by_momentum),
    "Keras CNN": (_convolutions, (28, 28, 1), _by_momentum),
    "Keras LSTM": (_recurrent, (28, 28), _by_momentum),
    "Keras transformer": (_transformer, (28, 28), _by_adam),
}
#: Those that --quick runs.
_QUICK = ("Keras MLP",)
