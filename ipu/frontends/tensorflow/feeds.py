"""`IPUInfeedQueue` and `IPUOutfeedQueue`: the queues of `ipu.feed` at TensorFlow's ends.

Inside of a program a dequeue and an enqueue are nodes that call the queue, so TensorFlow can run
the same program.

Source    facts of the vendor's ipu_infeed_queue.py and ipu_outfeed_queue.py; docs/semantics.md.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.framework import ops

from ipu.feed.outfeed import ALL, LAST, Outfeed
from ipu.frontends.tensorflow.engine.launch import reporting
from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.engine.sessions import running_on
from ipu.frontends.tensorflow.facade import watch_sessions
from ipu.frontends.tensorflow.iterators import untuned
from ipu.frontends.tensorflow.reading import Reader

__all__ = ["IPUInfeedQueue", "IPUOutfeedMode", "IPUOutfeedQueue", "ScopedIPUOutfeedQueue"]


class IPUInfeedQueue:
    """A queue from a data set into the machine.

    Raises    ValueError for shapes that are not known and for depths outside of 1 to 255.
    """

    def __init__(
        self, dataset: Any, device_ordinal: int | None = None, prefetch_depth: int | None = None,
        optimise_latency: bool = False,
    ) -> None:
        _check_ordinal(device_ordinal)
        depth = _depth(prefetch_depth)
        self._structure = tf.data.experimental.get_structure(dataset)
        self._specs = tf.nest.flatten(self._structure)
        _check_specs(self._specs)
        self._dataset = dataset
        self._reader: Reader | None = None
        #: Elements that wait for the device.
        self.prefetch_depth = depth
        self._is_initialised = self._dequeued = False
        watch_sessions()  # sessions that run are known from here on
        if tf.executing_eagerly():
            self._open(dataset)

    def _open(self, dataset: Any, sessions: Sequence[Any] = ()) -> None:
        self.end()
        reader = self._reader = Reader(untuned(dataset), self.prefetch_depth, sessions)
        weakref.finalize(self, reader.end, 0).atexit = False  # a queue that nobody holds

    # Host side ------------------------------------------------------------------------------

    @property
    def initializer(self) -> Any:
        """The operation that makes the queue ready; in TensorFlow 2 it is ready."""
        if tf.executing_eagerly():
            return tf.no_op()
        if self._is_initialised:
            raise ValueError("The IPUInfeedQueue `initializer` function can only be called once.")
        self._is_initialised = True
        adopt = partial(self._adopt, ops.get_default_graph())
        return tf.py_function(adopt, [self._dataset._variant_tensor], [])

    def _adopt(self, graph: Any, variant: Any) -> None:
        """Read the data set that a session of a graph has built."""
        self._open(dataset_ops._VariantDataset(variant, self._structure), running_on(graph))

    @property
    def deleter(self) -> Any:
        """The operation that ends the queue."""
        if tf.executing_eagerly():
            self._close()
            return tf.no_op()
        return tf.numpy_function(self._reported_close, [], [])

    def _reported_close(self) -> None:
        with reporting():
            self._close()

    def _close(self) -> None:
        if self._reader is None:
            raise RuntimeError(f"Infeed with id='{id(self)}' does not exist; initialise it first")
        self.end()

    def end(self) -> None:
        """End the queue at once, if it is ready."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.end()

    @property
    def dequeued(self) -> bool:
        """Whether a program takes elements."""
        return self._dequeued

    @property
    def number_of_tuple_elements(self) -> int:
        """Tensors of an element."""
        return len(self._specs)

    def get_next(self) -> Any:
        """Refused: the vendor's queue has no longer this method."""
        raise ValueError(
            "`get_next()` is obsolete and the IPUInfeedQueue should now be passed to the loop, "
            "as in loops.repeat(n, body, inputs, infeed_queue)"
        )

    # Device side ----------------------------------------------------------------------------

    def _dequeue(self) -> Any:
        """A node that takes the next element."""
        self._dequeued = True
        with marked(feed=True):
            tensors = tf.numpy_function(self._take, [], [spec.dtype for spec in self._specs])
        tensors = [tensors] if tf.is_tensor(tensors) else list(tensors)
        for tensor, spec in zip(tensors, self._specs, strict=True):
            tensor.set_shape(spec.shape)
        return tf.nest.pack_sequence_as(self._structure, tensors)

    def _take(self) -> Any:
        with reporting():
            reader = self._reader
            if reader is None:
                raise RuntimeError("the infeed was not initialised; run infeed_queue.initializer")
            leaves = reader.infeed.dequeue()
        return leaves if len(leaves) > 1 else leaves[0]


def _depth(depth: Any) -> int:
    """Elements that are read ahead; as the vendor's, 0 means 3."""
    if depth is None:
        return 3
    if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= 255:
        raise ValueError(f"prefetch_depth={depth!r} is not a depth; use 1 to 255")
    return depth or 3


def _check_specs(specs: list[Any]) -> None:
    for number, spec in enumerate(specs):
        if not spec.shape.is_fully_defined():
            raise ValueError(
                f"Infeed tensor {number} has the shape {spec.shape}, which is not fully defined; "
                "use dataset.batch(N, drop_remainder=True)"
            )
        if spec.dtype == tf.int64:
            raise ValueError(
                f"Unsupported datatype int64 on index {number} of feed operation; cast it to "
                "int32 in the data set"
            )
        if spec.dtype in (tf.string, tf.variant, tf.resource):
            raise ValueError(
                f"Unsupported datatype {spec.dtype.name} on index {number} of feed operation; feed "
                "numbers"
            )
        if 0 in spec.shape:
            raise ValueError(
                "Detected a tensor in the dataset with a dimension of size 0: index "
                f"{number} has the shape {spec.shape}"
            )


def _check_ordinal(ordinal: Any) -> None:
    if ordinal is None:
        return
    if isinstance(ordinal, bool) or not isinstance(ordinal, int):
        raise ValueError("Device ordinal must be an integer")
    if ordinal < 0:
        raise ValueError(f"Device ordinal must be >= 0, got {ordinal}")


# Out of the machine -------------------------------------------------------------------------------


class IPUOutfeedMode(Enum):
    """Which elements a dequeue gives: all, or the last one."""

    ALL = "all"
    LAST = "get_last"


class IPUOutfeedQueue:
    """A queue out of the machine.

    outfeed_mode    ALL: `dequeue` gives what was enqueued since the last time, along a new first
                    axis; LAST: the last element.
    buffer_depth    elements on their way to the host; a thread of the host drains them.
    """

    def __init__(
        self, outfeed_mode: IPUOutfeedMode | None = None, device_ordinal: int | None = None,
        buffer_depth: int = 3, optimise_latency: bool = False,
    ) -> None:
        _check_ordinal(device_ordinal)
        mode = IPUOutfeedMode.ALL if outfeed_mode is None else outfeed_mode
        if not isinstance(mode, IPUOutfeedMode):
            raise ValueError(
                f"Expected IPUOutfeedMode value for outfeed_mode, got {outfeed_mode!r}"
            )
        if isinstance(buffer_depth, bool) or not isinstance(buffer_depth, int) or buffer_depth < 1:
            raise ValueError(f"buffer_depth={buffer_depth!r} is not a depth; use 1 or more")
        self._mode = mode
        self._queue = Outfeed(ALL if mode is IPUOutfeedMode.ALL else LAST, buffer_depth)
        self._structure: Any = None
        self._types: list[Any] = []
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def enqueued(self) -> bool:
        """Whether a program enqueues."""
        return self._structure is not None

    # Device side ----------------------------------------------------------------------------

    def enqueue(self, tensors: Any) -> Any:
        """A node that sends tensors out; in a TensorFlow 1 loop the body returns it.

        Raises    ValueError the second time in a graph.
        """
        graph = ops.get_default_graph()
        if not tf.executing_eagerly():
            if graph in self._graphs:
                raise ValueError("An outfeed can only be enqueued once.")
            self._graphs.add(graph)
        flat = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(tensors)]
        types = [tensor.dtype for tensor in flat]
        structure = tf.nest.map_structure(lambda _: 0, tensors)
        if self._structure is not None and (structure, types) != (self._structure, self._types):
            raise ValueError(
                f"the outfeed holds {_shown(self._structure, self._types)}, not "
                f"{_shown(structure, types)}; use another queue for other values"
            )
        self._structure, self._types = structure, types
        if tf.executing_eagerly():
            self._put(*(tensor.numpy() for tensor in flat))
            return tf.no_op()
        with marked(kernel="Enqueue"):
            return tf.numpy_function(self._put, flat, [])

    def _put(self, *leaves: Any) -> None:
        with reporting():
            self._queue.enqueue(list(leaves))

    # Host side ------------------------------------------------------------------------------

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """What was enqueued so far: tensors in TensorFlow 2, nodes that give them in TensorFlow 1.

        Raises    ValueError before the first enqueue in the thread of the program; InvalidArgument
                  in mode LAST where nothing was enqueued.
        """
        if tf.executing_eagerly():
            values = self._take()
            if values is None:
                return []
            return tf.nest.pack_sequence_as(self._structure, [tf.constant(v) for v in values])
        if self._structure is None:
            raise ValueError(
                "Trying to dequeue an outfeed which has not been enqueued; build the program first"
            )
        results = tf.numpy_function(self._take_flat, [], self._types)
        results = [results] if tf.is_tensor(results) else list(results)
        return tf.nest.pack_sequence_as(self._structure, results)

    def _take(self) -> Any:
        """The leaves of everything enqueued; None where nothing ever was, in another thread."""
        try:
            leaves = self._queue.dequeue()
        except RuntimeError as error:
            if self._mode is IPUOutfeedMode.LAST and error.__cause__ is None:
                raise RuntimeError(
                    "Trying to get the last value from an outfeed queue that was not enqueued "
                    "since the last dequeue; run the program first"
                ) from None
            raise
        if len(leaves):
            return leaves
        if threading.current_thread() is threading.main_thread():
            raise ValueError(
                "Trying to dequeue an outfeed which has not been enqueued; run the program first"
            )
        return None

    def _take_flat(self) -> Any:
        """As a node of TensorFlow 1 returns it: empty arrays where nothing ever was enqueued."""
        with reporting():
            leaves = self._take()
        if leaves is None:
            leaves = [np.empty(0, kind.as_numpy_dtype) for kind in self._types]
        return leaves if len(leaves) > 1 else leaves[0]

    @property
    def deleter(self) -> Any:
        """The operation that ends the queue."""
        if tf.executing_eagerly():
            self._queue.close()
            return tf.no_op()
        return tf.numpy_function(self._queue.close, [], [])

    def __iter__(self) -> Iterator[Any]:
        """The elements one by one, until none is left; in TensorFlow 2 and mode ALL."""
        if not tf.executing_eagerly():
            raise RuntimeError("IPUOutfeedQueue can only be iterated over in eager mode.")
        if self._mode is not IPUOutfeedMode.ALL:
            raise RuntimeError(
                "IPUOutfeedQueue can only be iterated over in IPUOutfeedMode.ALL mode."
            )
        for leaves in self._queue:
            values = [tf.constant(np.asarray(leaf)) for leaf in leaves]
            yield tf.nest.pack_sequence_as(self._structure, values)


def _shown(structure: Any, types: list[Any]) -> Any:
    """A structure of names of types."""
    return tf.nest.pack_sequence_as(structure, [kind.name for kind in types])


class ScopedIPUOutfeedQueue(IPUOutfeedQueue):
    """A queue out of the machine that ends when nobody holds it."""
