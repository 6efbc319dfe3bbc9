"""`ipu_session_run_hooks`: tensors of a program, logged while a session runs.

Source    graphcore/tensorflow, tensorflow/python/ipu/ipu_session_run_hooks.py: names, arguments,
          messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.training.basic_session_run_hooks import NeverTriggerTimer

from ipu.frontends.tensorflow.feeds import IPUOutfeedMode, IPUOutfeedQueue

__all__ = ["IPULoggingTensorHook"]

v1 = tf.compat.v1


class IPULoggingTensorHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Logs tensors of a program every so many runs of the session or seconds, or at its end.

    formatter             a function of a dictionary of names and values, which returns the text.
    logging_mode          the last values since the last time, or all of them.
    feed_name             of earlier releases; it has no other meaning.
    replication_factor    of earlier releases: the machine knows its replicas.

    Raises    ValueError unless it is said when.
    """

    LoggingMode = IPUOutfeedMode

    def __init__(
        self, every_n_iter: int | None = None, every_n_secs: float | None = None,
        at_end: bool = False, formatter: Callable[[dict[str, Any]], str] | None = None,
        logging_mode: IPUOutfeedMode = IPUOutfeedMode.LAST, feed_name: str = "logging_hook",
        replication_factor: int = 1,
    ) -> None:
        if every_n_iter is not None and every_n_secs is not None:
            raise ValueError("Cannot provide both every_n_iter and every_n_secs")
        is_timed = every_n_iter is not None or every_n_secs is not None
        if not is_timed and not at_end:
            raise ValueError("Either every_n_iter, every_n_secs or at_end should be provided")
        self._timer = (
            v1.train.SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_iter)
            if is_timed else NeverTriggerTimer()
        )
        self._at_end, self._formatter = at_end, formatter
        self._outfeed = IPUOutfeedQueue(logging_mode)
        self._dequeue: Any = None
        self._delete: Any = None
        self._runs = 0
        #: Whether a run of the session has ended since values were logged.
        self._has_more = False

    def log(self, tensors: Any) -> Any:
        """The operation, inside of a program, that sends tensors to the log.

        tensors    a dictionary of them by name, a list of them, or one.

        Raises     RuntimeError the second time; TypeError for what is no tensor.
        """
        if self._outfeed.enqueued:
            raise RuntimeError(
                "Cannot use this hook object's log function more than once. Either enqueue all "
                "tensors in a single log call using a list or dict, or create another hook."
            )
        return self._outfeed.enqueue(_by_name(tensors))

    def begin(self) -> None:
        """The graph is there; its session is not."""
        if not self._outfeed.enqueued:
            raise RuntimeError(
                "This logging hook's outfeed was not enqueued. Did you forget to call the log "
                "function?"
            )
        self._dequeue, self._delete = self._outfeed.dequeue(), self._outfeed.deleter
        self._runs = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """A run of the session has ended."""
        if self._timer.should_trigger_for_step(self._runs):
            self._show(run_context.session.run(self._dequeue))
        else:
            self._has_more = True
        self._runs += 1

    def end(self, session: Any) -> None:
        """The session is about to close."""
        if self._at_end and self._has_more:
            self._show(session.run(self._dequeue))
        session.run(self._delete)
        self._timer.reset()

    def _show(self, values: dict[str, Any]) -> None:
        self._has_more = False
        seconds, _ = self._timer.update_last_triggered_step(self._runs)
        with np.printoptions(suppress=True):
            if self._formatter is not None:
                v1.logging.info(self._formatter(values))
                return
            text = ", ".join(f"{name} = {value}" for name, value in values.items())
        v1.logging.info("%s", text if seconds is None else f"{text} ({seconds:.3f} sec)")


def _by_name(tensors: Any) -> dict[str, Any]:
    if isinstance(tensors, dict):
        return tensors
    every = tensors if isinstance(tensors, list | tuple) else [tensors]
    for tensor in every:
        if not tf.is_tensor(tensor):
            raise TypeError(f"Expected `tf.Tensor`, got {type(tensor)}")
    return {tensor.name: tensor for tensor in every}
