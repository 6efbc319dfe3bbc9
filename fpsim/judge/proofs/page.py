"""The table of theorems in `docs/verification.md`, written from recorded verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fpsim.judge.proofs.theorem import ProofVerdict, Theorem

__all__ = ["read", "record", "table", "write"]

#: What the table stands between.
BEGIN, END = "<!-- theorems: fpsim verify proof --page -->", "<!-- end of theorems -->"

Row = dict[str, Any]


def read(path: Path) -> dict[str, Row]:
    """Verdicts that a file holds, by the name of the theorem: one JSON object a line."""
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["name"]: row for row in rows}


def record(path: Path, verdict: ProofVerdict) -> None:
    """Add a verdict to a file."""
    row = {
        "name": verdict.theorem.name, "status": verdict.status,
        "seconds": round(verdict.seconds, 1),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def table(theorems: Iterable[Theorem], verdicts: Mapping[str, Row]) -> str:
    """One row for each kind: how many theorems there are, and what became of them."""
    kinds: dict[str, list[Theorem]] = {}
    for theorem in theorems:
        kinds.setdefault(theorem.kind, []).append(theorem)
    lines = [
        "| kind | what is proved | theorems | verdicts | contracts | longest, s |",
        "|---|---|---:|---|---|---:|",
    ]
    for kind, members in kinds.items():
        rows = [verdicts.get(t.name, {"status": "not run", "seconds": 0.0}) for t in members]
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["status"]] = counts.get(row["status"], 0) + 1
        told = ", ".join(f"{n} {status}" for status, n in counts.items())
        contracts = ", ".join(dict.fromkeys(c for t in members for c in t.contracts)) or "none"
        longest = max(row["seconds"] for row in rows)
        cells = (kind, members[0].about, len(members), told, contracts, f"{longest:.1f}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def write(path: Path, text: str) -> None:
    """Put a table in its place in a page.

    Raises    ValueError where the page has no place for it.
    """
    page = path.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"page={str(path)!r} has no place for the table; give {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
