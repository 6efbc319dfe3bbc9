"""How records draw themselves in a notebook: HTML without scripts, in the colours of the page.

Pictures take text, lines and bars from `currentColor`, so that they are read in light and in dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Protocol

__all__ = [
    "Drawn", "bars", "bits_of", "draw_format", "number_line", "rounding_intervals", "table",
]

#: Fields of a code, and the colours below their digits: no colour is read on every background.
_FIELDS = {"sign": "#b3462f", "exponent": "#8a6d00", "fraction": "#2b6cb0"}
_WIDTH = 640
#: Formats of more bits have more numbers than a line has places.
_MOST_BITS_OF_A_LINE = 8


class Drawn(Protocol):
    """What a picture of a format needs of it; `Format` says what each is."""

    @property
    def name(self) -> str: ...
    @property
    def exponent_bits(self) -> int: ...
    @property
    def precision(self) -> int: ...
    @property
    def bias(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def nmant(self) -> int: ...
    @property
    def emin(self) -> int: ...
    @property
    def emax(self) -> int: ...
    @property
    def max(self) -> float: ...
    @property
    def eps(self) -> float: ...
    @property
    def smallest_normal(self) -> float: ...
    @property
    def smallest_subnormal(self) -> float: ...
    def ulp(self, x: float) -> float: ...


def table(rows: Mapping[str, object], title: str = "") -> str:
    """Two columns: names and what stands for each.

    >>> table({"eps": 0.5}).count("<tr>"), "0.5" in table({"eps": 0.5})
    (1, True)
    """
    left = 'style="text-align:left"'
    body = "".join(
        f"<tr><th {left}>{escape(str(name))}</th><td {left}>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    caption = f"<caption {left}><b>{escape(title)}</b></caption>" if title else ""
    return f"<table>{caption}{body}</table>"


def bits_of(fmt: Drawn, code: int) -> str:
    """The bits of a code, field by field.

    >>> from fpsim.records.formats import E5M2
    >>> bits_of(E5M2, 0x3C).count("<b"), bits_of(E5M2, 0x3C).count("title")
    (8, 8)
    """
    digits = f"{code:0{fmt.bits}b}"
    names = ["sign"] + ["exponent"] * fmt.exponent_bits + ["fraction"] * fmt.nmant
    return '<code style="font-size:110%">' + "".join(
        f'<b title="{name}" style="border-bottom:3px solid {_FIELDS[name]}">{digit}</b>'
        for name, digit in zip(names, digits, strict=True)
    ) + "</code>"


def _picture(height: int, what: str, marks: Iterable[str]) -> str:
    return (
        f'<svg role="img" aria-label="{escape(what)}" viewBox="0 0 {_WIDTH} {height}" '
        f'style="width:100%;max-width:{_WIDTH}px" font-size="11" fill="currentColor" '
        f'stroke="none">{"".join(marks)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def number_line(fmt: Drawn) -> str:
    """The positive numbers of a small format, or the gap between neighbours by binade.

    Both have a logarithmic scale; below the smallest normal number the gap stays.
    """
    low, high = math.log2(fmt.smallest_subnormal), math.log2(fmt.max)

    def place(value: float) -> float:
        return 20 + (math.log2(value) - low) / max(high - low, 1) * (_WIDTH - 40)

    marks = [
        f'<line x1="20" x2="{_WIDTH - 20}" y1="30" y2="30" stroke="currentColor"/>',
        _text(20, 58, f"{fmt.smallest_subnormal:.3g}", "start"),
        _text(place(1.0), 58, "1") if fmt.smallest_normal < 1.0 < fmt.max / 4 else "",
        _text(_WIDTH - 20, 58, f"{fmt.max:.6g}", "end"),
    ]
    values = _numbers(fmt) if fmt.bits <= _MOST_BITS_OF_A_LINE else _binades(fmt)
    for value in values:
        x, y = f"{place(value):.1f}", 22 if value >= fmt.smallest_normal else 26
        marks.append(f'<line x1="{x}" x2="{x}" y1="{y}" y2="38" stroke="currentColor"/>')
    every = "each a number" if fmt.bits <= _MOST_BITS_OF_A_LINE else "each a power of two"
    marks.append(_text(20, 14, f"positive numbers, {every}; short marks are subnormal", "start"))
    return _picture(64, f"positive numbers of {fmt.name}", marks)


def _numbers(fmt: Drawn) -> list[float]:
    """All positive finite ones."""
    result, value = [], fmt.smallest_subnormal
    while value <= fmt.max:
        result.append(value)
        value += fmt.ulp(value)
    return result


def _binades(fmt: Drawn) -> list[float]:
    """Powers of two, at most eighty of them."""
    first, last = fmt.emin - fmt.precision + 1, fmt.emax
    step = max(1, (last - first) // 80)
    return [math.ldexp(1.0, exponent) for exponent in range(max(first, -1022), last + 1, step)]


def rounding_intervals(fmt: Drawn) -> str:
    """Numbers around 1, and the interval of reals that is rounded to each of them (to nearest).

    Below a power of two the gaps are half as wide. An end of an interval, a tie, belongs to the
    number whose significand is even.

    >>> from fpsim.records.formats import E5M2
    >>> rounding_intervals(E5M2).count("<rect"), "0.9375 to 1.125" in rounding_intervals(E5M2)
    (6, True)
    """
    # In units of the gap below 1: two numbers below it, 1, and three above.
    places = [-2, -1, 0, 2, 4, 6]
    ends = [-2.5, -1.5, -0.5, 1.0, 3.0, 5.0, 7.0]

    def across(place: float) -> float:
        return 20 + (place - ends[0]) / (ends[-1] - ends[0]) * (_WIDTH - 40)

    def number(place: float) -> str:
        return f"{1 + place * fmt.eps / 2:.12g}"

    marks = [_text(20, 12, "around 1: what lies in a band is rounded to its mark; a tie goes to "
                           "the tall mark, which is even", "start")]
    for i, place in enumerate(places):
        left, right = across(ends[i]), across(ends[i + 1])
        marks.append(
            f'<rect x="{left:.1f}" y="22" width="{right - left:.1f}" height="26" '
            f'opacity="{0.1 if i % 2 else 0.25}"><title>{number(ends[i])} to '
            f'{number(ends[i + 1])} is rounded to {number(place)}</title></rect>'
        )
        x, y = f"{across(place):.1f}", 18 if i % 2 == 0 else 28
        marks.append(f'<line x1="{x}" x2="{x}" y1="{y}" y2="52" stroke="currentColor"/>')
    marks += [_text(across(place), 66, number(place)) for place in (0, 2, 4, 6)]
    return _picture(72, f"rounding intervals of {fmt.name} around 1", marks)


def bars(counts: Sequence[tuple[int, int]], fmt: Drawn) -> str:
    """A histogram of exponents, over the range of a format.

    counts    pairs of exponent and how many values have it.

    >>> from fpsim.records.formats import BINARY16
    >>> bars([(0, 3)], BINARY16).count("<rect")
    2
    """
    low, high = fmt.emin - fmt.precision + 1, fmt.emax
    first = min([low, *(exponent for exponent, _ in counts)])
    last = max([high, *(exponent for exponent, _ in counts)])
    step = (_WIDTH - 40) / (last - first + 1)
    most = max((count for _, count in counts), default=1)
    left, width = 20 + (fmt.emin - first) * step, (high - fmt.emin + 1) * step
    marks = [
        f'<rect x="{left:.1f}" y="14" width="{width:.1f}" height="66" opacity="0.1"/>',
        _text(left, 94, f"2^{fmt.emin}"), _text(left + width, 94, f"2^{fmt.emax}"),
        _text(20, 10, "exponents; shaded: normal numbers of the format", "start"),
    ]
    for exponent, count in counts:
        tall = 60 * count / most
        x = 20 + (exponent - first) * step
        marks.append(
            f'<rect x="{x:.1f}" y="{80 - tall:.1f}" width="{max(step - 1, 1):.1f}" '
            f'height="{tall:.1f}"><title>2^{exponent}: {count}</title></rect>'
        )
    return _picture(100, f"exponents beside the range of {fmt.name}", marks)


def draw_format(fmt: Drawn, specials: str) -> str:
    """Bits of one, range and numbers of a format; `specials` says what its other codes are."""
    rows = {
        "bits": f"1 sign, {fmt.exponent_bits} exponent, {fmt.nmant} fraction",
        "largest": f"{fmt.max:.9g}",
        "smallest normal": f"{fmt.smallest_normal:.9g}",
        "smallest subnormal": f"{fmt.smallest_subnormal:.9g}",
        "gap above 1": f"{fmt.eps:.9g}",
        "special codes": specials,
    }
    one = fmt.bias << fmt.nmant
    bits = f"<div>1 = {bits_of(fmt, one)}</div>" if fmt.emin <= 0 <= fmt.emax else ""
    has_room = fmt.emin < 0 and fmt.precision > 2 and fmt.max >= 1 + 4 * fmt.eps
    intervals = rounding_intervals(fmt) if has_room else ""
    return f"<div>{table(rows, fmt.name)}{bits}{number_line(fmt)}{intervals}</div>"
