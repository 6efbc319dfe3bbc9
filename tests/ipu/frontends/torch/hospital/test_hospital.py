"""The first sentence of the page names the cause; healthy programs get no advice (golden).

The quick tier takes one model for each illness, another one each time; the full tier takes all
models, in sizes of the cause that the rules were not fitted to.
"""

from __future__ import annotations

import contextlib
import io

import pytest

torch = pytest.importorskip("torch")

from fpsim.torch import machine  # noqa: E402
from ipu.frontends.torch.program import run_program  # noqa: E402
from ipu.run.pages.page import headline  # noqa: E402
from ipu.run.ways import Way  # noqa: E402
from tests.ipu.frontends.hospital import BAR, sample  # noqa: E402
from tests.ipu.frontends.torch.hospital.programs import (  # noqa: E402
    HEALTHY,
    ILLNESSES,
    MODELS,
    program_text,
)
from tests.tiers import reaches  # noqa: E402

#: Steps whose values in binary64 are carried along.
SHADOW = 6


def run_of(tmp_path, text, policy, seed=0):
    """A run of a user's file in a way; its report and advice."""
    path = tmp_path / "train.py"
    path.write_text(text)
    way = Way.parse(policy)
    run = machine(way.policy, sr=way.sr, count=True, changes=way.changes)
    run.shadow(SHADOW)
    with contextlib.redirect_stdout(io.StringIO()):
        assert run_program(run, path, []) == 0
    report = run.report()
    return report, run.advice(report).items


def test_first_sentences_name_the_cause(tmp_path):
    missed = []
    rows = list(sample(ILLNESSES, MODELS, reaches))
    for name, model, number in rows:
        illness = ILLNESSES[name]
        text = program_text(model, illness, illness.sizes[number], seed=number)
        report, items = run_of(tmp_path, text, illness.policy)
        if not illness.is_named_by(headline(report)) or not items:
            missed.append((name, model, illness.sizes[number], headline(report)))
    assert len(missed) <= (1 - BAR) * len(rows), missed


def test_healthy_programs_get_no_advice(tmp_path):
    for name, model, number in sample(HEALTHY, MODELS, reaches):
        healthy = HEALTHY[name]
        text = program_text(model, healthy, healthy.sizes[number], seed=number)
        report, items = run_of(tmp_path, text, healthy.policy)
        assert items == [], (name, model, headline(report))
        assert healthy.is_named_by(headline(report)), (name, model, headline(report))


def test_the_remedy_is_what_heals(tmp_path):
    """Without the cause, or in the way that is told, the same program is not ill of it."""
    for name, model, number in sample(ILLNESSES, MODELS, reaches):
        illness = ILLNESSES[name]
        size = illness.well or illness.sizes[number]
        policy = illness.policy if illness.well else illness.remedy
        text = program_text(model, illness, size, seed=number)
        report, _ = run_of(tmp_path, text, policy)
        sentence = headline(report)
        is_healthy = sentence.startswith("No ") or not illness.is_named_by(sentence)
        assert is_healthy, (name, model, sentence)


@pytest.mark.parametrize("name", ["eps", "swallowed updates"])
def test_the_advice_holds_the_remedy(tmp_path, name):
    illness = ILLNESSES[name]
    text = program_text("mlp", illness, illness.sizes[0])
    _, items = run_of(tmp_path, text, illness.policy)
    ways = [str(way) for way in items[0].ways]
    assert str(Way.parse(illness.remedy).with_policies) in ways


def test_the_line_is_the_users(tmp_path):
    """The chain ends at the line that made the first excursion."""
    illness = ILLNESSES["variance of a norm"]
    text = program_text("mlp", illness, illness.sizes[0])
    report, _ = run_of(tmp_path, text, illness.policy)
    line = next(i for i, row in enumerate(text.splitlines(), 1) if "h * h" in row)
    assert f"train.py:{line}" in headline(report)
