"""Sessions of an estimator: checkpoints, summaries and hooks are TensorFlow's own.

Source    tensorflow/estimator, estimator.py: which summaries and checkpoints are written when.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.estimator.run_config import RunConfig
from ipu.frontends.tensorflow.workers.group import Workers
from ipu.frontends.tensorflow.workers.saving import SavingHook

__all__ = ["check_saving", "stored_session", "training_session", "write_summary"]

v1 = tf.compat.v1


def check_saving(config: RunConfig, listeners: Sequence[Any] | None) -> None:
    """Refuse listeners of checkpoints where none are saved."""
    if listeners and not (config.save_checkpoints_steps or config.save_checkpoints_secs):
        raise ValueError(
            "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
            "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
        )


def training_session(
    config: RunConfig, folder: str, hooks: Sequence[Any], listeners: Sequence[Any] | None,
    workers: Workers | None = None,
) -> Any:
    """A session that goes on from the newest checkpoint of a folder, and writes checkpoints there.

    listeners    told of the checkpoints.
    workers      that train together: their checkpoints have means of what is private.
    """
    scaffold = v1.train.Scaffold(
        saver=v1.train.Saver(
            sharded=True, max_to_keep=config.keep_checkpoint_max, defer_build=True,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            save_relative_paths=True,
        )
    )
    steps = config.save_checkpoints_steps
    seconds = None if steps else config.save_checkpoints_secs
    saving: list[Any] = []
    if steps or seconds:
        kind: Any = v1.train.CheckpointSaverHook
        if workers is not None and workers.size > 1:
            kind = partial(SavingHook, workers)
        saving = [kind(folder, seconds, steps, scaffold=scaffold, listeners=listeners)]
    return v1.train.MonitoredTrainingSession(
        checkpoint_dir=folder, scaffold=scaffold, hooks=hooks, chief_only_hooks=saving,
        config=config.session_config, save_checkpoint_secs=None, save_checkpoint_steps=None,
        save_summaries_steps=config.save_summary_steps or None, save_summaries_secs=None,
        log_step_count_steps=None,
    )


def stored_session(config: RunConfig, checkpoint: str | None, hooks: Sequence[Any]) -> Any:
    """A session with the variables of a checkpoint, or new ones without it."""
    creator = v1.train.ChiefSessionCreator(
        config=config.session_config, checkpoint_filename_with_path=checkpoint
    )
    return v1.train.MonitoredSession(creator, hooks=hooks)


def write_summary(folder: str, step: int, values: Mapping[str, Any]) -> None:
    """Scalars for TensorBoard, in the events file of a folder."""
    scalars = {k: np.asarray(v) for k, v in sorted(values.items()) if np.ndim(v) == 0}
    summary = v1.Summary(
        value=[v1.Summary.Value(tag=k, simple_value=float(v)) for k, v in scalars.items()]
    )
    with tf.Graph().as_default(), v1.summary.FileWriter(os.path.abspath(folder)) as writer:
        writer.add_summary(summary, step)
