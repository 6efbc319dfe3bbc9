"""Sums and means of codes in every order, addition by addition; used by tests only.

Written from the text of docs/semantics.md §2 (places) and §4 (orders) and nothing else.

Source    docs/semantics.md §2 and §4; IEEE 754-2019 §6.3 (the sign of a zero sum).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from fpsim.judge.oracle.operations import created_nan, nan_flags, operate, read, zero_sum_sign
from fpsim.judge.oracle.rounding import OracleSettings, encode, infinity, round_real
from fpsim.records.flags import Flags
from fpsim.records.formats import Format

__all__ = ["ORDERS", "Adder", "mean_of", "sum_of"]

#: The choices at a rounding place: its random word is in them.
At = Callable[[int], OracleSettings]


class Adder:
    """Additions in one format; the flags of all of them."""

    def __init__(self, fmt: Format, at: At) -> None:
        self.format, self.at = fmt, at
        self.flags = Flags.NONE

    def two(self, operation: str, x: int, y: int, place: int) -> int:
        code, flags = operate(operation, (x, y), self.format, self.at(place))
        self.flags |= flags
        return code

    def sequential(self, codes: Sequence[int], block: int = 0, first: int = 0) -> int:
        s = codes[0]
        for j, x in enumerate(codes[1:], 1):
            s = self.two("add", s, x, first + j - 1)
        return s

    def blocked(self, codes: Sequence[int], block: int) -> int:
        starts = range(0, len(codes), block)
        sums = [self.sequential(codes[i : i + block], first=i) for i in starts]
        s = sums[0]
        for i, x in enumerate(sums[1:], 1):
            s = self.two("add", s, x, i * block - 1)
        return s

    def pairwise(self, codes: Sequence[int], block: int = 0, first: int = 0) -> int:
        if len(codes) == 1:
            return codes[0]
        half = 1 << (len(codes) - 1).bit_length() - 1
        left = self.pairwise(codes[:half], first=first)
        right = self.pairwise(codes[half:], first=first + half)
        return self.two("add", left, right, first + half - 1)

    def kahan(self, codes: Sequence[int], block: int = 0) -> int:
        s, c = codes[0], 0
        for j, x in enumerate(codes[1:]):
            y = self.two("subtract", x, c, 4 * j)
            t = self.two("add", s, y, 4 * j + 1)
            c = self.two("subtract", self.two("subtract", t, s, 4 * j + 2), y, 4 * j + 3)
            s = t
        return s

    def exact(self, codes: Sequence[int], block: int = 0) -> int:
        """One rounding of the exact sum; infinities and NaNs alone decide where there are any."""
        fmt, s = self.format, self.at(0)
        data = [read(code, fmt, s) for code in codes]
        if any(d.kind != "finite" for d in data):
            pairs = zip(codes, data, strict=True)
            return self.sequential([0 if d.kind == "finite" else code for code, d in pairs])
        total = sum((d.value for d in data), Fraction(0))
        signs = {d.sign for d in data} if all(d.is_zero for d in data) else {0, 1}
        zero_sign = zero_sum_sign(min(signs), max(signs), s)
        code, flags = round_real(total, fmt, s, zero_sign)
        self.flags |= flags
        return code

    def one(self, code: int) -> int:
        """A single element: itself, as it is read."""
        s = self.at(0)
        d = read(code, self.format, s)
        self.flags |= nan_flags([d], s)
        return encode(d.sign, Fraction(0), self.format) if d.is_zero else code


#: The orders by name: codes and the length of a block to the code of the sum.
ORDERS = ("sequential", "pairwise", "blocked", "kahan", "exact")


def sum_of(
    order: str, codes: Sequence[int], fmt: Format, at: At, block: int = 256
) -> tuple[int, Flags]:
    """Code and flags of a sum; `at` gives the choices at each rounding place.

    >>> from fpsim.records.formats import BINARY16
    >>> code, flags = sum_of("exact", (0x8000, 0x8000), BINARY16, lambda place: OracleSettings())
    >>> hex(code), flags
    ('0x8000', <Flags.NONE: 0>)
    """
    adder = Adder(fmt, at)
    if not codes:
        return 0, Flags.NONE
    if len(codes) == 1:
        return adder.one(codes[0]), adder.flags
    return getattr(adder, order)(codes, block=block), adder.flags


def mean_of(
    order: str, codes: Sequence[int], fmt: Format, at: At, block: int = 256
) -> tuple[int, Flags]:
    """Code and flags of a mean: the sum, divided once by the number of elements."""
    n = len(codes)
    if not n:
        return created_nan(fmt, at(0))
    total, flags = sum_of(order, codes, fmt, at, block)
    s = at({"kahan": 4 * (n - 1), "exact": 1}.get(order, n - 1))
    d = read(total, fmt, s)
    if d.kind == "infinite":
        return infinity(d.sign, fmt), flags
    if d.kind == "nan":
        return operate("divide", (total, total), fmt, s)[0], flags | nan_flags([d], s)
    code, raised = round_real(d.value / n, fmt, s, d.sign)
    return code, flags | raised
