"""Clauses that sentences of causes consist of: what happened in one birth, and where."""

from __future__ import annotations

import math

from ipu.run.births.kinds import (
    CONSTANT,
    DATA_BEYOND,
    DATA_DIGITS,
    DATA_ZERO,
    DIVISION,
    INFINITY,
    NAN,
    OF_OPERANDS,
    ONE,
    SATURATED,
    ZERO,
)
from ipu.run.causes.rows import OF_DATA, Row
from ipu.run.sentences import pass_told, where_told

__all__ = ["clause_of", "module_name", "name_of", "place_of", "share_of"]


def clause_of(row: Row) -> str:
    """What happened in one birth."""
    if row["kind"] == CONSTANT:
        value, bounded = row["operation"], row.get("bounds")
        of_what = f"bound {value} of {name_of({**row, 'operation': bounded})}" if bounded else (
            f"constant {value}")
        rounded = math.copysign(1, float(value))
        what = {"zero": "is zero", ONE: f"is {rounded:g}", "overflow":
                "is beyond the largest number"}
        return f"the {of_what} {what.get(row['detail'], 'changes')} in {row['format']}"
    fmt = row["format"] or "its format"
    if row["kind"] in OF_DATA:
        return _clause_of_data(row, fmt)
    verb = {
        NAN: f"is invalid{' ' + row['detail'] if row['detail'] else ''}",
        INFINITY: f"overflows {fmt}", SATURATED: f"overflows {fmt}",
        DIVISION: f"{_of_zero(row)}{_of_difference(row, fmt)}",
        ZERO: f"underflows to zero in {_of_cast(row)}{fmt}",
    }[row["kind"]]
    return f"{name_of(row)} {verb} ({where_told(row)})"


def _of_cast(row: Row) -> str:
    """Of zeros that are flushed before an operation computes, where."""
    return "the cast of its operands to " if row["detail"] == OF_OPERANDS else ""


def _of_zero(row: Row) -> str:
    """What an operation did with a zero."""
    is_log = "log" in str(row["operation"]).lower()
    return "takes the logarithm of zero" if is_log else "divides by zero"


def _of_difference(row: Row, fmt: str) -> str:
    """What is divided by, where it is a difference."""
    return f", {row['detail']} in {fmt}" if row["detail"] else ""


def _clause_of_data(row: Row, fmt: str) -> str:
    """What the format does to data of the program."""
    what = {
        DATA_BEYOND: f"leave the range of {fmt}: {share_of(row, 'numbers')}, {row['detail']}, are "
                     "beyond its largest one",
        DATA_ZERO: f"underflow in {fmt}: {share_of(row, 'numbers')}, {row['detail']}, become zero",
        DATA_DIGITS: f"lose their digits in {fmt}: {row['detail']} (mean and deviation) are "
                     "rounded by a good part of what they differ by",
    }[row["kind"]]
    reader = row.get("reader") or row["layer"]
    return f"data on entry{f' of {reader}' if reader else ''} {what} ({where_told(row)})"


def name_of(row: Row) -> str:
    """The operation of a birth, and its layer."""
    whole = str(row["operation"]).rstrip("_")  # in place or not
    operation, layer = whole.removeprefix("aten.").lstrip("_"), row["layer"]
    if layer == "optimizer" and "." in operation:  # an optimiser's own name
        return f"the arithmetic of {operation}"
    if layer in ("", "optimizer", row["operation"], whole, operation):
        return f"the {operation}"
    return f"the {operation} of {module_name(str(layer))}"


def module_name(layer: str) -> str:
    """The name of a layer; of one without, as in a sequence, that it is one."""
    return f"module {layer}" if layer.isdigit() else layer


def place_of(row: Row) -> str:
    """The pass and line of an operation."""
    return ", ".join(filter(None, (pass_told(row), row["line"])))


def share_of(row: Row, of: str = "results") -> str:
    """How many of its results, or numbers, a birth is in, as far as that is known."""
    return f"{row['count']:,} of {row['results']:,} {of}" if row["results"] else (
        f"{row['count']:,} {of}"
    )
