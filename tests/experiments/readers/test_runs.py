"""Every number of a run's report and advice, from report.json alone; also made-up runs (law)."""

from __future__ import annotations

import copy
import json

import pytest

from ipu.run.advising import advise
from ipu.run.pages.page import headline, write_run
from ipu.run.ways import Way
from tests.experiments.readers.runs import read_run
from tests.ipu.run.runs import born, make_report, quiet_report

HALF = Way.parse("fp16")
CALM = {"losses": [2.0, 1.5], "first": [], "births": [], "constants": [], "loss_scale": {},
        "swallowed": {}, "uncounted": 0, "symptom": {}}
SCALE = make_report()["loss_scale"] | {
    "present": 4.0, "best": 64.0, "highest_safe": 1024.0, "unseen": 12, "lost": (0.137, 0.01),
    "limited_by": "net.b", "curve": {0: 0.4, 2: 0.137, 6: 0.01},
}
FLUSHED = born("flush to zero", layer="optimizer", direction="optimizer", count=31, results=100)
MADE_UP = {
    "a division by zero": {},
    "nothing": CALM,
    "lost digits": CALM | {"loss_scale": SCALE},
    "swallowed": CALM | {"swallowed": {"a": {"nonzero": 1234, "swallowed": 617, "share": 0.5,
                                             "in_ulps": {}},
                                       "b": {"nonzero": 8, "swallowed": 5, "share": 0.625,
                                             "in_ulps": {}}}},
    "an overflow": CALM | {"births": [
        born("saturation", count=2345, results=99999, number=0, step=3)]},
    "a sum": CALM | {"births": [
        born("absorption", operation="aten.add", count=77, repeated=70, results=93,
             line="train.py:7")]},
    "a jump": CALM | {"losses": [2.0, 3.5, 812.0], "jumps": {"1": 34.6}},
    "a loss that grows": CALM | {"losses": [2.0, 3.5, 812.0], "jumps": {}},
    "positions": CALM | {"births": [
        born("integers", operation="convert", count=160, results=200, detail="20010")]},
    "many births": CALM | {"births": [
        born("flush to zero", layer=f"l{i}.x", number=i) for i in range(20)],
        "carried": {"NaN": 1234}},
    "divisors": CALM | {"births": [FLUSHED], "shadow": {
        "steps": 2, "layers": [], "operations": [], "branches": [], "rejoined": [], "losses": [],
        "motions": [{"name": "a", "arrived": 3.26, "is_state": False},
                    {"name": "b", "arrived": 9.0, "is_state": False},
                    {"name": "c", "arrived": 2.0, "is_state": False}]}},
}

#: Of these no cause is told.
WELL = ("nothing", "many births")


@pytest.mark.parametrize("name", MADE_UP)
def test_every_number_of_the_text_is_in_the_data(name, tmp_path):
    report = copy.deepcopy(make_report()) | MADE_UP[name]
    write_run(tmp_path, report, advise(report, HALF))
    data = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    text = (tmp_path / "report.txt").read_text(encoding="utf-8")
    read_run(text, data)
    assert ("nothing in this run speaks for a change" in text) == (name in WELL)
    read_run(f"   {headline(report)}", data)
    if name not in WELL:
        assert headline(report).rstrip(".") in text


def test_a_run_that_did_not_count(tmp_path):
    report = quiet_report()
    write_run(tmp_path, report, advise(report, HALF))
    read_run((tmp_path / "report.txt").read_text(encoding="utf-8"),
             json.loads((tmp_path / "report.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize(("line", "message"), [
    ("2 steps on mk2", "3 steps on mk2"), ("75.0% of 16", "74.0% of 16"),
    ("0.62% of them", "0.63% of them"), ("100.0% of the multiply-adds", "99.9% of the multiply"),
    ("99% of their digits", "98% of their digits"), ("from step 1 on", "from step 0 on"),
])
def test_a_wrong_number_is_noticed(tmp_path, line, message):
    report = make_report()
    write_run(tmp_path, report, advise(report, HALF))
    text = (tmp_path / "report.txt").read_text(encoding="utf-8")
    assert line in text
    data = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    with pytest.raises(AssertionError):
        read_run(text.replace(line, message), data)
