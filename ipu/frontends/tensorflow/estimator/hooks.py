"""Hooks of an estimator's sessions: the infeed, the global step, what is logged."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["InfeedHook", "StepHook"]


class InfeedHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Makes an infeed ready when its session is there."""

    def __init__(self, infeed: Any) -> None:
        self._initialise = infeed.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        """The session exists."""
        session.run(self._initialise)


class StepHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Adds the iterations of a launch to the global step, and stops at the last one.

    Raises    ValueError unless one of steps and final is passed.
    """

    def __init__(self, step: Any, iterations: int, steps: int | None, final: int | None) -> None:
        if steps is None and final is None:
            raise ValueError("One of `num_steps` or `final_step` must be specified.")
        if steps is not None and final is not None:
            raise ValueError("Only one of `num_steps` or `final_step` can be specified.")
        self._step, self._steps, self._final = step, steps, final
        self._advance = step.assign_add(iterations)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """The session exists."""
        if self._final is None:
            self._final = session.run(self._step) + self._steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """A launch has ended."""
        if run_context.session.run(self._advance) >= self._final:
            run_context.request_stop()
