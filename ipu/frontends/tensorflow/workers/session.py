"""The session of a training of several workers: root's values at the start, equal ones after that.

Trainable variables are root's. Other ones, moving statistics among them, stay each worker's own,
unless this worker stands at another step than root: then all are root's.

Source    docs/semantics.md; graphcore/tensorflow, ipu_multi_worker_strategy.py (variables that are
          synchronised when they are written, and those that are when they are read).
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.workers.group import Workers

__all__ = ["CHECK_EVERY", "SyncHook"]

v1 = tf.compat.v1

#: Steps from one comparison of the variables to the next.
CHECK_EVERY = 100


class SyncHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Gives the variables root's values, and compares them now and then, and at the end.

    step    the global step.
    """

    def __init__(self, workers: Workers, step: Any) -> None:
        self._workers, self._step = workers, step
        self._runs = 0

    def begin(self) -> None:
        """The graph is complete."""
        self._all = v1.global_variables()
        self._trained = v1.trainable_variables()
        self._fed = [v1.placeholder(v.dtype, v.shape) for v in self._all]
        self._assign = [v.assign(x).op for v, x in zip(self._all, self._fed, strict=True)]

    def after_create_session(self, session: Any, coord: Any) -> None:
        """The session exists, with new variables or those of a checkpoint."""
        self._workers.compare([f"variable {v.name}: {v.dtype.name} {v.shape}" for v in self._all])
        values = session.run(self._all)
        step = np.asarray(session.run(self._step))
        roots = self._workers.of_root(step, "global_step")
        self._workers.step, self._workers.members.saved = int(roots), int(roots) or None
        elsewhere = roots != step
        anywhere = self._workers.reduced(np.float32(elsewhere), mean=False) > 0
        trained = {v.name for v in self._trained}
        for variable, x, assign, value in zip(
            self._all, self._fed, self._assign, values, strict=True
        ):
            if anywhere or variable.name in trained:
                session.run(assign, {x: self._workers.of_root(value, variable.name)})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """A step has ended."""
        self._runs += 1
        self._workers.step = int(run_context.session.run(self._step))
        if self._runs % CHECK_EVERY == 0:
            self._check(run_context.session)

    def end(self, session: Any) -> None:
        """The training has ended."""
        self._check(session)

    def _check(self, session: Any) -> None:
        values, step = session.run([self._trained, self._step])
        total = hashlib.sha256()
        for value in values:
            total.update(np.ascontiguousarray(value).tobytes())
        self._workers.check_equal(total.hexdigest(), int(step))
