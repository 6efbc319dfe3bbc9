"""Ways that were tried: each cell of their table from trials.csv, which is inside of the page."""

from __future__ import annotations

import hashlib
import math
import re

import numpy as np
from scipy.stats import binomtest

from tests.experiments.readers.pages import Reading, agrees, rows_of
from tests.experiments.readers.pairs import (
    GOOD,
    SETTLED,
    answer,
    by_chance,
    holm,
    needed,
    student,
)

#: Pairs on which ways are picked, which confirm nothing.
PICKING = 2
COUNTS = ("divbyzero", "invalid", "overflow", "underflow")


class TriedRuns:
    """Runs of a page by way and pair, and what was declared before them."""

    def __init__(self, page):
        self.rows = rows_of(page.files["trials.csv"])
        text = page.text("Declared before the trials (")
        digest, declared = re.match(
            r"Declared before the trials \((\w+)\): (.*?over all looks)\.", text).groups()
        assert hashlib.blake2b(declared.encode(), digest_size=8).hexdigest() == digest
        name, margin, percent, looks = re.match(
            r"endpoint (\S+), margin (\S+)( %)?; looks after ([\d, ]+) pairs", declared).groups()
        self.endpoint, self.is_share = name, percent is not None
        self.margin = float(margin) / (100 if percent else 1)
        self.looks = [int(n) for n in looks.split(", ")]
        self.reference, self.base = (
            next(row["way"] for row in self.rows if row["role"] == role)
            for role in ("reference", "base"))

    def of(self, way, pairs):
        return [next(r for r in self.rows if (r["way"], r["pair"]) == (way, p)) for p in pairs]

    def pairs_of(self, way):
        return len([row for row in self.rows if row["way"] == way])

    def differences(self, way, pairs):
        """How much worse each run is than the reference's; NaN where one is not finite."""
        ours, theirs = (np.array([row["endpoint"] for row in self.of(name, pairs)])
                        for name in (way, self.reference))
        ours[~np.isfinite(ours)] = theirs[~np.isfinite(theirs)] = math.nan
        if self.endpoint == "log-loss":
            return np.log(ours) - np.log(theirs)
        if self.endpoint == "progress":
            falls = self.falls(pairs)
            least = np.median(falls[np.isfinite(falls)]) / 10
            return (ours - theirs) / np.maximum(falls, least if least > 0 else math.nan)
        return theirs - ours if self.endpoint.startswith("highest") else ours - theirs

    def falls(self, pairs):
        return np.array([row["start"] - row["final"] for row in self.of(self.reference, pairs)])

    def judge(self, way, n, sharing):
        """(answer, differences, low, high, diverged, of the reference) of n fresh pairs."""
        pairs = range(PICKING, PICKING + n)
        lost, falls = self.differences(way, pairs), self.falls(pairs)
        ours, theirs = (
            np.array([not math.isfinite(row["endpoint"]) for row in self.of(name, pairs)])
            for name in (way, self.reference))
        falls = falls[np.isfinite(falls)]
        if not self.is_share and len(falls) < n:
            falls = None  # a score alone shows no progress
        finite = lost[np.isfinite(lost)]
        if falls is not None and by_chance(int((falls > 0).sum()), len(falls)) > 0.5**5:
            word, low, high = "binary32 itself does not train here", -math.inf, math.inf
        else:
            word, _, _, low, high = answer(finite, self.margin, None, sharing)
            alone, other = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
            if alone:
                level = 0.5**5 if not other else 0.01
                p = binomtest(alone, alone + other, 0.5, "greater").pvalue
                is_worse = sharing * p <= level
                word = "worse" if is_worse else "cannot tell"
        return word, finite, low, high, (int(ours.sum()), int(theirs.sum())), falls

    def confirmed(self):
        """The answer of each way that was confirmed, with its pairs: look by look."""
        ways = [way for way in dict.fromkeys(row["way"] for row in self.rows)
                if way not in (self.reference, self.base) and self.pairs_of(way) > PICKING]
        told, looked = {}, {}
        for n in self.looks:
            left = [way for way in ways if way not in told or told[way][0] not in SETTLED]
            new = holm(lambda way, sharing, n=n: self.judge(way, n, sharing), left, GOOD)
            if self.base not in told or told[self.base][0] not in SETTLED:
                new[self.base] = self.judge(self.base, n, 1)
            told |= new
            looked |= dict.fromkeys(new, n)
            if all(row[0] in SETTLED for row in told.values()):
                break
        return {way: (looked[way], *row) for way, row in told.items()}


def read_trials(page, table):
    """Every cell; the answers by way."""
    runs = TriedRuns(page)
    confirmed, answers = runs.confirmed(), {}
    for way, told, value, worse_by, pairs, *counts, cycles, bits in table[1:]:
        (first,) = runs.of(way, [0])
        (of_base,) = runs.of(runs.base, [0])
        assert [int(cell.replace(",", "")) for cell in counts] == [first[c] for c in COUNTS]
        assert agrees(value, first["endpoint"])
        ratio = first["cycles"] / (of_base["cycles"] or 1)
        assert cycles == "–" if not ratio else agrees(cycles.removeprefix("× "), ratio)
        assert agrees(bits.removeprefix("× "), first["bits"] / of_base["bits"])
        word, _, note = told.partition(" (")
        answers[way], note = word, note.removesuffix(")")
        percent, factor = (" %", 100) if runs.is_share else ("", 1)
        if way == runs.reference:
            assert (word, note, worse_by, pairs) == ("reference", "", "–", "")
        elif way not in confirmed:
            assert (word, worse_by, int(pairs)) == ("cannot tell", "–", PICKING)
            read_estimate(note, factor * np.mean(runs.differences(way, range(PICKING))), percent)
        else:
            n, *judged = confirmed[way]
            assert (word, int(pairs), runs.pairs_of(way)) == (judged[0], n, n + PICKING)
            read_note(note, judged, n, runs.margin, factor, percent)
            read_worse_by(worse_by, judged, factor, percent)
    assert set(answers) == {row["way"] for row in runs.rows}
    return answers


def read_estimate(note, mean, percent):
    if not math.isfinite(mean):
        assert note == f"not confirmed; it diverged on {PICKING} pairs"
        return
    reading = Reading(note)
    reading.says(f"not confirmed; {{}}{percent} on {{}} pairs", mean, PICKING)
    reading.is_read()


def read_worse_by(text, judged, factor, percent):
    word, finite, *_ = judged
    if word.endswith("does not train here") or not len(finite):
        assert text == "–"
        return
    reading = Reading(text)
    if len(finite) < 2:
        reading.says(f"{{}}{percent}", *factor * finite)
    else:
        reading.says(f"{{}}{percent} ± {{}}{percent}", factor * finite.mean(),
                     factor * student(finite))
    reading.is_read()


def read_note(note, judged, n, margin, factor, percent):
    """What stands behind an answer in brackets."""
    word, finite, low, high, (ours, theirs), falls = judged
    reading = Reading(note)
    if word.endswith("does not train here"):
        reading.says("its loss falls in {} of {} runs, as it would by chance", (falls > 0).sum(),
                     len(falls))
    elif "diverge" in note:
        assert ours
        if word == "worse":
            reading.says("{} of {} diverge", ours, n)
        else:
            reading.says("{} of {} diverge, {} of binary32", ours, n, theirs)
    elif word == "cannot tell":
        assert ("worse, size undecided" in note) == (low > 0)
        number = needed(finite, margin)
        if number:
            reading.says("{} pairs would", number)
        else:
            assert "no number of pairs" in note
    else:
        sign, bound = {"better": ("at least", -high), "as good": ("at most", high),
                       "worse": ("at least", low)}[word]
        reading.says(f"{sign} {{}}{percent}", factor * bound)
    reading.is_read()
