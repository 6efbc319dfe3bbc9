"""The claims of the literature come out with the verdicts that we know (golden)."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import fpsim as fp
from fpsim.chop import MatlabRandom
from ipu.experiments.commands.series import run_series
from ipu.experiments.lab.catalogue import catalogue, find
from ipu.experiments.published.claim import tables, verdicts
from ipu.experiments.published.gallery import claims, claims_of, write_gallery
from tests.experiments.accessible import NARROW, WIDE, faults, walk
from tests.experiments.browser import print_page
from tests.tiers import pick

YES, NO, OPEN = "REPRODUCED", "NOT REPRODUCED", "CANNOT BE TOLD"

#: Verdicts of whole runs where they differ from those of quick ones.
WHOLE = {
    "heat_slopes": [YES, YES], "narrow_underflow": [YES, YES, YES], "frozen_soil": [YES, YES],
    "three_precisions": [YES, YES],
}
#: Each file with its verdicts, in a quick run.
KNOWN = {
    "half_matrix_products": [YES],
    "biased_attention": [YES, YES, OPEN],
    "rump_polynomial": [NO, YES, YES, YES, OPEN],
    "bf16_steps": [NO, YES],
    "split_significands": [YES, OPEN],
    "wrong_limits": [YES, YES],
    "chunked_sums": [OPEN],
    "narrow_underflow": [YES],  # of three files the first
    "euler_stagnation": [YES, YES, YES],
    "three_precisions": [OPEN, OPEN],  # a few seeds decide nothing
    "heat_slopes": [OPEN, OPEN],  # three slopes have wide intervals
    "frozen_soil": [OPEN, YES],  # the short run does not reach the end
    "fp8_promotion": [OPEN, YES],
    "eight_bits": [YES, OPEN],
    "square_root_errors": [YES, OPEN, YES, YES],
}


def test_every_claim_of_the_room_is_known():
    assert {e.name for e in catalogue().values() if e.room.endswith(".published")} == set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_a_claim_has_its_verdict_table_and_figure(name):
    experiment = find(name)
    result = experiment.run(quick=True, seed=0)
    assert list(verdicts(result).values()) == KNOWN[name]
    assert [table.title.rpartition(": ")[2] for table in tables(result)] == KNOWN[name]
    figure = experiment.plot(result)
    assert figure is not None
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_title(loc="left")


@pytest.mark.tier("full")
@pytest.mark.parametrize("name", pick((), ("heat_slopes",), WHOLE))
def test_a_whole_run_has_its_verdicts(name):
    assert list(verdicts(find(name).run(quick=False, seed=0)).values()) == WHOLE[name]


def test_the_page_of_the_docs_lists_every_claim_with_its_verdict():
    page = (Path(__file__).parents[3] / "docs" / "published.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()
            if line.startswith("| `")]
    listed = [(row[0].strip("`"), row[1], row[2]) for row in rows]
    wanted = [
        (experiment.name, claim.part, verdict)
        for experiment in claims()
        for claim, verdict in zip(
            claims_of(experiment), WHOLE.get(experiment.name, KNOWN[experiment.name]), strict=True
        )
    ]
    assert sorted(listed) == sorted(wanted)


def test_the_gallery_lists_what_a_folder_holds(tmp_path):
    run_series([find("wrong_limits")], tmp_path, quick=True, seed=0)
    shown = write_gallery(tmp_path)
    assert [(x.part, x.verdict) for x in shown] == [
        ("Kahan and Muller", YES), ("the chaotic bank", YES)
    ]
    for suffix in ("md", "html"):
        text = (tmp_path / f"published.{suffix}").read_text(encoding="utf-8")
        assert "98.3495031221653591" in text
        assert "fpsim run bf16_steps" in text


@pytest.fixture(scope="module")
def verdicts_page(tmp_path_factory):
    """The page with verdicts of three kinds, as `fpsim run published` writes it."""
    folder = tmp_path_factory.mktemp("published")
    names = ("wrong_limits", "rump_polynomial", "bf16_steps")
    run_series([find(name) for name in names], folder, quick=True, seed=0)
    write_gallery(folder)
    return folder / "published.html"


def test_the_page_of_verdicts_is_read_and_used_by_everybody(verdicts_page, browser):
    text = verdicts_page.read_text(encoding="utf-8")
    assert all(f"<strong>{verdict}</strong>" in text for verdict in (YES, NO, OPEN))
    assert faults(browser, verdicts_page) == []
    assert [walk(browser, verdicts_page, width) for width in (NARROW, WIDE)] == [[], []]


def test_the_page_of_verdicts_leads_to_its_parts_and_prints(verdicts_page, tmp_path):
    text = verdicts_page.read_text(encoding="utf-8")
    parts = set(re.findall(r'<section id="([^"]+)"', text))
    assert parts
    assert set(re.findall(r'href="#([^"]+)"', text)) == parts
    assert print_page(verdicts_page, tmp_path).startswith(b"%PDF")


@pytest.mark.source("comments of matmult.m, whose seed is 1")
def test_the_stream_is_matlabs():
    random = MatlabRandom(1)
    assert random.rand(1).shape == (1, 1)
    assert MatlabRandom(1).rand(2, 3)[:, 0].tolist() == MatlabRandom(1).rand(6, 1)[:2, 0].tolist()
    assert sorted(set(MatlabRandom(3).randi(2, 10, 10).reshape(-1).tolist())) == [1, 2]
    with pytest.raises(ValueError, match="seed=-1 has no stream that is known"):
        MatlabRandom(-1)


def test_soil_stands_still_where_numpys_float32_does():
    """The same loop in numpy's own float32: the step, and the temperatures."""
    soil = importlib.import_module("ipu.experiments.published.frozen_soil")
    run = soil._run(fp.Context("binary32"), 100_000)
    t, rate = np.full(soil.POINTS, soil.COLD, np.float32), np.float32(1800) * np.float32(7e-7)
    t[0], change = soil.WARM, np.empty(soil.POINTS - 1, np.float32)
    for step in range(100_000):  # noqa: B007  # the last one is asked for
        change[:-1] = (t[2:] - 2 * t[1:-1]) + t[:-2]
        change[-1] = -t[-1] + t[-2]
        after = t[1:] + rate * change
        if np.array_equal(after, t[1:]):
            break
        t[1:] = after
    assert run.fixed == step == 84_135
    assert np.array_equal(run.x.values[0], t)
