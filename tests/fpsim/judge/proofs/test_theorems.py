"""Every theorem (law): a subset of a minute in the quick tier, all of them in the deep one; a
sample by a second solver (differential); the page names every kind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("bitwuzla")

import bitwuzla as bz

from fpsim.judge.proofs import page
from fpsim.judge.proofs.catalogue import find, theorems
from fpsim.judge.proofs.terms import Theory
from fpsim.judge.proofs.theorem import (
    CONTRACT,
    PROVED,
    ProofVerdict,
    SolverClaim,
    Theorem,
    negated,
    prove,
)
from fpsim.kernels.target import HAS_QUIET_ADD
from ipu.experiments.cli import main
from tests.tiers import pick

QUICK = [t for t in theorems().values() if t.quick]
CHOSEN = pick(QUICK, QUICK, list(theorems().values()))
#: Decided by both solvers in seconds.
SAMPLE = ("philox elements half words", "exact product 4 digits", "parts of a sum")


@pytest.mark.parametrize("theorem", CHOSEN, ids=lambda t: t.name)
def test_it_is_proved(theorem):
    verdict = prove(theorem, limit=300)
    assert verdict.status == (CONTRACT if theorem.contracts else PROVED), verdict
    if theorem.kind == "conversion" and theorem.quick:
        assert verdict.seconds < 20


def test_every_kind_has_a_short_member_or_takes_long():
    kinds = {t.kind for t in theorems().values()}
    assert kinds - {t.kind for t in QUICK} <= {
        "conversion, given bits", "conversion, policies", "conversion, without flags",
        "store, normal numbers", "operation, under contracts", "unit calls",
    }


@pytest.mark.parametrize("name", SAMPLE[: pick(1, 3, 3)])
def test_a_second_solver_agrees(name):
    z3 = pytest.importorskip("z3")
    solver = z3.Solver()
    solver.set("timeout", 120_000)
    solver.from_string(negated(find((name,))[0].claim(), bz.Options()).print_formula())
    assert solver.check() == z3.unsat


def test_contradicting_contracts_prove_nothing():
    theory = Theory()
    x = theory.variable("x", 8)
    claim = SolverClaim(theory, x == 1, [x < 3, x > 5])
    with pytest.raises(AssertionError, match="contradict"):
        prove(Theorem("false", "test", "false", lambda: claim, contracts=("none",)))


def test_the_page_has_a_row_for_each_kind():
    text = (Path(__file__).parents[4] / "docs" / "verification.md").read_text(encoding="utf-8")
    for line in page.table(theorems().values(), {}).splitlines()[2:]:
        kind, about, count = line.split(" | ")[:3]
        # The page is of a processor with AVX-512, whose additions may leave the status alone.
        told = f"{kind} | {about} | "
        if HAS_QUIET_ADD or kind != "| magic number":
            told += f"{count} |"
        assert told in text, f"{kind}: write the page anew"


def test_verdicts_are_kept_and_counted(tmp_path):
    few = list(theorems().values())[:3]
    file = tmp_path / "verdicts"
    page.record(file, ProofVerdict(few[0], PROVED, 1.26))
    assert page.read(file)[few[0].name]["seconds"] == 1.3
    assert "| 3 | 1 PROVED, 2 not run | none | 1.3 |" in page.table(few, page.read(file))
    place = tmp_path / "page.md"
    place.write_text("no place")
    with pytest.raises(ValueError, match="has no place for the table"):
        page.write(place, "")


def test_what_is_not_decided_in_time_is_told_by_the_status(tmp_path, capsys):
    name, file = "convert binary16 RNE", str(tmp_path / "verdicts")
    assert main(["verify", "proof", name, "--limit", "0.001", "--record", file]) == 1
    assert capsys.readouterr().out.startswith("NOT DECIDED")
    assert main(["verify", "proof", name, "--record", file]) == 1  # of a kept verdict, too
    assert main(["verify", "proof", "packed codes", "--record", file]) == 0


def test_unknown_names_are_told():
    with pytest.raises(ValueError, match="Did you mean 'convert binary16 RNE'"):
        find(("convert", "binary16", "RNEE"))
