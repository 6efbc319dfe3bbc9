"""The page of a diagnosis from its data; made-up programs that are well, ill, or untold (law)."""

from __future__ import annotations

import math
import re

import pytest

from fpsim.records.formats import Format
from ipu.run.diagnosing import diagnose
from ipu.run.diagnosis import Diagnosis, TriedRemedy
from ipu.run.endpoints import Outcome
from ipu.run.pages.sheet import write_sheet
from ipu.run.responses import Dose, SitePair
from ipu.run.restoring import FORWARD, PrecisionSite
from ipu.run.ways import Way
from tests.experiments.readers.sheets import read_sheet
from tests.ipu.run.runs import make_report

FP16 = Way.parse("fp16")
ONE, OTHER = PrecisionSite("fc1", FORWARD), PrecisionSite("fc2", FORWARD)
FALLS = [2.0, 1.6, 1.2, 1.0]
WIDE = make_report() | {"losses": FALLS, "births": [], "first": [], "constants": [],
                        "swallowed": {}, "loss_scale": {}, "exponents": {}}
#: What binary32 and binary16 do: losses, and of binary16 the report beside them.
CASES = {
    "ill": (FALLS, [2.0, 1.9, 1.8, 1.75], make_report() | {"exponents": {}}),
    "without a number": (FALLS, [2.0, math.nan], make_report() | {"exponents": {}}),
    "healthy": (FALLS, [2.0, 1.601, 1.2, 1.0], WIDE),
    "parts": (FALLS, [2.0, 1.7, 1.6, 1.5], WIDE),
    "parts by chance": (FALLS, [2.0, 1.8, 1.1, 1.05], WIDE),
    "loses digits": (FALLS, [2.0, 1.7, 1.6, 1.5], WIDE | {"shadow": {"operations": [
        {"layer": "net", "direction": "forward", "operation": "aten.sub", "line": "train.py:4",
         "error": 0.4321, "amplification": 123.4, "born": 0.001, "calls": 3}]}}),
    "adds up": (FALLS, [2.0, 1.7, 1.6, 1.5], WIDE | {"shadow": {"operations": [
        {"layer": "aten.add", "direction": "forward", "operation": "aten.add_", "calls": 4321,
         "line": "train.py:4", "error": 0.1234, "amplification": 0.9, "born": 0.000234}]}}),
    "a counter": (FALLS, FALLS, WIDE | {"shadow": {
        "operations": [{"layer": "", "direction": "forward", "operation": "FloorMod", "calls": 4,
                        "line": "train.py:8", "error": 0.894, "amplification": 780.6, "born": 0.0}],
        "motions": [{"name": "counter", "shape": [], "arrived": 0.012, "steps": 4,
                     "error": 0.9, "line": "train.py:9", "operation": "AssignAddVariableOp",
                     "is_state": False, "is_parameter": False}]}}),
    "stands still": (FALLS, FALLS, WIDE | {"shadow": {"motions": [
        {"name": "", "shape": [6, 20], "arrived": 0.123, "error": 0.9, "steps": 4,
         "line": "train.py:9", "operation": "lerp", "is_state": False}]}}),
    "loses without harm": (FALLS, [2.0, 1.601, 1.2, 1.0], WIDE | {
        "swallowed": {"a": {"nonzero": 1234, "swallowed": 617, "share": 0.5, "in_ulps": {}}},
        "loss_scale": {"present": 1.0, "best": 64.0, "highest_safe": 1024.0, "unseen": 0,
                       "lost": (0.1312, 0.0), "limited_by": ""},
        "shadow": {"motions": [
            {"name": name, "is_parameter": True, "is_state": False, "arrived": share,
             "error": 0.1, "length": length, "line": "train.py:9", "operation": "add",
             "shape": [4], "steps": 4}
            for name, share, length in (("a", 0.012, 0.5), ("b", 1.01, 3.0))]}}),
    "binary32 does not train here": ([2.0, math.nan, math.nan, math.nan], FALLS,
                                     make_report() | {"exponents": {}}),
    "cannot tell": ([], [], WIDE),
}
ANSWERS = dict.fromkeys(
    ("without a number", "parts", "loses digits", "adds up", "a counter", "stands still"), "ill",
) | {"loses without harm": "healthy", "parts by chance": "cannot tell"}


def written(folder, diagnosis, patch=""):
    page = write_sheet(folder / "index.html", diagnosis, patch, "train.py")
    return page.read_text(encoding="utf-8"), str(diagnosis)


def diagnosed(name):
    wide, narrow, report = CASES[name]

    def replay(way, restoring, has_shadow):
        is_wide = way.policy.default.compute.precision == 24
        losses = wide if is_wide else narrow
        if not is_wide and way.changes.eps is not None:
            losses = [loss + 0.001 for loss in wide]  # what setting eps mends
            return Outcome(losses, WIDE | {"losses": losses})
        return Outcome(losses, (WIDE if is_wide else report) | {"losses": losses})

    return diagnose(replay, FP16, len(FALLS), sites=lambda report: [ONE, OTHER])


@pytest.mark.parametrize("name", CASES)
def test_every_number_follows_from_the_data(name, tmp_path):
    page, lines = written(tmp_path, diagnosed(name))
    assert read_sheet(page, lines) == ANSWERS.get(name, name)


def by_hand():
    """Every sentence that a page may have."""
    remedies = [TriedRemedy("Set eps", Way.parse("fp16+eps=1e-4"), 0.02, True,
                            [2.0, 1.62, 1.22, 1.04]),
                TriedRemedy("Round stochastically", Way.parse("fp16+sr"), 0.0, True,
                            [2.0, 1.5, 1.0, 0.9, 0.8], [2.0, 1.5, 1.0, 0.9, 0.8], 0.4, steps=5),
                TriedRemedy("Compute fc2 in binary32", Way.parse("fp16+fc2=f32"), 0.2, False,
                            [2.0, 1.8, 1.4, 1.4], before=0.4125, lessens=True),
                TriedRemedy("Compute fc1 in binary32", Way.parse("fp16+fc1=f32"), math.inf, False,
                            [math.nan]),
                TriedRemedy("Multiply the loss by 4", Way.parse("fp16+scale=4"), 0.3, False,
                            [2.0, 1.9, 1.5, 1.3, 1.3], [2.0, 1.5, 1.0, 0.9, 0.8], 0.4, steps=5)]
    return Diagnosis(
        FP16, 4, "ill", "The losses part from binary32's, and no number left its range on the "
        "way.", 0.4125, [2.0, 1.9, 1.8, 1.75], FALLS, [ONE, OTHER], [ONE], window=(1, 3),
        remedies=remedies, pairs=[SitePair(ONE, OTHER, (0.5, 0.5, 0.5, 0.0))],
        doses=[Dose(Format.custom(6, 11), 0.0021, True), Dose(Format.custom(5, 12), 0.3, False)],
        chance=[OTHER], n_sites=7, runs=19, seconds=3.6, losses_of_step=2,
        report=WIDE | {"losses_of_step": 2})


def test_every_kind_of_sentence_is_read(tmp_path):
    page, lines = written(tmp_path, by_hand(), "-eps=1e-8\n+eps=1e-4")
    assert read_sheet(page, lines) == "ill"


@pytest.mark.parametrize(("calls", "why"), [
    (None, "4 steps took 61 s, so each run stops after them; more --seconds follow more of them"),
    (12345, "the program ended no step of an optimiser in 61 s, so each run stops after 12,345 "
            "operations; more --seconds follow it further"),
])
def test_what_was_left_out_is_read(calls, why, tmp_path):
    diagnosis = by_hand()
    diagnosis.followed = {"steps": 4, "calls": calls, "seconds": 61.2, "why": why}
    page, lines = written(tmp_path, diagnosis)
    assert read_sheet(page, lines) == "ill"
    assert "61 s, so each run stops" in page
    with pytest.raises(AssertionError):
        read_sheet(page.replace("61 s, so", "62 s, so"), lines)


def test_steps_of_evaluations_are_read(tmp_path):
    diagnosis = by_hand()
    diagnosis.is_evaluated = True
    page, lines = written(tmp_path, diagnosis)
    assert "after steps 0 to 1 alone" in page
    assert "  after steps 0 to 1 alone" in lines
    assert read_sheet(page, lines) == "ill"


@pytest.mark.parametrize("wrong", [
    ("over the 2 backward", "over the 3 backward"), ("over 5 steps)", "over 6 steps)"),
    ("cures these 4 steps", "cures these 5 steps"), ("Harm 41.2%", "Harm 41.1%"),
    ("steps 1 to 2 alone", "steps 1 to 3 alone"),
    ("50.0% with neither", "51.0% with neither"), ("<td>0.2%</td>", "<td>0.3%</td>"),
    ("19 runs", "18 runs"), ("<td>2.0%</td>", "<td>2.1%</td>"),
])
def test_a_number_that_is_not_the_data_s_is_noticed(wrong, tmp_path):
    page, _ = written(tmp_path, by_hand())
    page = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    read_sheet(page)
    assert wrong[0] in page
    with pytest.raises(AssertionError):
        read_sheet(page.replace(*wrong))
