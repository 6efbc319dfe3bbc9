"""Comparisons whose truth is known: noise of many shapes, and how often the answers are wrong.

The factors of `ipu.run.looks` come from here: `errors_of` with 400 000 comparisons gives 4.8 % for
(7, 5, 4), 2.5 % for (10, 6, 5) and 1.4 % for (12.5, 7.5, 5.7), exponential noise, seed 2. With
eight million, shared by more: 4 × 1.06 %, 6 × 0.71 %, 8 × 0.53 %, 12 × 0.34 %, 16 × 0.25 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from ipu.run.endpoints import Endpoint, Outcome
from ipu.run.judging import AS_GOOD, BETTER, WORSE, judge
from ipu.run.looks import LOOKS

__all__ = ["NOISE", "errors_of", "upper_bound", "wrong_answers"]

#: Noise by shape, of mean 0; the sign of a skewed one says on which side its long tail is.
NOISE: dict[str, Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]] = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "uniform": lambda rng, size: rng.uniform(-1, 1, size),
    "Laplace": lambda rng, size: rng.laplace(size=size),
    "t of 3 degrees": lambda rng, size: rng.standard_t(3, size),
    "a tenth five times as wide": lambda rng, size: rng.standard_normal(size) * np.where(
        rng.random(size) < 0.1, 5, 1),
    "exponential above": lambda rng, size: rng.exponential(size=size) - 1,
    "exponential below": lambda rng, size: 1 - rng.exponential(size=size),
    "a tenth five deviations above": lambda rng, size: rng.standard_normal(size) + 5 * (
        rng.random(size) < 0.1) - 0.5,
}
#: The score by which simulated ways are compared, and a reference that scores 0.
ENDPOINT, ZERO = Endpoint("lowest", 1.0), Outcome(score=0.0)


def wrong_answers(
    shape: str, count: int, seed: int, deviation: float = 1.0, looks: Sequence[int] = LOOKS
) -> tuple[float, float]:
    """Shares of comparisons called good, and called worse, whose true difference is the margin.

    Each looks until it has an answer.
    """
    noise = deviation * NOISE[shape](np.random.default_rng(seed), (count, looks[-1]))
    answers = [_answer(ENDPOINT.margin + row, looks) for row in noise]
    good = sum(answer in (AS_GOOD, BETTER) for answer in answers)
    return good / count, answers.count(WORSE) / count


def _answer(differences: NDArray[np.float64], looks: Sequence[int]) -> str:
    outcomes = [Outcome(score=float(x)) for x in differences]
    answer = ""
    for n in looks:
        answer = judge(ENDPOINT, outcomes[:n], [ZERO] * n).answer
        if answer in (AS_GOOD, BETTER, WORSE):
            break
    return answer


def errors_of(shape: str, factors: Sequence[float], count: int, seed: int) -> float:
    """Share of comparisons that these factors call good though the mean is at the margin."""
    noise = NOISE[shape](np.random.default_rng(seed), (count, LOOKS[-1]))
    wrong = np.zeros(count, bool)
    for n, factor in zip(LOOKS, factors, strict=True):
        pairs = noise[:, :n]
        half = factor * pairs.std(1, ddof=1) / np.sqrt(n)
        wrong |= pairs.mean(1) + half < 0
    return float(wrong.mean())


def upper_bound(share: float, count: int) -> float:
    """The upper 95 % bound of a share, by Clopper and Pearson.

    >>> round(upper_bound(0.05, 10_000), 4)
    0.0537
    """
    k = round(share * count)
    return float(beta.ppf(0.95, k + 1, count - k)) if k < count else 1.0
