"""Checkpoints: a `TrainingState` as one file that is complete or absent, without pickles.

A file is an uncompressed npz: the codes of every array, and `header`, JSON with the rest, the
version of this layout and a SHA-256 over all of it. Equal states give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.state.files import read_arrays, write_whole
from ipu.learn.checkpoint.record import Codes, from_record, to_record
from ipu.learn.checkpoint.state import TrainingState

__all__ = ["VERSION", "check_folder", "load", "save"]

KIND, VERSION = "fpsim checkpoint", 4


def _checked_path(path: Path | str) -> Path:
    """A file's name as a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"path={type(path).__name__} is not a file's name; it comes first: save('f.npz', state)"
        )
    return Path(path)


def save(path: Path | str, state: TrainingState) -> None:
    """Write a state; whatever happens, the file holds the state before or this one.

    Drafts that a killed save has left beside the file are removed.

    Raises    OSError where it cannot be written.
    """
    path = _checked_path(path)
    if not isinstance(state, TrainingState):
        raise TypeError(
            f"state={type(state).__name__} is not a State; give what trainer.state() returns"
        )
    record, arrays = to_record(state)
    header = {"kind": KIND, "version": VERSION, "state": record}
    header["sha256"] = _digest(header, arrays)
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, header=text, **arrays)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, file.getvalue())
    except OSError as error:
        raise OSError(
            f"checkpoint={str(path)!r} could not be written ({error.strerror or error}); what was "
            "there before is still valid"
        ) from error


def check_folder(folder: Path) -> None:
    """Make the folder, and refuse one in which no file can be written.

    Raises    ValueError with the reason.
    """
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(probe, b"")
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"checkpoint={str(folder)!r} is not a folder that can be written to "
            f"({error.strerror or error}); name another one"
        ) from None


def load(path: Path | str) -> TrainingState:
    """The state in a file.

    Raises    ValueError for a file that is missing, cut short, damaged, of another version, or
              without a state.
    """
    path = _checked_path(path)
    header, arrays = _read(path)
    try:
        return from_record(header.get("state"), arrays)
    except ValueError as error:
        raise ValueError(
            f"checkpoint={str(path)!r} holds no state of a training ({error}); use another one, "
            "or start anew"
        ) from None


def _read(path: Path) -> tuple[dict[str, Any], Codes]:
    """Header and codes, checked."""
    try:
        arrays = read_arrays(path, stored_only=True)
        header = _header(arrays)
    except OSError as error:
        raise ValueError(
            f"checkpoint={str(path)!r} cannot be read ({error.strerror or error}); use another "
            "one, or start anew"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"checkpoint={str(path)!r} is cut short, damaged or no checkpoint ({error}); "
            "use another one, or start anew"
        ) from None
    version = header["version"]
    if version != VERSION:
        raise ValueError(
            f"checkpoint={str(path)!r} has version {version}, this fpsim reads {VERSION}; "
            "use the fpsim that wrote it, or start anew"
        )
    if header.pop("sha256", None) != _digest(header, arrays):
        raise ValueError(f"checkpoint={str(path)!r} is damaged: its checksum differs; start anew")
    return header, arrays


def _header(arrays: Codes) -> dict[str, Any]:
    """The header, taken from the arrays.

    Raises    ValueError for anything else.
    """
    if "header" not in arrays:
        raise ValueError("it has no header")
    try:
        header = json.loads(arrays.pop("header").tobytes())
    except RecursionError:
        raise ValueError("its header is nested too deep") from None
    if not isinstance(header, dict) or header.get("kind") != KIND or "version" not in header:
        raise ValueError("its header is not that of a checkpoint")
    return header


def _digest(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        total.update(np.ascontiguousarray(arrays[name]).view(np.uint8).tobytes())
    return total.hexdigest()
