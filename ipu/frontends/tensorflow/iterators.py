"""Implicit infeeds: `iter(dataset)` inside the scope of an IPUStrategyV1.

Such an iterator feeds programs: `next` of it is a node. Outside of a program it gives nothing, as
the vendor's, unless the strategy says `enable_dataset_iterators=False`.

Source    facts of the vendor's ipu_infeed_queue.py (IPUIterator, IPUOwnedIterator).
"""

from __future__ import annotations

from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops, iterator_ops

__all__ = ["IPUIterator", "feed_by_iterators", "host_iterator", "untuned"]

_plain = dataset_ops.DatasetV2.__iter__


class IPUIterator(iterator_ops.OwnedIterator):  # type: ignore[misc]
    """An iterator whose elements go to programs alone."""

    def __next__(self) -> Any:
        _check_program()
        return super().__next__()

    def get_next(self) -> Any:
        """The next element, inside of a program."""
        _check_program()
        return super().get_next()

    def get_next_as_optional(self) -> NoReturn:
        """Refused, as by the vendor's iterator."""
        raise NotImplementedError("get_next_as_optional is not supported by IPUIterator")

    def _serialize_to_tensors(self) -> NoReturn:
        """Refused, as by the vendor's iterator: a checkpoint holds no IPUIterator."""
        raise NotImplementedError(
            "an IPUIterator cannot be saved; leave it out of the checkpoint, and begin the data "
            "set where the training goes on"
        )


def _check_program() -> None:
    if tf.executing_eagerly():
        raise RuntimeError(
            "next() of an IPUIterator is called outside of a program; call it in a function "
            "that strategy.run gets, or use IPUStrategyV1(enable_dataset_iterators=False)"
        )


def feed_by_iterators() -> None:
    """From now on the strategy in force decides what `iter(dataset)` gives."""
    dataset_ops.DatasetV2.__iter__ = _iterate


def host_iterator(dataset: Any) -> Any:
    """An iterator whose elements go to the host, whatever strategy is in force."""
    return _plain(dataset)


def untuned(dataset: Any) -> Any:
    """A data set whose parallelism TensorFlow does not tune, unless its options say so.

    Elements are the same. The thread that tunes sleeps for as long as the data set has been read,
    and the end of the iterator waits for it.
    """
    if dataset.options().autotune.enabled is not None:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _iterate(dataset: Any) -> Any:
    feeds = getattr(tf.distribute.get_strategy(), "feeds_by_iterators", None)
    if feeds is None or not tf.executing_eagerly():
        return _plain(dataset)
    return IPUIterator(untuned(dataset)) if feeds else _plain(untuned(dataset))
