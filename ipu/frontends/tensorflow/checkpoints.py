"""Delayed scales in TensorFlow's checkpoints: a file beside each, which restoring reads.

TensorFlow's checkpoints hold variables, and the scales of a recipe are none. `tf.train.Checkpoint`,
Keras' `save_weights` in TensorFlow's format and the Saver of TensorFlow 1, which estimators have,
write `PREFIX.delayed-scales.json` beside a checkpoint where there are such scales, and go on with
them. Weights that Keras writes into one file (.h5, .keras) have none: a warning says so. Such files
stay where a manager of checkpoints removes its own.

Source    tensorflow/python/checkpoint/checkpoint.py; tensorflow/python/training/saver.py.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.checkpoint.checkpoint import TrackableSaver

from fpsim.state.files import write_whole
from ipu.frontends.tensorflow.engine.current import current
from ipu.machine.delayed import DelayedScales

__all__ = ["SUFFIX", "extend_checkpoints", "warn_of_scales"]

#: Of the file beside a checkpoint.
SUFFIX = ".delayed-scales.json"
_EXTENDED = "_fpsim_keeps_scales"
_ONE_FILE = (".h5", ".hdf5", ".keras")


def extend_checkpoints() -> None:
    """Checkpoints of this process have scales; nothing happens the second time."""
    v1_saver = tf.compat.v1.train.Saver
    for owner in (TrackableSaver, v1_saver):
        if not hasattr(owner.save, _EXTENDED):
            owner.save = _saving(owner.save)
            owner.restore = _restoring(owner.restore, owner is v1_saver)


def warn_of_scales(path: object) -> None:
    """Tell that weights in this one file are without the scales of the run."""
    if str(path).endswith(_ONE_FILE) and _scales():
        warnings.warn(
            f"{path} holds no delayed scales: a training that goes on from it begins with scales "
            "of 1; save by tf.train.Checkpoint, or save_weights without .h5 and .keras",
            RuntimeWarning, stacklevel=3,
        )


def _scales() -> DelayedScales:
    return current().device.blocks.delayed


def _text(prefix: Any) -> str:
    """A prefix that is a text, bytes, or an eager tensor of them; "" of a node of a graph."""
    value = prefix.numpy() if hasattr(prefix, "numpy") else prefix
    if isinstance(value, bytes):
        return value.decode()
    return str(value) if isinstance(value, (str, Path)) else ""


def _saving(save: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(save)
    def saved(saver: Any, *arguments: Any, **options: Any) -> Any:
        result = save(saver, *arguments, **options)
        scales, prefix = _scales(), _text(result)
        beside = Path(prefix + SUFFIX)
        if scales and prefix:
            write_whole(beside, json.dumps(scales.state()).encode())
        elif prefix:  # of an earlier checkpoint of this name
            beside.unlink(missing_ok=True)
        return result

    setattr(saved, _EXTENDED, True)
    return saved


def _restoring(restore: Callable[..., Any], has_session: bool) -> Callable[..., Any]:
    @wraps(restore)
    def restored(saver: Any, *arguments: Any, **options: Any) -> Any:
        result = restore(saver, *arguments, **options)
        prefix = options.get("save_path") or arguments[has_session]
        beside = Path(_text(prefix) + SUFFIX)
        if beside.name != SUFFIX and beside.is_file():
            scales = _scales()
            scales.load(json.loads(beside.read_text()))
            scales.begin_anew()
        return result

    return restored
