"""Checkpoints of several workers: what each keeps to itself is saved as its mean.

Variables that are synchronised when they are read, such as moving statistics, are each worker's own
while they train. A checkpoint reads them: the ones that differ are saved as the mean over workers,
1 and 2 as 1.5, and go on as they were. So all workers save together, when the first one would.

Source    docs/semantics.md §3 (mean over workers); TensorFlow, variables synchronised on read with
          the aggregation MEAN.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.workers.group import Workers

__all__ = ["SavingHook"]

v1 = tf.compat.v1


class SavingHook(tf.compat.v1.train.CheckpointSaverHook):  # type: ignore[misc]
    """Saves the same on all workers, at the first one's time.

    folder            of this worker's checkpoints.
    seconds, steps    between two of them; one is None; named: as TensorFlow's hook has them.
    """

    def __init__(
        self, workers: Workers, folder: str, seconds: float | None, steps: int | None,
        **named: Any,
    ) -> None:
        super().__init__(folder, seconds, steps, **named)
        self._workers = workers
        timer: Any = self._timer
        self._timer: Any = _TimerOfRoot(timer, workers)

    def begin(self) -> None:
        """The graph is complete."""
        super().begin()
        trained = {v.name for v in v1.trainable_variables()}
        others = [v for v in v1.global_variables() if v.name not in trained and v.dtype.is_floating]
        self._others = others
        self._fed = [v1.placeholder(v.dtype, v.shape) for v in others]
        self._assign = [v.assign(x).op for v, x in zip(others, self._fed, strict=True)]

    def _save(self, session: Any, step: Any) -> Any:
        """Save with means in the place of this worker's own values."""
        values = session.run(self._others)
        means = {i: self._mean(value, self._others[i].name) for i, value in enumerate(values)
                 if self._differs(value)}
        self._write(session, means)
        try:
            result = super()._save(session, step)
        finally:
            self._write(session, {i: values[i] for i in means})
        self._workers.members.saved = int(step)
        return result

    def _differs(self, value: Any) -> bool:
        """Whether a variable is not equal on all workers, as slots are."""
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return len(set(self._workers.texts(digest, "digests"))) > 1

    def _mean(self, value: Any, name: str) -> Any:
        return self._workers.reduced(value, mean=True, name=name)

    def _write(self, session: Any, values: dict[int, Any]) -> None:
        for i, value in values.items():
            session.run(self._assign[i], {self._fed[i]: value})


class _TimerOfRoot:
    """A timer of checkpoints that goes off on all workers when the first one's does."""

    def __init__(self, timer: Any, workers: Workers) -> None:
        self._timer, self._workers = timer, workers

    def should_trigger_for_step(self, step: Any) -> bool:
        is_due = np.int64(self._timer.should_trigger_for_step(step))
        return bool(self._workers.of_root(is_due, "the time of a checkpoint"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timer, name)
