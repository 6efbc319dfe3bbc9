"""What tests of kernels share: a function on the machine and by TensorFlow, with its gradients.

A case is a function of tensors and its arguments; arrays of float32 get gradients. Both sides
execute the same graph.
"""

from __future__ import annotations

import numpy as np

from ipu.frontends.tensorflow.engine.trace import tracing
from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

__all__ = ["agree", "half", "numbers", "on_machine", "types_of"]


def numbers(*shape, seed=0, low=None):
    """Random numbers, of magnitude `low` at least, as float32."""
    values = np.random.default_rng(seed).normal(size=shape)
    if low is not None:
        values = np.sign(values) * (np.abs(values) + low)
    return values.astype(np.float32)


def _with_gradients(function):
    """The results of a function, and the gradients of a weighted sum of them."""

    def compute(*arguments):
        sources = [x for x in arguments if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            results = tf.nest.flatten(function(*arguments))
            losses = [
                tf.reduce_sum(r * tf.reshape(tf.linspace(0.5, 1.5, max(r.shape.num_elements(), 1)),
                                             r.shape))
                for r in results if r.dtype == tf.float32
            ]
            loss = tf.add_n(losses) if losses else None
        if loss is None:
            return results
        slopes = tape.gradient(loss, sources)
        return results + [g for g in slopes if isinstance(g, tf.Tensor)]

    return compute


def types_of(function):
    """Types of the nodes of a traced function, those of functions that it calls too."""
    graph = function.get_concrete_function().graph if callable(function) else function
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return {node.op for node in nodes}


def agree(node, function, *arguments, gradients=True, tolerance=2e-6, reference=None, **choices):
    """The machine gives what TensorFlow gives, and the graph has a node of that type.

    reference    what TensorFlow computes instead; the same by other operations.
    """
    compute = _with_gradients(function) if gradients else function
    tensors = [tf.constant(x) for x in arguments]
    traced = tf.function(lambda *xs: tf.nest.flatten(compute(*xs)))
    with machine(**{"ties": "first", "f32_denormals": "ieee"} | choices):
        with tracing():
            concrete = traced.get_concrete_function(*tensors)
        assert node in types_of(concrete.graph), sorted(types_of(concrete.graph))
        results = launch(traced, *tensors)
    if reference is not None:
        by_others = _with_gradients(reference) if gradients else reference
        traced = tf.function(lambda *xs: tf.nest.flatten(by_others(*xs)))
    expected = traced(*tensors)
    assert len(results) == len(expected)
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.dtype == theirs.dtype
        if ours.dtype.is_floating:
            scale = max(1.0, float(np.max(np.abs(theirs.numpy()), initial=0)))
            np.testing.assert_allclose(
                ours.numpy().astype(float), theirs.numpy().astype(float), rtol=tolerance,
                atol=tolerance * scale,
            )
        else:
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def half(*shape, seed=0, low=None):
    """Random numbers of binary16."""
    return numbers(*shape, seed=seed, low=low).astype(np.float16)


def on_machine(function, *arguments, **choices):
    """Results of a function of halves, and the machine that computed them."""
    with machine(**choices) as used:
        results = launch(tf.function(function), *(tf.constant(x) for x in arguments))
        return [r.numpy() for r in tf.nest.flatten(results)], used
