"""Verdicts of a sweep from data.csv alone, on made-up numbers too (golden)."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pytest

from ipu.experiments.lab.catalogue import find
from ipu.experiments.sweep.jobs import SweepJob, read_result
from ipu.experiments.sweep.page import write_page
from ipu.experiments.sweep.sweep import Swept, SweptJob, save
from ipu.experiments.sweep.verdicts import check_question
from tests.experiments.readers.pages import Reading, rows_of
from tests.experiments.readers.pairs import CRITICAL, answer, half_width

NOISE = np.random.default_rng(4).standard_normal(12)
#: What each rate scores above the first one, by seed; the answer, where more is better and 0.02 is
#: no matter.
MADE_UP = {
    "as good": (0.001 * NOISE, "as good"),
    "better": (0.1 + 0.01 * NOISE, "better"),
    "worse": (-0.1 + 0.01 * NOISE, "worse"),
    "cannot tell": (-0.02 + 0.03 * NOISE, "cannot tell"),
    "worse of unknown size": (-0.03 + 0.01 * NOISE, "cannot tell"),
    "too few": (0.1 + 0.01 * NOISE[:4], "cannot tell"),
    "all equal": (np.zeros(5), "as good"),
}


def written(folder, gains, endpoint="highest:accuracy", lacking=()):
    """The page of a sweep over a rate, whose second value scores so much more than the first."""
    jobs = []
    for rate, values in ((0.1, np.zeros(len(gains))), (0.2, gains)):
        for seed, gain in enumerate(values):
            job = SweepJob("swamping", seed, True, (("rate", rate),))
            if (rate, seed) in lacking:
                jobs.append(SweptJob(job, None, "lost"))
                continue
            row = {"format": "a", "accuracy": 0.5 + seed / 100 + float(gain), "seconds": 1.0}
            text = json.dumps({"rows": [row], "local": [], "answer": "", "policy": "", "units": []})
            jobs.append(SweptJob(job, read_result(text)))
    question = check_question(endpoint, 0.02, [one.job for one in jobs])
    swept = Swept(find("swamping"), jobs, question)
    page = write_page(swept, save(swept, folder / "swamping", "", 1.0), folder / "swamping")
    return html.unescape(page.read_text(encoding="utf-8")), (folder / "swamping" / "data.csv")


def lost_by_pair(data, sign=1):
    """How much worse the second rate is, of the seeds that both have."""
    scores = {}
    for row in rows_of(data.read_text(encoding="utf-8")):
        scores.setdefault(row["run_rate"], {})[row["run_seed"]] = row["accuracy"]
    first, second = scores.values()
    return np.array([sign * (first[seed] - second[seed]) for seed in first if seed in second])


def read(page, lost):
    """The verdict of the page, each number of it from the pairs."""
    match = re.search(r"rate=0\.2 beside rate=0\.1, by accuracy: a</dt>\s*<dd>(.*?)</dd>", page)
    reading = Reading(match[1])
    word, mean, half, low, high = answer(lost, 0.02)
    reading.opens(word)
    reading.says(", {} pairs", len(lost))
    if len(lost) < 5:
        reading.says("({} of {} pairs)", len(lost), 5)
        assert ", worse by –" in reading.text
        reading.is_read()
        return word
    reading.says(", worse by {} ± {}", mean, half)
    if word == "cannot tell":
        assert ("worse, size undecided" in reading.text) == (low > 0)
        reading.left = re.sub(r"\d+ pairs would", "", reading.left)
    else:
        bound = {"better": -high, "as good": high, "worse": low}[word]
        reading.says("(at most {})" if word == "as good" else "(at least {})", bound)
    reading.is_read()
    return word


@pytest.mark.parametrize("name", MADE_UP)
def test_the_answer_follows_from_the_pairs(name, tmp_path):
    gains, expected = MADE_UP[name]
    page, data = written(tmp_path, gains)
    assert read(page, lost_by_pair(data)) == expected
    looks = [look for look in CRITICAL if look <= len(gains)]
    assert ("Declared before the runs: endpoint highest:accuracy, margin 0.02; " in page)
    assert bool(looks) != ("fewer than 5 pairs" in page)
    sentence = json.loads((data.parent / "meta.json").read_text())
    assert f"rate=0.2 beside rate=0.1, by accuracy: a: {expected}" in sentence["answer"]
    assert "margin 0.02" in sentence["parameters"]["declared"]


def test_less_may_be_better(tmp_path):
    page, data = written(tmp_path, MADE_UP["worse"][0], "lowest:accuracy")
    assert read(page, lost_by_pair(data, sign=-1)) == "better"


def test_a_pair_of_which_one_run_failed_is_none(tmp_path):
    page, data = written(tmp_path, MADE_UP["better"][0], lacking={(0.1, 3), (0.2, 7)})
    lost = lost_by_pair(data)
    assert len(lost) == 10
    assert half_width(lost) < 0.1
    assert read(page, lost) == "better"


def test_what_is_no_question_is_refused(tmp_path):
    jobs = [SweepJob("swamping", seed, True, (("rate", rate),))
            for rate in (1, 2) for seed in range(5)]
    for name, of_sweep, words in (
        ("log-loss", jobs, "is of a training's losses; name a number of the table"),
        ("highest", jobs, "name a number of the table"),
        ("highest:accuracy", jobs[:5], "add --set KEY=A,B"),
        ("best:accuracy", jobs, "is not known; use progress"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            check_question(name, 0.1, of_sweep)
    with pytest.raises(ValueError, match="no number's title has it; they are: acc"):
        written(tmp_path, np.zeros(5), "highest:recall")
    with pytest.raises(ValueError, match="several numbers have it in their titles"):
        written(tmp_path, np.zeros(5), "highest:c")
