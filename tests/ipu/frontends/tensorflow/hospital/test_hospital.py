"""The first sentence of the page names the cause; healthy programs get no advice (golden).

The quick tier takes every third illness, with one model; the full tier takes all models, in sizes
of the cause that the rules were not fitted to.
"""

from __future__ import annotations

import contextlib
import io

from ipu.run.pages.page import headline
from ipu.run.ways import Way
from tests.ipu.frontends.hospital import BAR, sample
from tests.ipu.frontends.tensorflow.framework import tf
from tests.ipu.frontends.tensorflow.hospital.programs import (
    HEALTHY,
    ILLNESSES,
    MODELS,
    program_text,
)
from tests.tiers import reaches

from fpsim.tf import machine  # isort: skip
from ipu.frontends.processes.programs import run_file  # isort: skip

#: Steps whose values in binary64 are carried along.
SHADOW = 6


def rows(illnesses):
    """Names of illnesses and models, and which size of the cause."""
    programs = list(sample(illnesses, MODELS, reaches))
    return programs if reaches("full") else programs[::3]


def run_of(tmp_path, text, policy):
    """A run of a user's file in a way; its report and advice."""
    path = tmp_path / "train.py"
    path.write_text(text)
    way = Way.parse(policy)
    run = machine(way.policy, sr=way.sr, count=True, changes=way.changes)
    run.shadow(SHADOW)
    with contextlib.redirect_stdout(io.StringIO()), run.afresh(), run:
        assert run_file(path, []) == 0
    report = run.report()
    return report, run.advice(report).items


def test_first_sentences_name_the_cause(tmp_path):
    assert tf.executing_eagerly()
    missed, programs = [], rows(ILLNESSES)
    for name, model, number in programs:
        illness = ILLNESSES[name]
        text = program_text(model, illness, illness.sizes[number], seed=number)
        report, items = run_of(tmp_path, text, illness.policy)
        if not illness.is_named_by(headline(report)) or not items:
            missed.append((name, model, illness.sizes[number], headline(report)))
    assert len(missed) <= (1 - BAR) * len(programs), missed


def test_healthy_programs_get_no_advice(tmp_path):
    for name, model, number in rows(HEALTHY):
        healthy = HEALTHY[name]
        text = program_text(model, healthy, healthy.sizes[number], seed=number)
        report, items = run_of(tmp_path, text, healthy.policy)
        assert items == [], (name, model, headline(report))
        assert healthy.is_named_by(headline(report)), (name, model, headline(report))


def test_the_remedy_is_what_heals(tmp_path):
    """Without the cause, or in the way that is told, the same program is not ill of it."""
    for name, model, number in rows(ILLNESSES):
        illness = ILLNESSES[name]
        size = illness.well or illness.sizes[number]
        policy = illness.policy if illness.well else illness.remedy
        report, _ = run_of(tmp_path, program_text(model, illness, size, seed=number), policy)
        sentence = headline(report)
        is_healthy = sentence.startswith("No ") or not illness.is_named_by(sentence)
        assert is_healthy, (name, model, sentence)
