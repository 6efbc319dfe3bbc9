"""Listings as they stand in the documents, read from a folder that FPSIM_SOURCES names.

The documents are plain text: some listings carry line numbers, some have lost their indentation. A
`DocumentListing` says which lines of a document it is and how deep each one stands; `program` gives
the text, with our own words before and after it.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DIGESTS", "DocumentListing"]

#: SHA-256 of each document, by the beginning of its file's name.
DIGESTS = {
    "000": "e26f16ea247f083ffbcfc730372c079151beba35b2f1c285516ad7be99f3e67b",
    "001": "e766becee3aa14a463f9d4fc3ee2602bc473cde94ba0d09b606aaf9712c15f07",
    "004": "67381bdeccf5cc619683f430b91f4eae74cac1c547b2fd06eb5482dbff65a593",
}


@dataclass(frozen=True)
class DocumentListing:
    """One listing.

    name         by which the test calls it.
    document     beginning of the file's name; first, last: its lines there, from 1.
    numbered     whether its lines begin with their numbers.
    levels       a digit for each line that is not empty: its indentation in steps; "": as it is.
    before       our own words above it; after: below it.
    inside       steps by which the whole listing is indented.
    blanks       places that the document leaves to the reader (...), and what we write there.
    arguments    of the program's command line.
    tf1          whether it is written for TensorFlow 1.
    broken       why it cannot run as printed.
    """

    name: str
    document: str
    first: int
    last: int
    numbered: bool = False
    levels: str = ""
    before: str = ""
    after: str = ""
    inside: int = 0
    blanks: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    tf1: bool = False
    broken: str = ""

    def text(self, folder: Path) -> str:
        """The listing alone.

        Raises    ValueError for a document of another version, FileNotFoundError without one.
        """
        rows = _read(folder, self.document).split("\n")[self.first - 1 : self.last]
        if self.numbered:
            rows = [re.sub(rf"^ *{n}", "", row, count=1) for n, row in enumerate(rows, 1)]
        if self.levels:
            digits = iter(self.levels)
            rows = [row.strip() and "    " * int(next(digits)) + row.strip() for row in rows]
        text = "\n".join(rows)
        for hole, filling in self.blanks:
            if hole not in text:
                raise ValueError(f"listing {self.name} has no {hole!r}")
            text = text.replace(hole, filling)
        return text

    def program(self, folder: Path) -> str:
        """The listing as a program."""
        body = textwrap.indent(self.text(folder), "    " * self.inside)
        return "\n".join([textwrap.dedent(self.before), body, textwrap.dedent(self.after)])


def _read(folder: Path, document: str) -> str:
    paths = sorted(folder.glob(f"{document}_*.txt"))
    if not paths:
        raise FileNotFoundError(f"FPSIM_SOURCES={str(folder)!r} holds no document {document}_*.txt")
    data = paths[0].read_bytes()
    if hashlib.sha256(data).hexdigest() != DIGESTS[document]:
        raise ValueError(f"{paths[0].name} is another version; line numbers are those of its first")
    return data.decode("utf-8")
