"""Where results live: FOLDER/NAME/{data.csv, meta.json, figure.png}, each whole or not there.

machine.csv stands beside them where an experiment has rows that another machine would not repeat;
data.csv holds the others, so it is the same everywhere.

meta.json is written after data.csv and carries its SHA-256, so a run that was interrupted between
the two is seen as unfinished, and one that was interrupted while drawing can be drawn again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fpsim.state.files import write_whole
from ipu.experiments.lab.result import Result, Row, UnitUsed, rows_from_csv, to_csv

DATA, LOCAL, META, FIGURE = "data.csv", "machine.csv", "meta.json", "figure.png"


def check_writable(folder: Path) -> None:
    """Make the folder and try it, so that an unwritable place is known before any work.

    Raises    ValueError when the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(
            f"out={str(folder)!r} cannot be written to ({reason}); choose another"
        ) from None


def save_data(folder: Path, result: Result, about: Mapping[str, object]) -> None:
    """Publish rows and description; a figure of an older result goes away first."""
    folder.mkdir(parents=True, exist_ok=True)
    data, local = to_csv(result.rows).encode(), to_csv(result.local).encode()
    meta = {
        **about,
        "answer": result.answer,
        "policy": result.policy,
        "units": [asdict(unit) for unit in result.units],
        "parameters": dict(result.parameters),
        "data_sha256": hashlib.sha256(data).hexdigest(),
    }
    text = json.dumps(meta, indent=2, ensure_ascii=False, default=str) + "\n"
    for old in (FIGURE, LOCAL):
        (folder / old).unlink(missing_ok=True)
    write_whole(folder / DATA, data)
    if result.local:
        write_whole(folder / LOCAL, local)
    write_whole(folder / META, text.encode())


class DamagedError(ValueError):
    """A folder with a result that is not complete; its text says which file and why."""


def load(folder: Path) -> tuple[Result, dict[str, object]] | None:
    """A stored result with its description; None where there is none.

    Raises    DamagedError for a damaged description, and for data that are not the described ones
              (a run was interrupted between the two).
    """
    if not (folder / META).exists():
        return None
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedError(f"{META} cannot be read ({error})") from None
    try:
        data = (folder / DATA).read_bytes()
    except OSError as error:
        raise DamagedError(f"{DATA} cannot be read ({error.strerror})") from None
    if not isinstance(meta, dict) or meta.get("data_sha256") != hashlib.sha256(data).hexdigest():
        raise DamagedError(f"{DATA} is not the file that {META} describes")
    try:
        return _result(data.decode(), meta, _local(folder)), meta
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{META} lacks a part ({error!r})") from None


def _result(data: str, meta: Mapping[str, Any], local: list[Row]) -> Result:
    return Result(
        rows_from_csv(data),
        meta["answer"],
        meta["policy"],
        meta["parameters"],
        tuple(UnitUsed(**unit) for unit in meta["units"]),
        local,
    )


def _local(folder: Path) -> list[Row]:
    try:
        return rows_from_csv((folder / LOCAL).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
