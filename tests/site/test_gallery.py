"""The gallery: a changed bit is told with both numbers (law); experiments have pages (golden).

Records are those of any processor (law).
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

import pytest

from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import catalogue
from ipu.experiments.published.gallery import exhibits
from tests.processors import LEVELS, environment, is_here, python
from tests.tiers import pick

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = DOCS / "outputs" / "gallery"
FULL = DOCS / "outputs" / "full"
#: Experiments whose full run is not recorded yet: minutes to half an hour each. Their pages show
#: the quick one, and say so.
NOT_RECORDED = {
    "fp8_training", "mnist_training", "parameter_update_methods", "replica_rounding",
    "three_precisions", "torch_where_it_hurts", "where_sr_pays",
    "which_four_bits",
}
SITE = Path(os.environ.get("FPSIM_SITE", ""))
built = pytest.mark.skipif(not os.environ.get("FPSIM_SITE"), reason="make site builds it")


@pytest.fixture
def runs(monkeypatch):
    """The script of full runs, which stands beside the pages."""
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    monkeypatch.delenv("FPSIM_DATA", raising=False)
    monkeypatch.delenv("FPSIM_RECORD", raising=False)
    import full_runs

    yield full_runs
    sys.modules.pop("full_runs")


@pytest.fixture
def pages(runs):
    """The extension."""
    pytest.importorskip("sphinx")
    import experiment_pages

    yield experiment_pages
    sys.modules.pop("experiment_pages")


def test_every_experiment_has_a_record_and_every_record_an_experiment():
    names = {path.stem for path in RECORDS.glob("*.csv")}
    assert names == set(catalogue())


def test_no_record_names_a_folder_of_a_machine():
    folder = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|Users|work)/")
    outputs = [path for path in RECORDS.parent.rglob("*") if path.is_file()]
    named = {path.name for path in outputs if folder.search(path.read_text(encoding="utf-8"))}
    assert named == set()


def test_every_record_of_a_full_run_is_whole():
    """Data and description belong together, and to an experiment as `make gallery` runs it."""
    names = {path.name for path in FULL.iterdir()}
    assert names == set(catalogue()) - NOT_RECORDED
    for name in names:
        stored = store.load(FULL / name)
        assert stored is not None
        meta = stored[1]
        assert (meta["name"], meta["quick"], meta["seed"]) == (name, False, 0)
        assert re.fullmatch("[0-9a-f]{12}", str(meta["commit"])), name


def test_recorded_full_runs_have_the_verdicts_of_the_page_of_findings():
    page = (DOCS / "published.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in page.splitlines()
            if line.startswith("| `")]
    recorded = [[f"`{x.experiment}`", x.part, str(x.verdict)] for x in exhibits(FULL)]
    assert sorted(recorded) == sorted(row for row in rows if row[0].strip("`") not in NOT_RECORDED)


#: By their costs: a tier repeats the full runs of so many, three minutes of the full one; the deep
#: one all. Of heat_slopes tests/experiments/published/test_published.py has the full run.
BY_COST = sorted(set(catalogue()) - NOT_RECORDED,
                 key=lambda name: (catalogue()[name].budget, name))


@pytest.mark.parametrize("name", BY_COST[: pick(2, 19, len(BY_COST))])
def test_a_full_run_repeats_its_record(runs, tmp_path, name):
    experiment = catalogue()[name]
    if experiment.missing:
        pytest.skip(experiment.missing)
    assert runs.compute(experiment, tmp_path) == ""


#: Experiments that compare with reference numbers: sums, norms, powers and logarithms in binary64.
WITH_REFERENCES = (
    "fp8_promotion", "hadamard_trades", "is_sr_unbiased", "narrow_underflow", "square_root_errors",
    "swamping", "two_d_blocks",
)


@pytest.mark.tier("full")
@pytest.mark.skipif(not is_here(LEVELS["baseline"]), reason="this is no x86-64")
@pytest.mark.parametrize("name", pick((), WITH_REFERENCES[-2:], WITH_REFERENCES))
def test_a_quick_run_repeats_its_record_on_the_least_processor(runs, tmp_path, name):
    """Kernels, numpy and BLAS are those of an x86-64 without AVX."""
    python("-m", "ipu.experiments.cli", "run", name, "--quick", "--out", str(tmp_path),
           **environment(LEVELS["baseline"]))
    data = (tmp_path / name / store.DATA).read_text(encoding="utf-8")
    assert runs.difference(RECORDS / f"{name}.csv", data) == ""


def test_a_full_run_is_recorded_without_what_is_drawn_and_drawn_again(runs, tmp_path, monkeypatch):
    experiment, records = catalogue()["wrong_limits"], tmp_path / "records"
    assert runs.recorded(experiment, tmp_path / "drawn", records) is None
    assert "+" in runs.compute(experiment, tmp_path / "results", records)
    monkeypatch.setenv("FPSIM_RECORD", "1")
    assert runs.compute(experiment, tmp_path / "results", records) == ""
    assert {path.name for path in (records / "wrong_limits").iterdir()} == {"data.csv", "meta.json"}
    page = runs.recorded(experiment, tmp_path / "drawn", records)
    assert page.figure.svg
    (records / "wrong_limits" / "data.csv").write_text("n\n1\n")
    with pytest.raises(store.DamagedError, match="not the file that"):
        runs.recorded(experiment, tmp_path / "drawn again", records)


def test_one_bit_that_changes_is_told_with_the_old_and_the_new(runs, tmp_path):
    data = "n,sum\n1,0.3\n2,0.5\n"
    path = tmp_path / "one.csv"
    path.write_text(data)
    assert runs.difference(path, data) == ""
    told = runs.difference(path, data.replace("0.3", "0.30000000000000004"))
    assert told.splitlines()[2:] == ["@@ -2 +2 @@", "-1,0.3", "+1,0.30000000000000004"]
    assert runs.difference(tmp_path / "absent", data).count("\n+") == 3 + 1


def test_a_long_difference_is_cut(runs, tmp_path):
    told = runs.difference(tmp_path / "none", "n\n" + "1\n" * 100).splitlines()
    assert len(told) == runs.SHOWN + 1
    assert told[-1] == "and 64 lines more"


def test_a_changed_record_is_a_warning_and_a_recorded_one_none(pages, monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(pages.logger, "warning", lambda text, *parts, **_: told.append(parts))
    monkeypatch.setattr(pages, "RECORDS", tmp_path / "records")

    class Shown:
        name = "swamping"
        folder = tmp_path

    (tmp_path / "data.csv").write_text("n\n1\n")

    monkeypatch.delenv("FPSIM_RECORD", raising=False)
    pages.check(Shown())
    assert [name for name, _ in told] == ["swamping"]
    monkeypatch.setenv("FPSIM_RECORD", "1")
    pages.check(Shown())
    monkeypatch.delenv("FPSIM_RECORD")
    pages.check(Shown())
    assert len(told) == 1


@built
def test_every_experiment_has_a_page_with_its_data_digest_and_code():
    for name in set(catalogue()):
        text = (SITE / "gallery" / f"{name}.html").read_text(encoding="utf-8")
        quick = RECORDS / f"{name}.csv"
        shown = quick if name in NOT_RECORDED else FULL / name / "data.csv"
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (quick, shown)]
        assert all(digest in text for digest in digests), name
        (link,) = re.findall(r'href="([^"]*/data\.csv|[^"]*\.csv)"', text)
        data = (SITE / "gallery" / link).resolve()
        assert data.read_bytes() == shown.read_bytes()
        assert "QUESTION" in text, "its code"


@built
def test_every_question_of_the_catalogue_stands_on_the_first_page_of_the_gallery():
    text = (SITE / "gallery" / "index.html").read_text(encoding="utf-8")
    for name in catalogue():
        assert name in text
