"""Strands: computations that pause where they stand, and go on when they are told to.

A user's forward pass is one Python function; the schedule of a pipeline runs other micro-batches
between its stages. Each micro-batch therefore has a thread of its own, and of all of them only one
runs at any moment: the others wait, so nothing depends on the time.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from ipu.frontends.torch.threads import OURS

__all__ = ["Strand"]


class _ClosedError(BaseException):
    """Ends a strand that nobody needs any more; user code has no reason to catch it."""


class Strand:
    """A function in a thread that runs only between `resume` and `pause`.

    >>> steps = []
    >>> def work(strand):
    ...     steps.append(1)
    ...     strand.pause()
    ...     steps.append(3)
    >>> strand = Strand(work)
    >>> strand.resume(); steps.append(2); strand.resume()
    >>> steps, strand.is_over
    ([1, 2, 3], True)
    """

    def __init__(self, work: Callable[[Strand], None]) -> None:
        self._work = work
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self._is_closing = False
        self.is_over = False
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), daemon=True, name=f"{OURS}strand"
        )
        self._thread.start()

    def _run(self) -> None:
        self._mine.acquire()
        try:
            if not self._is_closing:
                self._work(self)
        except _ClosedError:
            pass
        except BaseException as error:  # resume raises it where the strand was resumed
            self._error = error
        finally:
            self.is_over = True
            self._theirs.release()

    def resume(self) -> None:
        """Run until the next pause or the end.

        Raises    what the function raises.
        """
        if self.is_over:
            raise RuntimeError("this strand is over; start another one")
        self._mine.release()
        self._theirs.acquire()
        if self.is_over:
            self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def pause(self) -> None:
        """Wait, in the strand itself, until it is resumed."""
        self._theirs.release()
        self._mine.acquire()
        if self._is_closing:
            raise _ClosedError

    def close(self) -> None:
        """End the strand where it stands."""
        if not self.is_over:
            self._is_closing = True
            self._mine.release()
            self._theirs.acquire()
            self._thread.join()
