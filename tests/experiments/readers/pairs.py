"""Is a way as good as another? The procedure of docs/pytorch.md, from the numbers of pairs."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

#: Pairs from which on the bounds are so many standard errors wide.
CRITICAL = {12: 4.0, 8: 5.0, 5: 7.0}
#: The same where comparisons share the level, by the most of them.
SHARED = {1: CRITICAL, 2: {12: 5.0, 8: 6.0, 5: 10.0}, 3: {12: 5.7, 8: 7.5, 5: 12.5},
          4: {12: 6.3, 8: 8.3, 5: 13.0}, 6: {12: 7.0, 8: 9.2, 5: 15.0},
          8: {12: 7.5, 8: 10.0, 5: 16.5}, 12: {12: 8.3, 8: 11.3, 5: 19.0},
          16: {12: 8.9, 8: 12.2, 5: 21.0}}
#: Answers after which no pair is looked at any more, and those that are good.
SETTLED, GOOD = ("better", "as good", "worse"), ("better", "as good")


def student(values):
    """Half width of the 95 % interval of a mean."""
    n = len(values)
    return float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def half_width(values, sharing=1):
    """Of the bounds by which answers are given.

    sharing    comparisons that share the level.
    """
    n = len(values)
    factors = next(f for most, f in SHARED.items() if sharing <= most)
    factor = next((c for least, c in factors.items() if n >= least), math.inf)
    return factor * float(np.std(values, ddof=1)) / math.sqrt(n) if n >= 5 else math.inf


def needed(values, margin):
    """Pairs that would settle a mean in four of five cases."""
    errors = (CRITICAL[12] + stats.norm.ppf(0.8)) * float(np.std(values, ddof=1))
    distance = abs(float(np.mean(values)) - margin)
    pairs = (errors / distance) ** 2 if distance else math.inf
    least = next((look for look in (5, 8, 12) if look > len(values)), len(values) + 1)
    return math.ceil(max(least, pairs)) if pairs < 10_000 else None


def by_chance(k, n):
    """The probability that k or more of n coins show heads."""
    return sum(math.comb(n, i) for i in range(k, n + 1)) / 2**n


def answer(lost, margin, fell=None, sharing=1):
    """(answer, mean, half width, low, high) of how much worse each pair is.

    fell    by how much the loss of each of the reference's runs fell.
    """
    if len(lost) < 5:
        return "cannot tell", math.nan, math.nan, -math.inf, math.inf
    mean, half = float(np.mean(lost)), half_width(lost, sharing)
    low, high = mean - half, mean + half
    if fell is not None and by_chance(int(np.sum(np.asarray(fell) > 0)), len(fell)) > 1 / 32:
        return "itself does not train here", mean, student(lost), low, high
    for word, holds in (("better", high < -margin), ("as good", high < margin),
                        ("worse", low > margin)):
        if holds:
            return word, mean, student(lost), low, high
    return "cannot tell", mean, student(lost), low, high


def read_way(reading, name, lost, margin, *, fell=None, unit="points", percent=""):
    """Read "NAME: ANSWER (NOTE), MEAN ± HALF UNIT lost"; the answer.

    percent    " %" where numbers are shares in per cent.
    """
    told, mean, half, low, high = answer(lost, margin, fell)
    if len(lost) < 5:
        reading.says(f"{name}: cannot tell ({{}} of {{}} pairs)", len(lost), 5)
        return told
    note, number = {
        "better": ("at least {}", -high), "as good": ("at most {}", high),
        "worse": ("at least {}", low), "cannot tell": ("{} pairs would", needed(lost, margin)),
    }[told]
    if told == "cannot tell":
        text = "worse, size undecided; " if low > 0 else ""
        if number is None:
            note = "no number of pairs that anyone runs would"
        note, numbers = text + note, () if number is None else (number,)
    else:
        note, numbers = note + percent, (number,)
    reading.says(f"{name}: {told} ({note}), {{}}{percent} ± {{}}{percent} {unit} lost", *numbers,
                 mean, half)
    return told


def holm(judge, ways, decided):
    """Answers of ways that share a level: one that is decided leaves the others more of it.

    judge(way, sharing)    the answer first.
    """
    told, left = {}, list(ways)
    while left:
        told |= {way: judge(way, len(left)) for way in left}
        still = [way for way in left if told[way][0] not in decided]
        if len(still) == len(left):
            break
        left = still
    return told
