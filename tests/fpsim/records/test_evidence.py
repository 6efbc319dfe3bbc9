"""Evidence: the order of its words, and what a number that used several facts rests on (law)."""

from __future__ import annotations

import itertools

import pytest

from fpsim.records.evidence import Evidence, Fact, weakest

ORDER = ["DOCUMENTED", "MEASURED", "INFERRED", "ASSUMED"]


def test_the_words_stand_from_the_strongest_to_the_weakest() -> None:
    assert [str(word) for word in Evidence] == ORDER
    assert [word.value for word in Evidence] == [name.lower() for name in ORDER]


@pytest.mark.parametrize("pair", list(itertools.product(Evidence, repeat=2)), ids=str)
def test_two_facts_rest_on_the_weaker(pair: tuple[Evidence, Evidence]) -> None:
    facts = [Fact(1, word, "a test") for word in pair]
    assert weakest(facts).name == ORDER[max(ORDER.index(word.name) for word in pair)]


def test_no_fact_leaves_nothing_to_doubt() -> None:
    assert weakest([]) is Evidence.DOCUMENTED


def test_a_fact_prints_value_evidence_and_source() -> None:
    assert str(Fact(31, Evidence.INFERRED, "widths")) == "31 (INFERRED: widths)"
