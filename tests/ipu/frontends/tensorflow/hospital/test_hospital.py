"""The first sentence of the page names the cause; healthy programs get no advice (golden).

The quick tier takes every third illness, with one model; the full tier takes all models, in sizes
of the cause that the rules were not fitted to.
"""

from __future__ import annotations

import contextlib
import io
from functools import partial

from ipu.run.ways import Way
from tests.ipu.frontends.hospital import (
    check_healthy_programs,
    check_remedies,
    check_sentences,
    sample,
)
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
    check_sentences(ILLNESSES, rows(ILLNESSES), program_text, partial(run_of, tmp_path))


def test_healthy_programs_get_no_advice(tmp_path):
    check_healthy_programs(HEALTHY, rows(HEALTHY), program_text, partial(run_of, tmp_path))


def test_the_remedy_is_what_heals(tmp_path):
    check_remedies(ILLNESSES, rows(ILLNESSES), program_text, partial(run_of, tmp_path))
