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
from tests.experiments.readers.pages import Reading, WholePage, rows_of
from tests.experiments.readers.pairs import CRITICAL, SETTLED, answer, holm, needed

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


def written(folder, gains, endpoint="highest:accuracy", lacking=(), more=()):
    """The page of a sweep over a rate, whose second value scores so much more than the first.

    more    what further values score more, of as many seeds.
    """
    jobs = []
    for rate, values in zip((0.1, 0.2, 0.3, 0.4, 0.5), (np.zeros(len(gains)), gains, *more),
                            strict=False):
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
    return page.read_text(encoding="utf-8"), (folder / "swamping" / "data.csv")


def lost_by_pair(data, sign=1):
    """How much worse each rate is than the first one, of the seeds that both have."""
    scores = {}
    for row in rows_of(data.read_text(encoding="utf-8")):
        scores.setdefault(row["run_rate"], {})[row["run_seed"]] = row["accuracy"]
    first, *others = scores.values()
    return {
        rate: np.array([sign * (first[seed] - other[seed]) for seed in first if seed in other])
        for rate, other in zip(list(scores)[1:], others, strict=True)
    }


def both(page_and_data):
    page, data = page_and_data
    return page, lost_by_pair(data)


def read(text, lost, sign=1):
    """The verdicts of the page, each number of them from the pairs; the answers by rate."""
    page = WholePage(text)
    told = holm(lambda rate, sharing: answer(lost[rate], 0.02, None, sharing), lost, SETTLED)
    verdicts = [piece for tag, _, piece in page.texts if tag == "li"]
    assert len(verdicts) == len(lost)
    for verdict, (rate, row) in zip(verdicts, told.items(), strict=True):
        read_verdict(Reading(verdict), rate, lost[rate], row, sign)
    assert " ".join(verdicts) in page.text(f"{len(page.tables[0]) - 1} of ")
    return {rate: row[0] for rate, row in told.items()}


def read_counts(text, data):
    """How many runs finished, how many numbers differ, and the cells of each run."""
    page, rows = WholePage(text), rows_of(data.read_text(encoding="utf-8"))
    failed = json.loads((data.parent / "meta.json").read_text())["parameters"]["failed"]
    values = {name: {row[name] for row in rows} for name in ("accuracy", "seconds")}
    different = [name for name, several in values.items() if len(several) > 1]
    answer = page.text(f"{len(rows)} of ")
    reading = Reading(answer.partition(".")[0])
    reading.says("{} of {} runs finished; {} of {} numbers differ", len(rows),
                 len(rows) + len(failed), len(different), len(values))
    reading.is_read()
    if len(different) < len(values):
        lead = Reading(page.text("Click a head to sort").partition("not shown: ")[2])
        lead.says("{}.", len(values) - len(different))
    for cells, row in zip(page.tables[0][1:], rows, strict=True):
        assert float(cells[1]) == row["run_seed"]
        assert float(cells[2]) == row["run_rate"]
        for cell, name in zip(cells[3:], different, strict=True):
            assert float(cell) == pytest.approx(row[name], rel=1e-5)


def read_verdict(reading, rate, lost, row, sign):
    word, mean, half, low, high = row
    ours, first = f"rate={rate:g}", "rate=0.1"
    opening = f"{ours} is {word} {'as' if word == 'as good' else 'than'} {first}: ".capitalize()
    if word == "cannot tell":
        opening = f"Whether {ours} is as good as {first} cannot be told: "
        if low > 0:
            opening = f"Rate={rate:g} is worse than {first}, how much cannot be told: "
    reading.opens(opening)
    reading.says("{} pairs of equal seeds", len(lost))
    if len(lost) < 5:
        reading.says("and {} are the fewest", 5)
        reading.is_read()
        return
    side = {True: "lower", False: "higher"}
    if not lost.any():
        assert "“accuracy: a” is the same over" in reading.text
    else:
        reading.says(f"“accuracy: a” is {{}} ± {{}} {side[(mean > 0) == (sign > 0)]}", abs(mean),
                     half)
        bound = {"worse": low, "cannot tell": None}.get(word, high)
        if bound is not None:
            most = "most" if word == "as good" and bound > 0 else "least"
            turned = (bound > 0) != (mean > 0)
            other = f" {side[(bound > 0) == (sign > 0)]}" if turned else ""
            reading.says(f"(at {most} {{}}{other})", abs(bound))
    if word == "cannot tell":
        number = needed(lost, 0.02)
        if number:
            reading.says("; {} would tell in four of five cases", number)
        else:
            assert "; no number of pairs that anyone runs would tell" in reading.text
    reading.is_read()


@pytest.mark.parametrize("name", MADE_UP)
def test_the_answer_follows_from_the_pairs(name, tmp_path):
    gains, expected = MADE_UP[name]
    page, data = written(tmp_path, gains)
    read_counts(page, data)
    assert read(page, lost_by_pair(data)) == {0.2: expected}
    looks = [look for look in CRITICAL if look <= len(gains)]
    assert ("Declared before the runs: endpoint highest:accuracy, margin 0.02; " in page)
    assert bool(looks) != ("fewer than 5 pairs" in page)
    assert "margin 0.02" in json.loads((data.parent / "meta.json").read_text())["parameters"][
        "declared"]


def test_several_settings_share_the_level(tmp_path):
    """What is better where it is asked alone may be better by chance where four are asked."""
    gains = -0.005 + 0.01 * NOISE
    assert read(*both(written(tmp_path / "alone", gains))) == {0.2: "as good"}
    others = [-0.019 + 0.01 * np.roll(NOISE, shift) for shift in (1, 2, 3)]
    page, data = written(tmp_path / "four", gains, more=others)
    assert "over all looks and 4 comparisons, by Holm's procedure" in html.unescape(page)
    assert read(page, lost_by_pair(data)) == dict.fromkeys((0.2, 0.3, 0.4, 0.5), "cannot tell")


def test_settings_that_are_settled_leave_the_others_their_share(tmp_path):
    gains = -0.005 + 0.01 * NOISE
    others = [0.3 + 0.01 * np.roll(NOISE, shift) for shift in (1, 2, 3)]
    page, data = written(tmp_path, gains, more=others)
    assert read(page, lost_by_pair(data)) == {
        0.2: "as good", 0.3: "better", 0.4: "better", 0.5: "better"}


def test_more_settings_than_share_a_level_are_refused():
    jobs = [SweepJob("swamping", 0, True, (("rate", rate),)) for rate in range(18)]
    with pytest.raises(ValueError, match="compares 17 settings with the first one, and at most 16"):
        check_question("highest:accuracy", 0.02, jobs)
    assert check_question("highest:accuracy", 0.02, jobs[:17]).margin == 0.02


def test_less_may_be_better(tmp_path):
    page, data = written(tmp_path, MADE_UP["worse"][0], "lowest:accuracy")
    assert read(page, lost_by_pair(data, sign=-1), sign=-1) == {0.2: "better"}


def test_a_pair_of_which_one_run_failed_is_none(tmp_path):
    page, data = written(tmp_path, MADE_UP["better"][0], lacking={(0.1, 3), (0.2, 7)})
    lost = lost_by_pair(data)
    read_counts(page, data)
    assert len(lost[0.2]) == 10
    assert read(page, lost) == {0.2: "better"}


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
