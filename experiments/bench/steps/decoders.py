"""Training steps of a decoder through every front end that is installed.

Two blocks of width 64, as users write them: what a run carries beside a step (shadows, digests)
costs by the operation and by the element, so the share is that of small networks.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu.experiments.bench.programs import Decoder, TimedProgram, steps_in_torch
from ipu.experiments.bench.timing import Call
from ipu.learn.nn import dense, layer_norm
from ipu.learn.optim import Adam
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer
from ipu.ops import gelu, softmax, transpose
from ipu.run.native import NativeRun, machine
from ipu.run.run import Run

__all__ = [
    "EPSILON", "RATE", "DecoderStep", "decoder_steps", "embedded_text", "learned_step",
    "learned_trainer",
]

#: Decoder and batch, as a rule and with --quick.
_SIZES = (Decoder(64, 2, 1, 64), 8), (Decoder(8, 1, 1, 4), 1)
#: Of Adam, in binary16 too.
RATE, EPSILON = 1e-3, 1e-4

#: What is done to a run before its first step.
Prepare = Callable[[Run], object]
#: A step of a decoder with its batch, by policy and whether rounding is stochastic.
DecoderStep = Callable[[Decoder, int, str, bool, Prepare], Call]


def decoder_steps(quick: bool) -> Iterator[tuple[str, Callable[[str, bool, Prepare], Call]]]:
    """Front ends, and what makes a step there: make(policy, sr, prepare) is a call."""
    sizes, batch = _SIZES[quick]
    for name, make in _FRONT_ENDS.items():
        if name == "ipu.learn" or importlib.util.find_spec(name) is not None:
            yield name, lambda *way, make=make: make(sizes, batch, *way)


# ipu.learn --------------------------------------------------------------------------------------


def _in_learn(sizes: Decoder, batch: int, policy: str, sr: bool, prepare: Prepare) -> Call:
    run = machine(policy, sr=sr)
    prepare(run)
    return _step(sizes, run)


def learned_step(sizes: Decoder, policy: str, sr: bool, *, count: bool = False) -> Call:
    """A step in `ipu.learn`, alone."""
    return _step(sizes, machine(policy, sr=sr, count=count))


def embedded_text(sizes: Decoder) -> tuple[NDArray[Any], NDArray[Any]]:
    """Characters of one text, which are embedded already, and those that follow."""
    rng, rows = np.random.default_rng(1), 2 * sizes.context
    return rng.normal(size=(rows, sizes.width)), rng.integers(sizes.vocabulary, size=rows)


def _step(sizes: Decoder, run: NativeRun) -> Call:
    trainer, (x, labels) = learned_trainer(sizes, run), embedded_text(sizes)
    return lambda: trainer.step(x, labels)


def learned_trainer(sizes: Decoder, run: NativeRun) -> Trainer:
    """The decoder in `ipu.learn`: each row of its text attends to all."""

    def decoder(h: Tensor) -> Tensor:
        for i in range(sizes.layers):
            h = _block(h, f"block{i}", sizes.width)
        return dense(layer_norm(h, "norm"), sizes.vocabulary, "head")

    return Trainer(decoder, Adam(RATE, epsilon=EPSILON), run=run)


def _block(x: Tensor, name: str, width: int) -> Tensor:
    h = layer_norm(x, f"{name}/norm1")
    q, k, v = (dense(h, width, f"{name}/{part}") for part in "qkv")
    attended = softmax(q @ transpose(k) * width**-0.5) @ v
    x = x + dense(attended, width, f"{name}/mix")
    h = gelu(dense(layer_norm(x, f"{name}/norm2"), 4 * width, f"{name}/up"))
    return x + dense(h, width, f"{name}/down")


# Frameworks -------------------------------------------------------------------------------------


def _in_torch(sizes: Decoder, batch: int, policy: str, sr: bool, prepare: Prepare) -> Call:
    front: Any = importlib.import_module("fpsim.torch")
    run = front.machine(policy, sr=sr)
    prepare(run)
    step = steps_in_torch(TimedProgram(sizes, batch, 1))

    def call() -> None:
        with run:
            step()

    return call


def _in_tensorflow(sizes: Decoder, batch: int, policy: str, sr: bool, prepare: Prepare) -> Call:
    front: Any = importlib.import_module("fpsim.tf")
    tf: Any = importlib.import_module("tensorflow")
    ipu: Any = importlib.import_module("tensorflow.python.ipu")
    run = front.machine(policy, sr=sr, unconfigured=True)
    prepare(run)
    with run:
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        step = tf.function(_tensorflow_step(tf, sizes))
    text = np.random.default_rng(1).integers(sizes.vocabulary, size=(batch, sizes.context + 1))
    batches = [tf.constant(x, tf.int32) for x in (text[:, :-1], text[:, 1:])]

    def call() -> None:
        with run:
            strategy.run(step, batches)

    return call


def _tensorflow_step(tf: Any, sizes: Decoder) -> Callable[[Any, Any], Any]:
    rng, d = np.random.default_rng(2), sizes.width
    shapes = [(d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)]

    def variable(shape: tuple[int, ...], name: str) -> Any:
        values = rng.normal(size=shape) / np.sqrt(shape[0])
        return tf.Variable(values.astype(np.float32), name=name)

    characters = variable((sizes.vocabulary, d), "characters")
    head = variable((d, sizes.vocabulary), "head")
    blocks = [
        [variable(shape, f"block{i}/w{k}") for k, shape in enumerate(shapes)]
        for i in range(sizes.layers)
    ]
    weights = [characters, head, *(w for block in blocks for w in block)]
    slots = [[tf.Variable(tf.zeros_like(w)) for w in weights] for _ in range(2)]

    def normalised(x: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + EPSILON)

    def step(text: Any, following: Any) -> Any:
        with tf.GradientTape() as tape:
            x = tf.gather(characters, text)
            for qkv, mix, up, down in blocks:
                q, k, v = tf.split(normalised(x) @ qkv, 3, -1)
                scores = tf.matmul(q, k, transpose_b=True) * d**-0.5
                x = x + tf.matmul(tf.nn.softmax(scores), v) @ mix
                x = x + tf.nn.gelu(normalised(x) @ up) @ down
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=following, logits=normalised(x) @ head))
        gradients = map(tf.convert_to_tensor, tape.gradient(loss, weights))
        for w, g, m, v in zip(weights, gradients, *slots, strict=True):
            m.assign(0.9 * m + 0.1 * g)
            v.assign(0.99 * v + 0.01 * g * g)
            w.assign_sub(RATE * m / (tf.sqrt(v) + 0.01))
        return loss

    return step


_FRONT_ENDS: dict[str, DecoderStep] = {
    "ipu.learn": _in_learn, "torch": _in_torch, "tensorflow": _in_tensorflow,
}
