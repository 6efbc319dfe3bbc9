"""The first sentence of the page names the cause; healthy programs get no advice (golden).

The quick tier takes every third illness, with one model; the full tier takes all models, in sizes
of the cause that the rules were not fitted to.
"""

from __future__ import annotations

from functools import partial

from tests.ipu.frontends.hospital import (
    check_healthy_programs,
    check_remedies,
    check_sentences,
    run_of,
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


def rows(illnesses):
    """Names of illnesses and models, and which size of the cause."""
    programs = list(sample(illnesses, MODELS, reaches))
    return programs if reaches("full") else programs[::3]


def execute(run, path):
    """The file in a session of its own graph."""
    with run.afresh(), run:
        return run_file(path, [])


run_here = partial(run_of, machine, execute)


def test_first_sentences_name_the_cause(tmp_path):
    assert tf.executing_eagerly()
    check_sentences(ILLNESSES, rows(ILLNESSES), program_text, partial(run_here, tmp_path))


def test_what_follows_from_a_wrong_number_is_not_told_in_its_place(tmp_path):
    """An eps that is absorbed by a difference, a division by what a void bound leaves.

    In the recurrent model the derivative of a wrong variance's root overflows at once.
    """
    cancelled = "cancelled variance beside an eps"
    programs = [(cancelled, "mlp", 0), (cancelled, "recurrent", 0),
                ("bound of a logarithm", "cnn", 0)]
    check_sentences(ILLNESSES, programs, program_text, partial(run_here, tmp_path))


def test_healthy_programs_get_no_advice(tmp_path):
    check_healthy_programs(HEALTHY, rows(HEALTHY), program_text, partial(run_here, tmp_path))


def test_the_remedy_is_what_heals(tmp_path):
    check_remedies(ILLNESSES, rows(ILLNESSES), program_text, partial(run_here, tmp_path))
