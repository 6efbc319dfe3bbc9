"""A cause, and what it is told beside: a training, or copies of its weights."""

from __future__ import annotations

from dataclasses import dataclass

from ipu.run.births.kinds import INFINITY, NAN, SATURATED
from ipu.run.causes.rows import BESIDE_TRAINING, Row

__all__ = ["Cause", "is_beside_training", "is_of_copies", "is_of_sums"]


@dataclass(frozen=True)
class Cause:
    """One cause.

    kind        "constant", "division", "invalid", "overflow", "gradients overflow", "scale",
                "diverges", "gradients vanish", "states", "updates", "sums", "integers", "drift",
                "data", "cancellation", "underflow", "outside".
    sentence    what happened, with the symptom.
    row         of the birth that it begins with; {} where the cause is no single operation.
    harm        1 for numbers that left their range; else the share of digits, updates or terms.
    """

    kind: str
    sentence: str
    row: Row
    harm: float = 1.0

    @property
    def layer(self) -> str:
        """Where it begins; of data, what reads them."""
        return str(self.row.get("reader") or self.row.get("layer", ""))


def is_of_sums(cause: Cause) -> bool:
    """Whether a cause is of terms that parameters or averages beside a training lose."""
    return cause.kind == "updates" or (
        cause.kind == "sums" and cause.row["direction"] == "optimizer")


def is_beside_training(cause: Cause) -> bool:
    """Whether no backward pass and no optimiser reads what goes wrong, as of a metric."""
    row = cause.row
    if is_of_copies(cause):
        return True
    if row.get("direction") in BESIDE_TRAINING:
        return True
    return row.get("kind") in (NAN, INFINITY, SATURATED) and not row["trained_with"]


def is_of_copies(cause: Cause) -> bool:
    """Whether it is in tensors that no optimiser updates, as averages of the weights are."""
    return bool(cause.row.get("is_of_copies"))
