"""Every kind of theorem refutes named mutants, confirmed by the mutants' own kernels (law)."""

from __future__ import annotations

import pytest

pytest.importorskip("bitwuzla")

from fpsim.judge.proofs.catalogue import theorems
from tests.fpsim.judge.proofs.mutants import MUTANTS, outcome
from tests.mutate import Tree
from tests.tiers import pick


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return Tree(tmp_path_factory.mktemp("mutants"))


@pytest.mark.parametrize("named", pick(MUTANTS[:1], MUTANTS, MUTANTS), ids=lambda m: m.name)
def test_a_mutant_is_refuted(tree, named):
    text = outcome(tree, named)
    assert text.startswith("status 1\nREFUTED"), text
    assert "\n  confirmed: kernel " in text, text
    assert f"\n  fpsim verify proof '{named.theorem}' --at " in text, text


def test_every_mutant_changes_one_place_and_names_a_theorem():
    for named in MUTANTS:
        assert named.mutant().after != named.before
        assert named.theorem in theorems()
