"""Reading a data set in a thread; the session that built it closes after that.

A data set keeps resources in the session that built it: what `cache` has read, the generator of
`shuffle`. It deletes them there when it is freed. `Session.close` frees the session's resources at
once, so a data set that is freed later is a crash. Hence a session that closes first ends its
readers: it waits for the element that is being read, then iterator and data set are freed.
"""

from __future__ import annotations

import atexit
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from ipu.feed.infeed import Infeed
from ipu.frontends.tensorflow.engine.current import current_run
from ipu.frontends.tensorflow.settings.notes import note

__all__ = ["Reader", "end_readers"]

#: Seconds of a wait that a user is told of.
_LONG = 10.0
#: Readers that hold a data set.
_open: set[Reader] = set()


class Reader:
    """The infeed of a data set, and the sessions that may close after it only.

    sessions    one of them built the data set; none in TensorFlow 2.
    """

    def __init__(self, dataset: Any, depth: int, sessions: Sequence[Any] = ()) -> None:
        self._dataset, self._sessions = dataset, tuple(sessions)
        self._reading = threading.Lock()
        self.infeed = Infeed(self._elements, prefetch=depth)
        _open.add(self)

    def _elements(self) -> Iterator[list[Any]]:
        """The elements as lists of ndarrays; none after the end.

        An error leaves no frame behind that holds the iterator: whoever keeps the error would keep
        the data set.
        """
        with self._reading:
            if self._dataset is None:
                return
            try:
                feeding = current_run().feeding
                for leaves in feeding.timed(_leaves(self._dataset)):
                    feeding.look(leaves)
                    yield leaves
            except Exception as error:
                _clear_frames(error)
                raise

    def is_of(self, session: Any) -> bool:
        """Whether a session may have built the data set."""
        return any(session is other for other in self._sessions)

    def end(self, seconds: float = -1) -> bool:
        """Free the data set; False where its thread still reads after that many seconds.

        seconds    below 0: no limit.
        """
        self._dataset = None
        self.infeed.close()
        if not self._reading.acquire(timeout=seconds):
            return False
        self._reading.release()
        self._sessions = ()
        _open.discard(self)
        return True


def end_readers(session: Any) -> None:
    """A session is about to close: what it built is read no more afterwards."""
    for reader in [reader for reader in list(_open) if reader.is_of(session)]:
        if not reader.end(_LONG):
            note(
                "a session that closes waits for its infeed, whose data set has not returned the "
                f"next element for {_LONG:.0f} s"
            )
            reader.end()


@atexit.register
def _end_all() -> None:
    """The interpreter ends: threads leave TensorFlow before its runtime goes."""
    for reader in list(_open):
        reader.end(_LONG)


def _leaves(dataset: Any) -> Iterator[list[Any]]:
    """The elements of a data set as lists of ndarrays, in whatever thread."""
    with context.eager_mode():
        iterator = iter(dataset)
    while True:
        with context.eager_mode():
            try:
                element = next(iterator)
            except StopIteration:
                return
            leaves = [leaf.numpy() for leaf in tf.nest.flatten(element)]
        yield leaves


def _clear_frames(error: BaseException | None) -> None:
    """Frames that an error and those before it have left hold no values any more."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
