"""Unedited programs of transformers and accelerate: causes, remedies, no needless advice (golden).

The quick tier takes one size of each cause, the full tier both.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial

import pytest

from tests.ipu.frontends.torch.framework import machine
from tests.ipu.frontends.torch.huggingface.hospital.programs import HEALTHY, ILLNESSES, PROGRAMS

pytest.importorskip("accelerate", reason="accelerate is not installed; run: make test-huggingface")
pytest.importorskip("transformers")

from ipu.frontends.processes.diagnosing import diagnose_program
from ipu.frontends.torch.program import run_program
from tests.ipu.frontends.hospital import (
    check_healthy_programs,
    check_remedies,
    check_sentences,
    run_of,
)
from tests.tiers import reaches

# Libraries warn of what they will change; warnings of fpsim are RuntimeWarnings, and errors here.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{category}")
    for category in ("UserWarning", "DeprecationWarning", "FutureWarning")
]

def text_of(name, illness, size, seed):
    return PROGRAMS[name].replace("{a}", size).replace("{seed}", str(seed))


def execute(run, path):
    """The file in a session, in its own folder: trainers write there."""
    with contextlib.chdir(path.parent):
        return run_program(run, path, [])


run_here = partial(run_of, machine, execute)


def rows(illnesses):
    """The name of an illness, of its program, and which size of the cause."""
    return [
        (name, name, number) for i, name in enumerate(illnesses)
        for number in ((0, 1) if reaches("full") else (i % 2,))
    ]


def test_first_sentences_name_the_cause(tmp_path):
    check_sentences(ILLNESSES, rows(ILLNESSES), text_of, partial(run_here, tmp_path))


def test_healthy_programs_get_no_advice(tmp_path):
    check_healthy_programs(HEALTHY, rows(HEALTHY), text_of, partial(run_here, tmp_path))


def test_the_remedy_is_what_heals(tmp_path):
    check_remedies(ILLNESSES, rows(ILLNESSES), text_of, partial(run_here, tmp_path))


class _FirstPageError(Exception):
    """The first page of a diagnosis is there: of two runs, however long they take."""


def _stop_at(diagnosis):
    raise _FirstPageError(diagnosis)


@pytest.mark.parametrize("name", ["eps", "raw recordings"])
def test_a_diagnosis_has_the_same_cause(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    illness, path = ILLNESSES[name], tmp_path / "train.py"
    path.write_text(text_of(name, illness, illness.sizes[0], 0))
    run = machine(illness.policy, count=True)
    with pytest.raises(_FirstPageError) as page:
        diagnose_program(run, path, [], 4, seconds=math.inf, tell=_stop_at)
    (result,) = page.value.args
    assert result.answer == "ill"
    assert illness.is_named_by(result.sentence)
