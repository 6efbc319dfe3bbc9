"""The seconds of a diagnosis: on the wall's clock, from when it was asked for.

What is left bounds each trial, and decides which searches begin: the ones that list sites leave
time for the trials that verify a remedy of them, and all of them for writing the page.

Evidence    ASSUMED: the parts.
"""

from __future__ import annotations

import math
import time

__all__ = ["Budget", "TimeOverError"]

#: What writing takes: a part of the seconds, and the most of it in seconds.
_WRITING, _AT_MOST = 0.05, 2.0
#: Trials that verify what a search has told.
_VERIFYING = 2
#: Of a trial, the part for which there must be time: the first runs take longer, with their shadow.
_ENOUGH = 0.5


class TimeOverError(Exception):
    """A trial was cut, as no time is left for it; what it would have told stays open."""


class Budget:
    """So many seconds, of which some are spent already.

    >>> budget = Budget(60.0, spent=15.0)
    >>> 42.9 < budget.left < 43.0, budget.share(0.25) == 15.0
    (True, True)
    >>> budget.note(30.0)
    >>> budget.has_time(), budget.has_time_to_search()
    (True, False)
    """

    def __init__(self, seconds: float = math.inf, spent: float = 0.0) -> None:
        self.seconds = seconds
        self._begin = time.monotonic() - spent
        self._trial = 0.0
        #: Whether a trial was cut.
        self.is_over = False

    @property
    def spent(self) -> float:
        """Seconds until now."""
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        """Seconds that trials may take."""
        return self.seconds - min(_WRITING * self.seconds, _AT_MOST) - self.spent

    def share(self, part: float) -> float:
        """A part of all seconds."""
        return part * self.seconds

    def note(self, trial: float) -> None:
        """A trial took so many seconds; the next ones may take as many."""
        self._trial = trial if not self._trial else 0.5 * (self._trial + trial)

    def has_time(self) -> bool:
        """Whether another trial may be over before the seconds are."""
        return not self.is_over and self.left > _ENOUGH * self._trial

    def has_time_for(self, trials: float) -> bool:
        """Whether so many trials may be over before the seconds are.

        Those of a program that is followed for more steps take less, as it begins once in each.
        """
        return not self.is_over and self.left > trials * self._trial

    def has_time_to_search(self) -> bool:
        """Whether there is time for a trial of a search, and for those that verify it."""
        return not self.is_over and self.left > (_ENOUGH + _VERIFYING) * self._trial
