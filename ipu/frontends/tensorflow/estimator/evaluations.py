"""Evaluations while a model trains: after a checkpoint is saved, and after the last one.

A training stops where it saved a checkpoint, and goes on after the evaluation. The evaluation runs
on a machine of its own (`aside`), so it takes no random place of the training: a training's bits
are the same with every throttle_secs.

Source    tensorflow/estimator, training.py (run_local): the first checkpoint after the start is
          evaluated, later ones unless the last evaluation began less than throttle_secs ago, and
          at the end the last one if it was not. start_delay_secs concerns processes that only
          evaluate, which there are none of.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.engine.current import aside
from ipu.frontends.tensorflow.estimator.specs import EvalSpec
from ipu.frontends.tensorflow.workers.group import Workers

__all__ = ["EvaluatingListener"]

v1 = tf.compat.v1


class EvaluatingListener(tf.compat.v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Evaluates checkpoints of a training, and calls exporters.

    max_steps        where the training ends: exports from there on are final.
    workers          that train together: they evaluate at the same checkpoints.
    metrics, exports of the last evaluation; None before it.
    """

    def __init__(
        self, estimator: Any, spec: EvalSpec, max_steps: int, workers: Workers | None
    ) -> None:
        self._estimator, self._spec, self._max_steps = estimator, spec, max_steps
        self._workers = workers
        self.metrics: dict[str, Any] | None = None
        self.exports: list[Any] | None = None

    def begin(self) -> None:
        """The graph of the training is complete."""
        self._timer = v1.train.SecondOrStepTimer(every_secs=self._spec.throttle_secs)
        self._has_started = False

    def after_save(self, session: Any, global_step_value: Any) -> None:
        """A checkpoint lies there; the first one is that of the start."""
        if not self._has_started:
            self._has_started = True
        elif self._is_due(global_step_value):
            self._evaluate(global_step_value)
        else:
            v1.logging.info(
                "Skip the current checkpoint eval due to throttle secs (%s secs).",
                self._spec.throttle_secs,
            )

    def end(self, session: Any, global_step_value: Any) -> None:
        """The training has ended."""
        if global_step_value != self._timer.last_triggered_step():
            self._evaluate(global_step_value)

    def _is_due(self, step: Any) -> bool:
        """Whether enough time has passed, by the clock of the first worker."""
        is_due = np.asarray(self._timer.should_trigger_for_step(step), np.int64)
        if self._workers is not None:
            is_due = self._workers.of_root(is_due, "the time of an evaluation")
        return bool(is_due)

    def _evaluate(self, step: Any) -> None:
        self._timer.update_last_triggered_step(step)
        estimator, spec = self._estimator, self._spec
        path = estimator.latest_checkpoint()
        with aside():
            self.metrics = estimator.evaluate(
                spec.input_fn, steps=spec.steps, hooks=spec.hooks, checkpoint_path=path,
                name=spec.name,
            )
        assert self.metrics is not None
        self.exports = [
            exporter.export(
                estimator=estimator, checkpoint_path=path, eval_result=self.metrics,
                export_path=os.path.join(estimator.model_dir, "export", exporter.name),
                is_the_final_export=bool(self.metrics["global_step"] >= self._max_steps),
            )
            for exporter in spec.exporters
        ]
