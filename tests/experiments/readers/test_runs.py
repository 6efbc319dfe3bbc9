"""Every number of a run's report and advice, from report.json alone; also made-up runs (law)."""

from __future__ import annotations

import copy
import json

import pytest

from ipu.run.advising import advise
from ipu.run.pages.page import headline, write_run
from ipu.run.shadow import Shadow
from ipu.run.ways import Way
from tests.experiments.readers.run_pages import read_run_page
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
SHADOW = {
    "steps": 3, "losses": [], "layers": [
        {"layer": "net.a", "direction": "forward", "share": 0.8123},
        {"layer": "", "direction": "optimizer", "share": 0.1877}],
    "operations": [
        {"operation": "aten.mm", "layer": "net.a", "direction": "forward", "born": 4.88e-4,
         "inherited": 0.0, "amplification": None, "calls": 3, "line": "train.py:3"},
        {"operation": "aten.sub", "layer": "", "direction": "optimizer", "born": 1.2e-4,
         "inherited": 3.4e-2, "amplification": 56.7, "calls": 6, "line": "train.py:9"}],
    "branches": [{"operation": "aten.max", "layer": "net.a", "direction": "forward", "step": 1,
                  "line": "train.py:4", "differing": 12, "elements": 34567}],
    "motions": [{"name": "ema", "arrived": 0.123, "error": 0.877, "line": "train.py:8",
                 "is_state": True}],
    "rejoined": [{"operation": "aten.sort", "why": "it has no rule", "times": 5}],
}
OPERANDS = [
    {"layer": "net.a", "product": product, "operand": operand, "block": "mxfp8", "snr": snr,
     "gain": 0.98765, "clipped": 0.0123, "flushed": 0.25, "zero_scale": 0.0, "lag": lag}
    for product, operand, snr, lag in (
        ("forward", "first", None, None), ("weight_gradient", "second", 23.456, (0.5, 1.375)))
]
MADE_UP = {
    "an empty shadow": CALM | {"shadow": Shadow(2).summary()},
    "a shadow": CALM | {"shadow": SHADOW},
    "blocks": CALM | {"operands": OPERANDS, "uncovered": [
        {"layer": f"net.{name}", "operation": "aten.bmm", "times": 17} for name in "abcde"]},
    "updates that are lost here and there": CALM | {"swallowed": {
        "a": {"nonzero": 1234, "swallowed": 17, "share": 17 / 1234, "in_ulps": {}}}},
    "a harmless saturation": CALM | {"births": [
        born("saturation", harmless=True, deaths={"aten._softmax": 3}, count=4)]},
    "a division by zero": {},
    "nothing": CALM,
    "lost digits": CALM | {"loss_scale": SCALE},
    "swallowed": CALM | {"swallowed": {"a": {"nonzero": 1234, "swallowed": 617, "share": 0.5,
                                             "in_ulps": {}},
                                       "b": {"nonzero": 8, "swallowed": 5, "share": 0.625,
                                             "in_ulps": {}}}},
    "swallowed, of a parameter": CALM | {"swallowed": {"a": {
        "nonzero": 1234, "swallowed": 1217, "share": 1217 / 1234, "format": "binary16", "step": 3,
        "in_ulps": {-12: 600, -3: 617, 0: 17}, "line": "train.py:9", "parameters": {
            "weight": {"nonzero": 1230, "swallowed": 1214},
            "bias": {"nonzero": 4, "swallowed": 3}}}}},
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
WELL = ("nothing", "an empty shadow", "many births", "a shadow", "blocks",
        "updates that are lost here and there", "a harmless saturation")


@pytest.mark.parametrize("name", MADE_UP)
def test_every_number_of_the_text_is_in_the_data(name, tmp_path):
    report = copy.deepcopy(make_report()) | MADE_UP[name]
    page = write_run(tmp_path, report, advise(report, HALF))
    heads = read_run_page(page.read_text(encoding="utf-8"))
    assert (("layer", "product") in heads, ("operation", "layer") in heads) == (
        name == "blocks", name in ("a shadow", "divisors"))
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
    read_run_page((tmp_path / "index.html").read_text(encoding="utf-8"))
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


@pytest.mark.parametrize(("cell", "wrong"), [
    ("6 of 8 updates", "7 of 8 updates"), ("<b>2</b>steps", "<b>3</b>steps"),
    ("<td><code>1e-08</code></td>", "<td><code>2e-08</code></td>"),
    ("100.0 %</td>", "99.0 %</td>"), ("0.62 %</b>of them", "0.63 %</b>of them"),
])
def test_a_wrong_number_of_the_page_is_noticed(tmp_path, cell, wrong):
    report = make_report()
    page = write_run(tmp_path, report, advise(report, HALF)).read_text(encoding="utf-8")
    assert cell in page
    with pytest.raises(AssertionError):
        read_run_page(page.replace(cell, wrong))
