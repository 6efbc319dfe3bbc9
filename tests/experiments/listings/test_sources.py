"""Listings are read as they stand in the documents (law, on documents of our own)."""

from __future__ import annotations

import hashlib

import pytest

from ipu.experiments.listings import feeds, half, sources, workers
from ipu.experiments.listings.sources import DocumentListing

TEXT = """Prose.
 1for x in [1, 2]:
 2
 3  y = x
10 is no line number here
if x:
y = ...
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "009_x.txt").write_text(TEXT)
    monkeypatch.setitem(sources.DIGESTS, "009", hashlib.sha256(TEXT.encode()).hexdigest())
    return tmp_path


def test_numbers_are_taken_away_and_nothing_else(folder):
    listing = DocumentListing("a", "009", 2, 4, numbered=True)
    assert listing.text(folder) == "for x in [1, 2]:\n\n  y = x"
    assert DocumentListing("a", "009", 5, 5).text(folder) == "10 is no line number here"


def test_lost_indentation_and_blanks_are_restored(folder):
    listing = DocumentListing("a", "009", 6, 7, levels="01", blanks=(("...", "5"),), before="x = 1",
                      after="z = y", inside=1)
    assert listing.program(folder) == "x = 1\n    if x:\n        y = 5\nz = y"
    with pytest.raises(ValueError, match=r"listing a has no '#'"):
        DocumentListing("a", "009", 6, 7, blanks=(("#", ""),)).text(folder)


def test_another_version_of_a_document_is_refused(folder):
    (folder / "009_x.txt").write_text(TEXT + "more")
    with pytest.raises(ValueError, match=r"009_x\.txt is another version"):
        DocumentListing("a", "009", 1, 1).text(folder)
    with pytest.raises(FileNotFoundError, match="holds no document 000_"):
        DocumentListing("a", "000", 1, 1).text(folder)


def test_every_listing_of_the_documents_has_its_place():
    every = [*feeds.LISTINGS, *workers.LISTINGS, *half.LISTINGS]
    assert len(every) == len({listing.name for listing in every}) == 24
    assert [listing.name for listing in every if listing.broken] == [
        "concurrent_stages", "convolution", "getter_in_a_scope",
    ]
