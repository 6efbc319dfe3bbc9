"""Claims of the literature: what was printed, what comes out here, and the verdict.

A claim of numbers is REPRODUCED where every printed digit comes out, one about random numbers where
the whole interval of the measurement lies inside the published one. NOT REPRODUCED needs the same
certainty. Where the source leaves a part of the set-up open, or the interval holds both, the
verdict is CANNOT BE TOLD.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Context, Decimal
from enum import StrEnum
from fractions import Fraction

from ipu.experiments.lab.result import Result, Row, Table, UnitUsed, Value
from ipu.run.verdict import Effect

__all__ = [
    "Claim", "Verdict", "equal", "printed", "published", "same_digits", "tables", "verdicts",
    "within",
]


class Verdict(StrEnum):
    """What a computation says of a claim."""

    REPRODUCED = "REPRODUCED"
    NOT_REPRODUCED = "NOT REPRODUCED"
    CANNOT_BE_TOLD = "CANNOT BE TOLD"


@dataclass(frozen=True)
class Claim:
    """What a source says, and how it was computed again.

    part       the word by which rows name it.
    statement  the claim; in quotation marks where it is the source's own sentence.
    setup      what was computed, with seeds.
    missing    what the source leaves open; then nothing is decided.
    """

    part: str
    statement: str
    source: str
    setup: str
    missing: str = ""


def printed(value: float | Fraction, like: str) -> str:
    """A number with the digits of a printed one.

    >>> printed(0.011944999, "1.1945e-02"), printed(256.0, "256"), printed(-1.25, "-1.3")
    ('1.1945e-02', '256', '-1.2')
    >>> printed(Fraction(2, 3), "0.66666666666666666667")
    '0.66666666666666666667'
    """
    match = re.fullmatch(r"[+-]?(\d+)(?:\.(\d*))?(?:[eE]([+-]?)(\d+))?", like)
    if match is None:
        raise ValueError(f"like={like!r} is no printed number; use digits as 1.25e-03")
    digits = len(match[2] or "")
    number: float | Decimal = value if isinstance(value, float) else _decimal(value)
    if match[4] is None:
        return f"{number:.{digits}f}"
    mantissa, _, exponent = f"{number:.{digits}e}".partition("e")
    sign = "-" if exponent.startswith("-") else match[3].replace("-", "")
    return f"{mantissa}e{sign}{exponent.lstrip('+-0').zfill(len(match[4]))}"


def _decimal(value: Fraction) -> Decimal:
    """A fraction with more digits than anyone prints."""
    return Context(prec=50).divide(Decimal(value.numerator), Decimal(value.denominator))


def same_digits(part: str, quantity: str, text: str, ours: float | Fraction) -> Row:
    """A comparison with a printed number: all of its digits are equal."""
    shown = printed(ours, text)
    return _row(part, quantity, text, shown, shown == text)


def equal(part: str, quantity: str, text: Value, ours: Value) -> Row:
    """A comparison of what is exact: whole numbers, bits, words."""
    return _row(part, quantity, str(text), str(ours), text == ours)


def within(
    part: str, quantity: str, text: str, low: float, high: float, effect: Effect, digits: int = 3
) -> Row:
    """A comparison with an interval: undecided where the measurement's own holds an end of it."""
    is_inside = effect.is_above(low) and effect.is_below(high)
    is_outside = effect.is_below(low) or effect.is_above(high)
    shown = f"{effect.value:.{digits}g}"
    if effect.uncertainty:
        shown += f" ± {effect.uncertainty:.1g}"
    return _row(part, quantity, text, shown, True if is_inside else False if is_outside else None)


def _row(part: str, quantity: str, text: str, ours: str, agrees: bool | None) -> Row:
    words = {True: "yes", False: "no", None: "undecided"}
    # Texts stay texts in a CSV file only where they do not look like numbers.
    return {"row": "comparison", "part": part, "quantity": quantity, "published": f"'{text}",
            "ours": f"'{ours}", "agrees": words[agrees]}


def _verdict(claim: Claim | Mapping[str, str], rows: Iterable[Row]) -> Verdict:
    part, missing = (claim.part, claim.missing) if isinstance(claim, Claim) else (
        claim["part"], claim["missing"])
    agrees = [row["agrees"] for row in rows
              if row.get("row") == "comparison" and row["part"] == part]
    if missing or not agrees or ("undecided" in agrees and "no" not in agrees):
        return Verdict.CANNOT_BE_TOLD
    return Verdict.NOT_REPRODUCED if "no" in agrees else Verdict.REPRODUCED


def published(
    claims: Sequence[Claim], rows: Sequence[Row], sentence: str, policy: str,
    units: tuple[UnitUsed, ...], **parameters: object,
) -> Result:
    """The result of a file of claims: its answer begins with the verdicts.

    rows    comparisons, and what the figure shows beside them.
    """
    words = [
        f"{claim.part}: {_verdict(claim, rows)}" if len(claims) > 1 else str(_verdict(claim, rows))
        for claim in claims
    ]
    about = {"claims": [asdict(claim) for claim in claims], **parameters}
    return Result(rows, f"{'; '.join(words)}. {sentence}", policy, about, units)


def _claims(result: Result) -> list[Mapping[str, str]]:
    listed = result.parameters["claims"]
    assert isinstance(listed, list)
    return listed


def verdicts(result: Result) -> dict[str, Verdict]:
    """The verdict on each claim of a result, fresh or loaded."""
    return {claim["part"]: _verdict(claim, result.rows) for claim in _claims(result)}


def tables(result: Result) -> list[Table]:
    """For each claim: the numbers side by side, the source and the set-up."""
    shown = []
    for claim, verdict in zip(_claims(result), verdicts(result).values(), strict=True):
        rows = result.select(row="comparison", part=claim["part"])
        lines = [
            [str(row["quantity"]), *(str(row[name]).removeprefix("'")
                                     for name in ("published", "ours", "agrees"))]
            for row in rows
        ]
        note = f"{claim['statement']} Source: {claim['source']}. Computed: {claim['setup']}."
        if claim["missing"]:
            note += f" Left open by the source: {claim['missing']}."
        shown.append(
            Table(f"{claim['part']}: {verdict}", ("quantity", "published", "here", "agrees"),
                  lines, note)
        )
    return shown
