"""A page of a report as a stranger has it: its sentences, and the data that travel inside."""

from __future__ import annotations

import base64
import csv
import io
import math
import re
from html.parser import HTMLParser

import numpy as np

NUMBER = r"[-+−]?\d[\d\u202f]*(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf"


class PageParser(HTMLParser):
    """Of each section: its answer, the notes of its tables, and its files."""

    def __init__(self):
        super().__init__()
        self.sections, self._section, self._kind = {}, None, ""

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag == "section":
            self._section = self.sections.setdefault(
                named.get("id"), {"answer": "", "lead": "", "files": {}})
        elif tag == "p" and self._section is not None:
            self._kind = named.get("class", "")
        elif tag == "a" and named.get("href", "").startswith("data:"):
            content = base64.b64decode(named["href"].partition("base64,")[2])
            self._section["files"][named["download"]] = content.decode()

    def handle_endtag(self, tag):
        if tag == "p":
            self._kind = ""

    def handle_data(self, data):
        if self._kind in ("answer", "lead"):
            self._section[self._kind] += data


def sections_of(page):
    """(answer, notes, rows) of each experiment on a page, by its name."""
    parser = PageParser()
    parser.feed(page)
    return {
        name: (section["answer"], section["lead"],
               rows_of(section["files"][f"{name}-data.csv"]))
        for name, section in parser.sections.items()
    }


def rows_of(text):
    """Rows of a CSV file: numbers, True and False, else text; without empty cells."""
    return [
        {name: _value(cell) for name, cell in row.items() if cell}
        for row in csv.DictReader(io.StringIO(text))
    ]


def _value(cell):
    if cell in ("true", "false"):
        return cell == "true"
    try:
        return float(cell)
    except ValueError:
        return cell


class Table:
    """Rows by the values of their columns."""

    def __init__(self, rows):
        self.rows = rows

    def where(self, **wanted):
        return [r for r in self.rows if all(r.get(k) == v for k, v in wanted.items())]

    def column(self, name, **wanted):
        return np.array([row[name] for row in self.where(**wanted)])

    def one(self, **wanted):
        (row,) = self.where(**wanted)
        return row

    def values(self, name, **wanted):
        """Different values in the order in which they stand first."""
        return list(dict.fromkeys(r[name] for r in self.where(**wanted) if name in r))


class Reading:
    """A sentence that is read piece by piece, until none of its numbers is left."""

    def __init__(self, text):
        self.text, self.left = text, text

    def opens(self, words):
        """The text begins so."""
        assert self.text.startswith(words), (words, self.text)
        self.left = self.left.replace(words, " ", 1)

    def says(self, pattern, *numbers):
        """The text has this piece; each {} is a number that agrees in all digits that it has."""
        pieces = [re.escape(piece) for piece in pattern.split("{}")]
        expression = f"({NUMBER})".join(pieces)
        match = re.search(expression, self.left)
        assert match, (pattern, self.left)
        assert len(match.groups()) == len(numbers), pattern
        for text, number in zip(match.groups(), numbers, strict=True):
            assert agrees(text, number), (pattern, text, number)
        self.left = self.left[: match.start()] + " | " + self.left[match.end() :]

    def skips(self, *names):
        """Names that have digits and are no numbers."""
        for name in sorted(names, key=len, reverse=True):
            self.left = self.left.replace(name, " ")

    def is_read(self):
        """No number is left."""
        rest = re.findall(rf"(?<![\w.])(?:{NUMBER})(?!\w)", self.left)
        assert not rest, (rest, self.left)


def agrees(text, number):
    """Whether a printed number is this one, rounded to its digits."""
    text = text.replace("−", "-").replace("\u202f", "")
    if not math.isfinite(number):
        return text == f"{number}".replace("+", "")
    digits, _, exponent = text.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(float(text) - number) <= 0.5 * unit * (1 + 1e-6) + 1e-12 * abs(number)


#: Elements whose text is read as one piece.
PIECES = {"p", "li", "h1", "h2", "h3", "td", "th", "pre", "dt", "dd", "summary", "figcaption",
          "div"}
#: Elements whose text nobody reads: pictures have data of their own.
UNREAD = {"svg", "style", "script", "title", "button"}


class WholePage(HTMLParser):
    """Every text of a page in its order, its tables row by row, and the files inside of it.

    texts     (element, class, text) of each piece that is no cell.
    tables    rows of texts, the head first.
    files     by the names that they are stored under.
    """

    def __init__(self, page):
        super().__init__()
        self.texts, self.tables, self.files = [], [], {}
        self._open, self._unread = [], 0
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag in UNREAD:
            self._unread += 1
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in PIECES:
            self._open.append([tag, named.get("class", ""), ""])
        elif tag == "a" and named.get("href", "").startswith("data:"):
            content = base64.b64decode(named["href"].partition("base64,")[2])
            self.files[named["download"]] = content.decode()

    def handle_endtag(self, tag):
        if tag in UNREAD:
            self._unread -= 1
        elif tag in PIECES:
            while self._open[-1][0] != tag:
                self._close()
            self._close()

    def _close(self):
        tag, kind, text = self._open.pop()
        text = " ".join(text.split())
        if tag in ("td", "th"):
            self.tables[-1][-1].append(text)
        elif text:
            self.texts.append((tag, kind, text))

    def handle_data(self, data):
        if self._open and not self._unread:
            self._open[-1][2] += data

    def text(self, begins):
        """The one text that begins so."""
        (text,) = [text for _, _, text in self.texts if text.startswith(begins)]
        return text
