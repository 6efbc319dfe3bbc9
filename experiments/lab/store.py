"""Where results live: FOLDER/NAME/{data.csv, meta.json, figure.png, figure.svg}, each whole.

machine.csv stands beside them where an experiment has rows that another machine would not repeat;
data.csv holds the others, so it is the same everywhere. Files of a result (slots.json, trace.json)
and pictures to zoom (picture-1.svg, …) stand there too.

meta.json is written last of the data and carries the SHA-256 of each file, so a run that was
interrupted before is seen as unfinished, and one that was interrupted while drawing can be drawn
again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fpsim.state.files import check_room, write_whole
from ipu.experiments.lab.result import Result, Row, UnitUsed, rows_from_csv, to_csv

DATA, LOCAL, META, FIGURE = "data.csv", "machine.csv", "meta.json", "figure.png"
#: The figure as pages show it.
VECTOR = "figure.svg"
#: Bytes that a folder must take before any work begins: data and description of a small result.
_ROOM = 1 << 16
#: Names that files of a result may have, beside those above.
PLAIN = re.compile(r"[a-z][a-z0-9_-]*\.(json|csv|txt)")
#: Pictures to zoom, numbered from 1.
PICTURE = "picture-{}.svg"


def check_writable(folder: Path) -> None:
    """Make the folder and try it, so that an unwritable place is known before any work.

    Raises    ValueError when the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_room(folder, _ROOM)
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(
            f"out={str(folder)!r} cannot be written to ({reason}); choose another"
        ) from None


def save_data(folder: Path, result: Result, about: Mapping[str, object]) -> None:
    """Publish rows, files and description; what an older result drew and added goes away first.

    Raises    ValueError for a file whose name is taken or not plain; OSError where the disk is
              full, before anything is changed.
    """
    data, local = to_csv(result.rows).encode(), to_csv(result.local).encode()
    files = {_checked(name): text.encode() for name, text in result.files.items()}
    folder.mkdir(parents=True, exist_ok=True)
    meta = {
        **about,
        "answer": result.answer,
        "policy": result.policy,
        "units": [asdict(unit) for unit in result.units],
        "parameters": dict(result.parameters),
        "data_sha256": hashlib.sha256(data).hexdigest(),
        "files_sha256": {name: hashlib.sha256(text).hexdigest() for name, text in files.items()},
    }
    text = json.dumps(meta, indent=2, ensure_ascii=False, default=str) + "\n"
    # A disk that is full must not cost the older result its figure.
    check_room(folder, sum(map(len, (data, local, *files.values()))) + 4 * len(text))
    drawn = (folder / FIGURE, folder / VECTOR, *pictures(folder))
    for old in (*drawn, folder / LOCAL, *_files_of(folder)):
        old.unlink(missing_ok=True)
    write_whole(folder / DATA, data)
    for name, content in files.items():
        write_whole(folder / name, content)
    if result.local:
        write_whole(folder / LOCAL, local)
    write_whole(folder / META, text.encode())


def _checked(name: str) -> str:
    """The name of a file of a result.

    Raises    ValueError for one that is not plain, or that the store uses itself.
    """
    if not PLAIN.fullmatch(name) or name in (DATA, LOCAL, META):
        raise ValueError(
            f"files has the name {name!r}; use small letters, digits, - and _, with the ending "
            f".json, .csv or .txt, and none of {DATA}, {LOCAL}, {META}"
        )
    return name


def pictures(folder: Path) -> list[Path]:
    """Pictures to zoom in a folder, in order."""
    return sorted(folder.glob(PICTURE.format("*")), key=lambda path: (len(path.name), path.name))


def _files_of(folder: Path) -> list[Path]:
    """Files that an older description in the folder names."""
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        return [folder / name for name in meta["files_sha256"] if PLAIN.fullmatch(name)]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # no older result, or none that can be read


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
        files = _load_files(folder, meta.get("files_sha256", {}))
        return _result(data.decode(), meta, _local(folder), files), meta
    except DamagedError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{META} lacks a part ({error!r})") from None


def _load_files(folder: Path, hashes: Mapping[str, str]) -> dict[str, str]:
    """The files that a description names, as it describes them."""
    files = {}
    for name, sha256 in hashes.items():
        try:
            content = (folder / _checked(name)).read_bytes()
        except OSError as error:
            raise DamagedError(f"{name} cannot be read ({error.strerror})") from None
        if hashlib.sha256(content).hexdigest() != sha256:
            raise DamagedError(f"{name} is not the file that {META} describes")
        files[name] = content.decode()
    return files


def _result(
    data: str, meta: Mapping[str, Any], local: list[Row], files: Mapping[str, str]
) -> Result:
    return Result(
        rows_from_csv(data),
        meta["answer"],
        meta["policy"],
        meta["parameters"],
        tuple(UnitUsed(**unit) for unit in meta["units"]),
        local,
        files,
    )


def _local(folder: Path) -> list[Row]:
    try:
        return rows_from_csv((folder / LOCAL).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
