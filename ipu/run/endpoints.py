"""Endpoints: the one number of a run by which ways are compared, and the margin of it.

`progress`         The share of the reference's own progress that is lost, pair by pair. Progress is
                   the median loss of the first tenth of the steps less the final loss; that of a
                   pair counts as a tenth of the pairs' median at least. So an untrained model loses
                   all of it, a loss near zero is no noise, and no pair outweighs the others because
                   it began at a large loss.
`log-loss`         The logarithm of the final loss: 0.005 is half a percent of the loss.
`lowest:WORD`      The last number that the program prints behind this word; `highest:WORD` where
                   more is better. In its own units. A step function returns it in place of losses:
`lowest`, `highest`    the score that a step returns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.state.processor import usual_arithmetic
from ipu.run.printed import DECIMAL

__all__ = ["PROGRESS", "Endpoint", "Outcome", "final_loss", "find_endpoint", "start_loss"]

#: Share of the steps whose mean loss is the final one, and their least number.
_LAST, _LEAST = 0.1, 3
#: Of the median progress: that of a pair that made hardly any.
_HARDLY = 0.1
#: Margins of endpoints that have one by themselves.
_MARGINS = {"progress": 0.01, "log-loss": 0.005}
_NUMBER = rf"{DECIMAL}|[-+]?(?:nan|inf)"


@dataclass(frozen=True)
class Outcome:
    """Losses of a run's steps and its report; or why it stopped.

    score      that its step returned.
    printed    by the program.
    """

    losses: Sequence[float] = ()
    report: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    score: float | None = None
    printed: str = ""


@dataclass(frozen=True)
class Endpoint:
    """What is compared.

    name      as in the head of this file.
    margin    the difference that does not matter.

    >>> str(Endpoint("highest:accuracy", 0.01))
    'highest:accuracy, margin 0.01'
    """

    name: str = "progress"
    margin: float = _MARGINS["progress"]

    @property
    def is_loss(self) -> bool:
        """Whether it is of the losses of the steps."""
        return self.name in _MARGINS

    @property
    def is_share(self) -> bool:
        """Whether it is told in percent."""
        return self.is_loss

    def __str__(self) -> str:
        return f"{self.name}, margin {self.text(self.margin)}"

    def text(self, value: float, *, sign: bool = False) -> str:
        """A difference as it is told."""
        number = f"{100 * value:{'+' if sign else ''}.2g}" if self.is_share else (
            f"{value:{'+' if sign else ''}.3g}")
        return f"{number} %" if self.is_share else number

    def measure(self, outcome: Outcome) -> float:
        """The number of one run; NaN where it stopped with an error or tells no losses.

        Raises    ValueError for a score that the run does not have.
        """
        if outcome.error:
            return math.nan
        if self.is_loss:
            return final_loss(outcome.losses)
        _, _, word = self.name.partition(":")
        if not word:
            if outcome.score is None:
                raise ValueError(
                    f"endpoint={self.name!r}: step returned no score; return a number, not a list"
                )
            return outcome.score
        printed = re.findall(
            rf"{re.escape(word)}[^-+.\d\n]*?({_NUMBER})", outcome.printed, re.IGNORECASE)
        if not printed:
            raise ValueError(
                f"endpoint={self.name!r}: the program printed no number behind {word!r}; name a "
                "word of its output"
            )
        return float(printed[-1])

    @usual_arithmetic
    def differences(
        self, outcomes: Sequence[Outcome], references: Sequence[Outcome]
    ) -> NDArray[np.float64]:
        """How much worse each run is than the reference of its pair; NaN where one is not finite.

        Raises    ValueError for the logarithm of a loss that is not positive.
        """
        ours, theirs = (
            np.array([self.measure(o) for o in runs], np.float64) for runs in (outcomes, references)
        )
        ours[~np.isfinite(ours)] = math.nan
        theirs[~np.isfinite(theirs)] = math.nan
        if self.name == "progress":
            fell = progress_of(references)
            middle = float(np.median(fell[np.isfinite(fell)])) if np.isfinite(fell).any() else 0.0
            # Of no progress there is no share.
            least = _HARDLY * middle if middle > 0 else math.nan
            return np.asarray((ours - theirs) / np.maximum(fell, least))
        if self.name == "log-loss":
            if (ours <= 0).any() or (theirs <= 0).any():
                raise ValueError("endpoint='log-loss' needs losses above zero; use progress")
            return np.asarray(np.log(ours) - np.log(theirs))
        return theirs - ours if self.name.startswith("highest") else ours - theirs


@usual_arithmetic
def progress_of(outcomes: Sequence[Outcome]) -> NDArray[np.float64]:
    """By how much the loss of each run fell; NaN of one whose losses are not finite."""
    fell = np.array([start_loss(o.losses) - final_loss(o.losses) for o in outcomes])
    return np.where(np.isfinite(fell), fell, math.nan)


@usual_arithmetic
def final_loss(losses: Sequence[float]) -> float:
    """The mean of the last tenth of the losses, of three at least; NaN of none.

    >>> final_loss([9.0, 3.0, 2.0, 1.0])
    2.0
    """
    n = max(_LEAST, math.ceil(_LAST * len(losses)))
    return float(np.mean(losses[-n:])) if len(losses) else math.nan


@usual_arithmetic
def start_loss(losses: Sequence[float]) -> float:
    """The median of the first tenth of the losses: one wild step is no start; NaN of none.

    >>> start_loss([9.0, 3.0, 2.0, 1.0]), start_loss([1000.0, 3.0, 2.0] + [1.0] * 27)
    (9.0, 3.0)
    """
    n = math.ceil(_LAST * len(losses))
    return float(np.median(losses[:n])) if n else math.nan


#: The default.
PROGRESS = Endpoint()


def find_endpoint(name: str, margin: float | None = None) -> Endpoint:
    """An endpoint by its name, with its own margin or this one.

    Raises    ValueError for a name that is none, and for a margin that is missing or not positive.

    >>> find_endpoint("log-loss").margin
    0.005
    >>> find_endpoint("highest:accuracy")
    Traceback (most recent call last):
    ...
    ValueError: endpoint='highest:accuracy' has no margin of its own; give one in its units
    """
    kind, _, word = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not ((kind in _MARGINS and not word) or kind in ("lowest", "highest")):
        raise ValueError(
            f"endpoint={name!r} is not known; use progress, log-loss, lowest:WORD or highest:WORD"
        )
    if margin is None:
        if kind not in _MARGINS:
            raise ValueError(f"endpoint={name!r} has no margin of its own; give one in its units")
        margin = _MARGINS[kind]
    if not 0 < margin < math.inf:
        raise ValueError(f"margin={margin!r} is no size of a difference; use a number above 0")
    return Endpoint(name, margin)
