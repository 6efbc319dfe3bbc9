"""Is training in one way as good as in another? The answer from paired runs.

A pair is two runs with equal initial weights, order of the data and masks of dropout; it gives one
difference of the endpoint. What is compared, the margin and the number of pairs are declared before
the runs. Divergence is an endpoint of its own, and never averaged away.

    as good       the mean difference is below the margin.
    better        it is below the margin on the other side.
    worse         it is above the margin, or significantly more runs diverge.
    cannot tell   the interval of the mean holds the margin; with the pairs that would settle it.
    binary32 itself does not train here    its loss falls in no more runs than by chance, or it
                  diverges.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fpsim.state.processor import usual_arithmetic
from ipu.run.endpoints import PROGRESS, Endpoint, Outcome, progress_of
from ipu.run.looks import ALPHA, LOOKS, bound, looks_of, pairs_needed
from ipu.run.verdict import Effect, over_seeds

__all__ = ["AS_GOOD", "BETTER", "CANNOT_TELL", "DEFAULT", "REFERENCE", "WORSE", "Declaration",
           "Judged", "judge", "judge_sharing", "may_diverge", "settled"]

AS_GOOD, BETTER, WORSE, CANNOT_TELL = "as good", "better", "worse", "cannot tell"
REFERENCE = "reference"
Item = TypeVar("Item")
#: Of no pair.
NOTHING = Effect(math.nan, math.inf)
#: Of pairs of which one run alone diverged: the level where both ways have some.
_MIXED = 0.01


@dataclass(frozen=True)
class Declaration:
    """What is fixed before the runs.

    sharing    comparisons that share the level, by Holm's procedure.

    >>> print(Declaration(pairs=8))
    endpoint progress, margin 1 %; looks after 5, 8 pairs; 5 % one-sided over all looks
    """

    endpoint: Endpoint = PROGRESS
    pairs: int = LOOKS[-1]
    sharing: int = 1

    @property
    def looks(self) -> tuple[int, ...]:
        """Pairs after which one looks."""
        return looks_of(self.pairs)

    def __str__(self) -> str:
        if not self.looks:
            return f"endpoint {self.endpoint}; fewer than {LOOKS[0]} pairs, so no answer"
        looks = ", ".join(map(str, self.looks))
        holm = f" and {self.sharing} comparisons, by Holm's procedure" if self.sharing > 1 else ""
        return (
            f"endpoint {self.endpoint}; looks after {looks} pairs; {100 * ALPHA:g} % one-sided "
            f"over all looks{holm}"
        )

    @property
    def digest(self) -> str:
        """By which a page shows that nothing was changed after the runs."""
        return hashlib.blake2b(str(self).encode(), digest_size=8).hexdigest()


#: The share of progress, 1 % of it, twelve pairs.
DEFAULT = Declaration()


@dataclass(frozen=True)
class Judged:
    """An answer, and what it rests on.

    effect      the mean difference of the endpoint, and the half width of its 95 % interval.
    low, high   of the mean: the bounds by which the answer was given.
    pairs       that were looked at; `diverged` of the way, and of the reference, among them.
    needs       pairs that would settle what cannot be told; None: too many, or it is told.
    """

    answer: str
    endpoint: Endpoint = PROGRESS
    effect: Effect = NOTHING
    low: float = -math.inf
    high: float = math.inf
    pairs: int = 0
    diverged: tuple[int, int] = (0, 0)
    needs: int | None = None
    note: str = ""

    @property
    def is_good(self) -> bool:
        """As good as the reference, or better."""
        return self.answer in (AS_GOOD, BETTER)

    @property
    def difference(self) -> str:
        """The mean difference, with ±."""
        if math.isnan(self.effect.value):
            return "–"
        mean = self.endpoint.text(self.effect.value, sign=True)
        if math.isinf(self.effect.uncertainty):
            return mean
        return f"{mean} ± {self.endpoint.text(self.effect.uncertainty)}"

    def __str__(self) -> str:
        return self.answer + (f" ({self.note})" if self.note else "")


def settled(judged: Judged) -> bool:
    """Whether no further pair is needed."""
    return judged.answer in (AS_GOOD, BETTER, WORSE)


def judge_sharing(
    judge_one: Callable[[Item, int], Judged], items: Iterable[Item],
    decides: Callable[[Judged], bool] = settled,
) -> dict[Item, Judged]:
    """Answers of comparisons that share the level, by Holm's procedure.

    judge_one    the answer of one of them where so many share the level.
    decides      whether an answer leaves the others its share.

    Source    Holm (1979); of each comparison one answer at most is wrong, so that all that are
              settled leave theirs (Shaffer, 1986).

    >>> bounds = {"a": 1, "b": 2, "c": 9}  # settled where at most so many share the level
    >>> answers = judge_sharing(
    ...     lambda name, n: Judged(AS_GOOD if n <= 4 - bounds[name] else CANNOT_TELL), bounds)
    >>> [str(answer) for answer in answers.values()]
    ['as good', 'as good', 'cannot tell']
    """
    judged: dict[Item, Judged] = {}
    left = list(items)
    while left:
        judged |= {item: judge_one(item, len(left)) for item in left}
        still = [item for item in left if not decides(judged[item])]
        if len(still) == len(left):
            break
        left = still
    return judged


def judge(
    endpoint: Endpoint, outcomes: Sequence[Outcome], references: Sequence[Outcome],
    sharing: int = 1, reference: str = "binary32",
) -> Judged:
    """The answer of paired runs: one of the way and one of the reference for each pair.

    sharing      comparisons that share the level, as Holm's procedure has it.
    reference    its name in sentences.

    >>> falls = [Outcome([3.0, 2.0, 1.0, 1.0, 1.0 + 0.1 * n]) for n in range(5)]
    >>> judge(PROGRESS, falls, falls).answer
    'as good'
    >>> stays = [Outcome([3.0] * 5)] * 5
    >>> judge(PROGRESS, stays, falls).answer, judge(PROGRESS, stays, stays).answer
    ('worse', 'binary32 itself does not train here')
    """
    n = len(outcomes)
    alone, other, both = _divergence(endpoint, outcomes, references)
    judged = Judged(CANNOT_TELL, endpoint, pairs=n, diverged=(alone + both, other + both))
    if n < LOOKS[0]:
        return replace(judged, needs=LOOKS[0], note=f"{n} of {LOOKS[0]} pairs")
    untrained = _why_untrained(endpoint, references, other + both)
    if untrained:
        return replace(
            judged, answer=f"{reference} itself does not train here", note=untrained)
    differences = endpoint.differences(outcomes, references)
    finite = differences[np.isfinite(differences)]
    if finite.size:
        half = bound(finite, sharing)
        effect = over_seeds(finite)
        judged = replace(
            judged, effect=effect, low=effect.value - half, high=effect.value + half)
    if _diverges_more(alone, other, sharing):
        return replace(judged, answer=WORSE, note=f"{alone + both} of {n} diverge")
    if alone:
        return replace(judged, needs=None if n > LOOKS[-1] else 2 * n, note=(
            f"{alone + both} of {n} diverge, {other + both} of {reference}"))
    return _by_interval(judged, finite)


def _divergence(
    endpoint: Endpoint, outcomes: Sequence[Outcome], references: Sequence[Outcome]
) -> tuple[int, int, int]:
    """Pairs of which the way alone diverged, the reference alone, and both."""
    ends = [
        tuple(not math.isfinite(endpoint.measure(o)) for o in pair)
        for pair in zip(outcomes, references, strict=True)
    ]
    return ends.count((True, False)), ends.count((False, True)), ends.count((True, True))


@usual_arithmetic
def _why_untrained(endpoint: Endpoint, references: Sequence[Outcome], diverged: int) -> str:
    """Why the reference is no measure: its loss falls in too few runs, or it diverges.

    A test of signs: losses may begin and fall by sizes that differ much from run to run.
    """
    if 2 * diverged > len(references):
        return f"{diverged} of {len(references)} of its runs diverge"
    if not endpoint.is_loss and any(len(o.losses) < 2 for o in references):
        return ""  # a score alone shows no progress
    fell = progress_of(references)
    fell = fell[np.isfinite(fell)]
    n_fell = int((fell > 0).sum())
    if _at_least(n_fell, fell.size) <= 0.5 ** LOOKS[0]:
        return ""
    return f"its loss falls in {n_fell} of {fell.size} runs, as it would by chance"


def _diverges_more(alone: int, other: int, sharing: int) -> bool:
    """McNemar's exact test on pairs of which one run diverged.

    Five of five are wrong in 1/32 over all looks; where both ways have some, the level is lower.
    Comparisons share it.
    """
    if not alone:
        return False
    p = _at_least(alone, alone + other)
    return sharing * p <= (0.5 ** LOOKS[0] if not other else _MIXED)


def _at_least(heads: int, tosses: int) -> float:
    """How likely a fair coin shows so many heads or more, correctly rounded: bounds are its values.

    >>> _at_least(5, 5), _at_least(1, 2), _at_least(0, 3)
    (0.03125, 0.75, 1.0)
    """
    return float(sum(math.comb(tosses, k) for k in range(heads, tosses + 1)) / 2**tosses)


def _by_interval(judged: Judged, finite: NDArray[np.float64]) -> Judged:
    """Where the interval of the mean lies, beside the margin."""
    margin, low, high, text = judged.endpoint.margin, judged.low, judged.high, judged.endpoint.text
    if high < -margin:
        return replace(judged, answer=BETTER, note=f"at least {text(-high)}")
    if high < margin:
        return replace(judged, answer=AS_GOOD, note=f"at most {text(high, sign=True)}")
    if low > margin:
        return replace(judged, answer=WORSE, note=f"at least {text(low)}")
    deviation, distance = float(np.std(finite, ddof=1)), abs(judged.effect.value - margin)
    needs = pairs_needed(deviation, distance, finite.size)
    note = f"{needs} pairs would" if needs else "no number of pairs that anyone runs would"
    if low > 0:
        note = f"worse, size undecided; {note}"
    return replace(judged, needs=needs, note=note)


def may_diverge(pairs: int) -> float:
    """Share of runs that may diverge where none of so many did: the upper 95 % bound.

    >>> f"{may_diverge(8):.0%}"
    '31%'
    """
    return float(1 - ALPHA ** (1 / pairs))
