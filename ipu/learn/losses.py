"""Losses: binary32 scalars, whatever the format of the logits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from ipu.learn import ops
from ipu.learn.tensor import Tensor

__all__ = ["accuracy", "sparse_softmax_cross_entropy"]

Labels = NDArray[np.integer[Any]]


def sparse_softmax_cross_entropy(logits: Tensor, labels: Labels) -> Tensor:
    """Mean cross-entropy of softmax(logits) against integer labels.

    Shapes    logits (batch, classes), labels (batch): a scalar.
    Rounding  binary32 inside; the gradient is rounded once into the logits' format.
    Raises    ValueError for labels that are not whole numbers from 0 to classes - 1.
    """
    if len(logits.shape) != 2:
        raise ValueError(f"logits have shape {logits.shape}; give (batch, classes)")
    batch, classes = logits.shape
    labels = np.asarray(labels)
    if labels.shape != (batch,) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels are {labels.dtype} of shape {labels.shape}; give integers of shape ({batch},)"
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels lie in {labels.min()} … {labels.max()}; use 0 to {classes - 1}")
    return ops.softmax_cross_entropy(logits, labels=labels)


def accuracy(logits: Array, labels: Labels) -> float:
    """Share of rows whose largest logit is the label's."""
    return float(np.mean(logits.values.argmax(axis=1) == labels))
