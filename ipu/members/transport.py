"""What a transport does: it carries messages between the workers of one training.

A transport knows no numbers. It delivers whole messages, in the order in which one worker sends
them to another, and it reports the worker that is gone or silent. What a message holds, and
whether it is the one that was expected, is the matter of `ipu.members.channel`, above all
transports.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

__all__ = [
    "LIMIT", "JoinError", "Kind", "Reason", "StoppedError", "Transport", "at_step", "failure",
    "heard",
]

#: Bytes of a message, whatever the training.
LIMIT = 1 << 31


class Kind(Enum):
    """Why a training stopped."""

    GONE = "gone"
    SILENT = "silent"
    DAMAGED = "damaged"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Reason(NamedTuple):
    """Why a training stopped, as every worker tells it.

    rank    of the worker that it is about.
    text    one sentence that names this worker.
    """

    kind: Kind
    rank: int
    text: str


def heard(reason: Reason, rank: int, describe: Callable[[int], str]) -> Reason:
    """A reason that another worker tells, in this worker's words where it is about this one.

    rank    of this worker.

    >>> gone = Reason(Kind.GONE, 1, "worker 1 is gone")
    >>> heard(gone, 0, "worker {}".format).text
    'worker 1 is gone'
    >>> heard(gone, 1, "worker {}".format).text
    'the other workers have given up this one, worker 1: it was cut off from them, or stood still'
    """
    if reason.rank != rank or reason.kind not in (Kind.GONE, Kind.SILENT):
        return reason
    return reason._replace(
        text=f"the other workers have given up this one, {describe(rank)}: it was cut off from "
        "them, or stood still"
    )


def at_step(reason: Reason, step: int, saved: str = "") -> Reason:
    """A reason with the step that this worker stands at, where another worker was lost.

    saved    what is known of checkpoints.

    >>> at_step(Reason(Kind.GONE, 1, "worker 1 is gone"), 3, "the last checkpoint is step 2").text
    'worker 1 is gone (step 3); the last checkpoint is step 2'
    """
    if reason.kind not in (Kind.GONE, Kind.SILENT) or "(step " in reason.text:
        return reason
    return reason._replace(text=f"{reason.text} (step {step})" + (f"; {saved}" if saved else ""))


def failure(error: BaseException, rank: int, name: str) -> Reason:
    """Why a worker ends that an error has reached.

    rank, name    of the worker.

    >>> failure(ValueError("x=1 is odd"), 1, "worker 1").text
    'worker 1 stopped: ValueError: x=1 is odd'
    """
    kind = Kind.INTERRUPTED if isinstance(error, KeyboardInterrupt) else Kind.FAILED
    what = (str(error).splitlines() or [""])[0]
    words = [f"{name} stopped", type(error).__name__, what]
    return Reason(kind, rank, ": ".join(filter(None, words)))


class JoinError(RuntimeError):
    """The workers did not come together, so no step was tried: exit status 2."""


class StoppedError(RuntimeError):
    """The training stopped on every worker: exit status 3.

    >>> str(StoppedError(Reason(Kind.GONE, 3, "worker 3 is gone")))
    'worker 3 is gone'
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


class Transport(Protocol):
    """Messages between `size` workers, of which this one is `rank`.

    limit    bytes of the longest message that may be received; set when the training is known.
    """

    rank: int
    size: int
    limit: int

    def describe(self, rank: int) -> str:
        """That worker in a sentence: worker 1 at 127.0.0.1:3738."""

    def send(self, to: int, message: bytes) -> None:
        """Send a message to another worker; does not wait until it is received.

        Raises    StoppedError after the training was stopped.
        """

    def receive(self, sender: int) -> bytes:
        """The next message of another worker; waits for it.

        Raises    StoppedError when the training is stopped, here or by another worker, and when
                  the sender is gone or silent.
        """

    def abort(self, reason: Reason) -> None:
        """Stop the training on every worker; what waits here or there raises StoppedError.

        The first reason holds; later ones are ignored.
        """

    def close(self) -> None:
        """Leave after the last message of the training; what was sent is delivered before."""
