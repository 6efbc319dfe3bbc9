"""The first sentence of the page names the cause; healthy programs get no advice (golden).

The quick tier takes one model for each illness, another one each time; the full tier takes all
models, in sizes of the cause that the rules were not fitted to.
"""

from __future__ import annotations

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
    run_of,
    sample,
)
from tests.ipu.frontends.torch.hospital.programs import (  # noqa: E402
    HEALTHY,
    ILLNESSES,
    MODELS,
    program_text,
)
from tests.tiers import reaches  # noqa: E402


def execute(run, path):
    """The file in a session."""
    return run_program(run, path, [])


run_here = partial(run_of, machine, execute)


def rows(illnesses):
    """Names of illnesses and models, and which size of the cause."""
    return sample(illnesses, MODELS, reaches)


def test_first_sentences_name_the_cause(tmp_path):
    check_sentences(ILLNESSES, rows(ILLNESSES), program_text, partial(run_here, tmp_path))


def test_healthy_programs_get_no_advice(tmp_path):
    check_healthy_programs(HEALTHY, rows(HEALTHY), program_text, partial(run_here, tmp_path))


def test_the_remedy_is_what_heals(tmp_path):
    check_remedies(ILLNESSES, rows(ILLNESSES), program_text, partial(run_here, tmp_path))


@pytest.mark.parametrize("name", ["eps", "swallowed updates"])
def test_the_advice_holds_the_remedy(tmp_path, name):
    illness = ILLNESSES[name]
    text = program_text("mlp", illness, illness.sizes[0])
    _, items = run_here(tmp_path, text, illness.policy)
    ways = [str(way) for way in items[0].ways]
    assert str(Way.parse(illness.remedy).with_policies) in ways


def test_the_line_is_the_users(tmp_path):
    """The chain ends at the line that made the first excursion."""
    illness = ILLNESSES["variance of a norm"]
    text = program_text("mlp", illness, illness.sizes[0])
    report, _ = run_here(tmp_path, text, illness.policy)
    line = next(i for i, row in enumerate(text.splitlines(), 1) if "h * h" in row)
    assert f"train.py:{line}" in headline(report)


def test_of_several_lines_the_one_that_loses_the_terms_is_told(tmp_path):
    """A module adds before, where few terms vanish."""
    illness = ILLNESSES["long sum"]
    text = program_text("mlp", illness, illness.sizes[0]).replace(
        "        total = torch.zeros_like(h)",
        "        h = h + torch.where(torch.arange(h.shape[-1]) == 0, 1e-6, 0.0)\n"
        "        total = torch.zeros_like(h)")
    report, _ = run_here(tmp_path, text, illness.policy)
    lines = [i for i, row in enumerate(text.splitlines(), 1) if "1e-6" in row or "sigmoid" in row]
    (born,) = [row for row in report["births"] if row["kind"] == "absorption"
               and row["layer"] == "stage"]
    assert born["line"].endswith(f"train.py:{lines[1]}")
    assert f"train.py:{lines[1]}" in headline(report)
