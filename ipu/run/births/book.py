"""The book of births: they are entered by kind and place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fpsim.records.formats import Format
from fpsim.state.counts import FlushedNumbers
from ipu.run.births.birth import Birth
from ipu.run.births.kinds import ABSORBED, CONSTANT, DIVISION, INFINITY, NAN, ONE, SATURATED
from ipu.run.births.last_sums import LastSums, Place

__all__ = ["Book"]


class Book:
    """Births by kind and place, in order of time, and where the program is now.

    >>> book = Book()
    >>> birth = book.born(DIVISION, ("net", "forward", 0), "div", None, 2, 4, (), "")
    >>> birth is book.born(DIVISION, ("net", "forward", 1), "div", None, 1, 4, (), "")
    True
    >>> [(row["step"], row["count"], row["results"]) for row in book.rows()]
    [(0, 3, 8)]
    """

    def __init__(self) -> None:
        self._births: dict[tuple[str, ...], Birth] = {}
        #: The last results of additions.
        self.sums = LastSums()
        #: Elements that operations carried on, by kind.
        self.carried: Counter[str] = Counter()
        #: What is told of the direction now; "": its name.
        self.phase = ""
        #: What was invalid inside of the operation now, as sqrt of an optimiser's; "": itself.
        self.invalid = ""
        #: Conversions with underflows inside of it, to other formats than its result's.
        self.casts: Sequence[FlushedNumbers] = ()
        #: What is computed now updates a parameter: `Updates` has the terms that it loses.
        self.is_update = False
        #: The line of the user's program now, and its layer, direction and step.
        self.line: Callable[[], str] = str
        self.where: Callable[[], tuple[str, str, int]] = lambda: ("", "forward", 0)

    def __iter__(self) -> Iterator[Birth]:
        return iter(self._births.values())

    def rows(self) -> list[dict[str, Any]]:
        """The births as plain data, in order of time."""
        return [birth.as_row() for birth in self]

    def place(self, operation: str, where: tuple[str, str, int]) -> Place:
        """What is told apart of operations: name, layer, direction and line."""
        layer, direction, _ = where
        return operation, layer, direction, self.line()

    def constant(
        self, where: tuple[str, str, int], fmt: Format, value: float, change: str, line: str = ""
    ) -> Birth:
        """A number of the program is another one in its format.

        One that is 1 then is no birth before it leads to one.
        """
        if change != ONE:
            return self.born(CONSTANT, where, repr(float(value)), fmt, 1, 1, (), change, line)
        layer, direction, step = where
        return Birth(
            CONSTANT, step, layer, direction, repr(float(value)), fmt.name, change, 1, 1,
            lines=Counter((line,)), phase=self.phase)

    def untold(self, verb: str, where: tuple[str, str, int], flag: str, n: int) -> None:
        """An operation whose result nobody told raised a flag on so many elements.

        Invalid operations may have read a NaN: they are births where there was none before.
        """
        kind = {"OVERFLOW": SATURATED, "DIVBYZERO": DIVISION, "INVALID": NAN}.get(flag)
        if kind is None or (kind == NAN and any(b.kind in (NAN, INFINITY) for b in self)):
            return
        birth = self.born(kind, where, verb, None, n, 0, (), "")
        birth.spread += 1

    def told(self, birth: Birth) -> Birth:
        """A constant that has led to a birth is told as one."""
        key = birth.kind, birth.layer, birth.direction, birth.operation, birth.format
        if key not in self._births:
            birth.number = len(self._births)
        return self._births.setdefault(key, birth)

    def born(
        self, kind: str, where: tuple[str, str, int], operation: str, fmt: Format | None, n: int,
        results: int, causes: tuple[Birth, ...], detail: str, line: str | None = None,
    ) -> Birth:
        """So many of an operation's results are born; the birth that they count in."""
        layer, direction, step = where
        name = "" if fmt is None else fmt.name
        key = kind, layer, direction, operation, name
        birth = self._births.get(key)
        if birth is None:
            birth = self._births[key] = Birth(
                kind, step, layer, direction, operation, name, detail,
                number=len(self._births), causes=causes, phase=self.phase,
            )
        birth.count += n
        birth.results += results
        if kind == ABSORBED or step == birth.step:
            birth.lines[line or self.line()] += n
        return birth
