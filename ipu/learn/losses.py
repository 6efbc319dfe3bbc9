"""Losses: binary32 scalars, whatever the format of the logits; binary64 ones of binary64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.state.processor import usual_arithmetic
from ipu import ops
from ipu.learn.tensor import Tensor
from ipu.machine.reference import wide

__all__ = [
    "accuracy", "checked_labels", "softmax_cross_entropy", "sparse_softmax_cross_entropy",
]

Labels = NDArray[np.integer[Any]]


@usual_arithmetic
def sparse_softmax_cross_entropy(logits: Tensor, labels: Labels) -> Tensor:
    """Mean cross-entropy of softmax(logits) against integer labels.

    Shapes    logits (batch, classes), labels (batch): a scalar.
    Rounding  binary32 inside; the gradient is rounded once into the logits' format.
    Raises    ValueError for labels that are not integers from 0 to classes - 1.
    """
    return ops.softmax_cross_entropy(logits, labels=checked_labels(logits, labels))


@usual_arithmetic
def softmax_cross_entropy(logits: Tensor, labels: ArrayLike) -> Tensor:
    """Mean cross-entropy of softmax(logits) against rows of probabilities, that sum to 1.

    Shapes    logits (batch, classes), labels the same: a scalar.
    Rounding  binary32 inside, labels to nearest; the gradient is rounded once into the logits'
              format.
    Raises    ValueError for rows that are not probabilities.
    """
    _extents(logits)
    shares = np.asarray(labels, np.float64)
    if shares.shape != logits.shape:
        raise ValueError(f"labels have shape {shares.shape}; give that of logits: {logits.shape}")
    if not ((shares >= 0).all() and np.allclose(shares.sum(axis=1), 1)):
        raise ValueError("labels have rows that are not probabilities; use shares that sum to 1")
    wanted = logits.device.from_host(shares, wide(logits.dtype))
    return ops.softmax_cross_entropy_dense(logits, labels=wanted)


@usual_arithmetic
def accuracy(logits: Array, labels: Labels) -> float:
    """Share of rows whose largest logit is the label's.

    Shapes    logits (batch, classes), labels (batch).
    Raises    ValueError for labels that are not integers from 0 to classes - 1.
    """
    return float(np.mean(logits.values.argmax(axis=1) == checked_labels(logits, labels)))


def _extents(logits: Tensor | Array) -> tuple[int, int]:
    if len(logits.shape) != 2 or 0 in logits.shape:
        raise ValueError(f"logits have shape {logits.shape}; give (batch, classes), 1 or more each")
    batch, classes = logits.shape
    return batch, classes


def checked_labels(logits: Tensor | Array, labels: Labels) -> Labels:
    """Labels, one for each row of the logits."""
    batch, classes = _extents(logits)
    labels = np.asarray(labels)
    if labels.shape != (batch,) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels are {labels.dtype} of shape {labels.shape}; give integers of shape ({batch},)"
        )
    if not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels lie in {labels.min()} … {labels.max()}; use 0 to {classes - 1}")
    return labels
