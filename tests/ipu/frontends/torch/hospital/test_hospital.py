"""The first sentence of the page names the cause; healthy programs get no advice (golden).

The quick tier takes one model for each illness, another one each time; the full tier takes all
models, in sizes of the cause that the rules were not fitted to.
"""

from __future__ import annotations

import contextlib
import io
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from fpsim.torch import machine  # noqa: E402
from ipu.frontends.torch.program import run_program  # noqa: E402
from ipu.run.pages.page import headline  # noqa: E402
from ipu.run.ways import Way  # noqa: E402
from tests.ipu.frontends.hospital import (  # noqa: E402
    check_healthy_programs,
    check_remedies,
    check_sentences,
    sample,
)
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


def rows(illnesses):
    """Names of illnesses and models, and which size of the cause."""
    return sample(illnesses, MODELS, reaches)


def test_first_sentences_name_the_cause(tmp_path):
    check_sentences(ILLNESSES, rows(ILLNESSES), program_text, partial(run_of, tmp_path))


def test_healthy_programs_get_no_advice(tmp_path):
    check_healthy_programs(HEALTHY, rows(HEALTHY), program_text, partial(run_of, tmp_path))


def test_the_remedy_is_what_heals(tmp_path):
    check_remedies(ILLNESSES, rows(ILLNESSES), program_text, partial(run_of, tmp_path))


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
