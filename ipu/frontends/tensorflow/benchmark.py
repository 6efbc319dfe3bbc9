"""`dataset_benchmark` and `infeed_benchmark`: how fast a data set delivers, as JSON.

As the vendor's, wrong arguments are returned as errors, not raised.

Source    graphcore/tensorflow, tensorflow/python/ipu/dataset_benchmark.py; `ipu.feed.throughput`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.eager import context

from ipu.feed.throughput import benchmark
from ipu.frontends.tensorflow.feeds import IPUInfeedQueue
from ipu.frontends.tensorflow.iterators import host_iterator

__all__ = ["dataset_benchmark", "infeed_benchmark"]


def dataset_benchmark(
    dataset: Any, number_of_epochs: int, elements_per_epochs: int, print_stats: bool = True,
    apply_debug_options: bool = True, do_memcpy: bool = True,
) -> Any:
    """A tensor of one text: epochs with elements, bytes, seconds and their rates.

    print_stats                        whether it is printed too.
    apply_debug_options, do_memcpy     are read; elements are always copied.
    """
    error = _wrong(number_of_epochs, elements_per_epochs)
    if error is not None:
        return error
    structure = tf.data.experimental.get_structure(dataset)
    for spec in tf.nest.flatten(structure):
        if 0 in (spec.shape or ()):
            raise tf.errors.InvalidArgumentError(
                None, None, "Detected a tensor in the dataset with a dimension of size 0"
            )

    def measure(variant: Any) -> Any:
        data = dataset_ops._VariantDataset(variant, structure)
        return _measured(data, number_of_epochs, elements_per_epochs, print_stats)

    if tf.executing_eagerly():
        return _measured(dataset, number_of_epochs, elements_per_epochs, print_stats)
    result = tf.py_function(measure, [dataset._variant_tensor], tf.string)
    result.set_shape([1])
    return result


def infeed_benchmark(
    infeed_queue: IPUInfeedQueue, number_of_epochs: int, elements_per_epochs: int,
    print_stats: bool = True, do_memcpy: bool = True,
) -> Any:
    """As `dataset_benchmark`, of an infeed's data set."""
    if not isinstance(infeed_queue, IPUInfeedQueue):
        raise TypeError(f"infeed_queue={infeed_queue!r} is no IPUInfeedQueue")
    return dataset_benchmark(
        infeed_queue._dataset, number_of_epochs, elements_per_epochs, print_stats
    )


def _wrong(epochs: Any, elements: Any) -> ValueError | None:
    for name, n in (("number_of_epochs", epochs), ("elements_per_epochs", elements)):
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            return ValueError(f"{name}={n!r} must be a positive integer")
    return None


def _measured(dataset: Any, epochs: int, elements: int, is_printed: bool) -> Any:
    text = benchmark(lambda: _elements(dataset), epochs, elements).to_json()
    if is_printed:
        print(text)
    return tf.constant([text])


def _elements(dataset: Any) -> Iterator[Any]:
    """The elements as lists of ndarrays."""
    with context.eager_mode():
        for element in host_iterator(dataset):
            yield [np.asarray(leaf.numpy()) for leaf in tf.nest.flatten(element)]
