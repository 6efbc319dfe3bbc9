"""What the listings mean that cannot run as printed (golden, law)."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from ipu.experiments.listings import feeds, half, workers
from ipu.experiments.listings.meanings import MEANINGS
from tests.experiments.listings.runs import run_text


def test_every_listing_that_cannot_run_has_a_program():
    every = [*feeds.LISTINGS, *half.LISTINGS, *workers.LISTINGS]
    broken = {listing.name for listing in every if listing.broken}
    assert broken == {name for meaning in MEANINGS for name in meaning.listings}


@pytest.mark.skipif(not find_spec("tensorflow"), reason="tensorflow is not installed")
@pytest.mark.tier("full")
@pytest.mark.parametrize("meaning", MEANINGS, ids=lambda meaning: meaning.listings[0])
def test_the_program_does_what_the_document_says(meaning, tmp_path):
    printed = run_text(meaning.program, tmp_path, meaning.listings[0], "--tf1")
    assert printed.splitlines()[-1] == "same"
