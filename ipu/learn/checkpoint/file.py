"""Checkpoints: a `State` as one file that is complete or absent, without pickles.

A file is an uncompressed npz: the codes of every array, and `header`, JSON with the rest, the
version of this layout and a SHA-256 over all of it. Equal states give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.state.files import read_arrays, write_whole
from ipu.learn.checkpoint.state import Kept, State, format_named

__all__ = ["VERSION", "load", "save"]


KIND, VERSION = "fpsim checkpoint", 1


Codes = dict[str, NDArray[Any]]


def save(path: Path, state: State) -> None:
    """Write a state; whatever happens, the file holds the state before or this one.

    Raises    OSError where it cannot be written.
    """
    arrays: Codes = {}
    record = asdict(state)
    record["parameters"] = {
        name: _packed(f"parameters/{name}", kept, arrays) for name, kept in state.parameters.items()
    }
    record["slots"] = {
        name: [_packed(f"slots/{name}/{i}", item, arrays) for i, item in enumerate(slots)]
        for name, slots in state.slots.items()
    }
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


def load(path: Path) -> State:
    """The state in a file.

    Raises    ValueError for a file that is missing, cut short, damaged, or of another version.
    """
    header, arrays = _read(path)
    record = header["state"]
    parameters = {n: _unpacked(path, i, arrays) for n, i in record["parameters"].items()}
    slots = {
        name: tuple(_unpacked(path, item, arrays) for item in items)
        for name, items in record["slots"].items()
    }
    return State(**{**record, "parameters": parameters, "slots": slots})


def _packed(key: str, item: Any, arrays: Codes) -> Any:
    """Numbers as they are; the codes of values go to the arrays, their key and format stay."""
    if not isinstance(item, Kept):
        return item
    arrays[key] = to_codes(item.values, item.record)
    return {"key": key, "format": item.format}


def _unpacked(path: Path, item: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if not isinstance(item, dict):
        return item
    return Kept(item["format"], from_codes(arrays[item["key"]], format_named(item["format"])))


def _read(path: Path) -> tuple[dict[str, Any], Codes]:
    """Header and codes, checked."""
    try:
        arrays = read_arrays(path)
        header = json.loads(arrays.pop("header").tobytes())
        version = header["version"] if header["kind"] == KIND else None
    except OSError as error:
        raise ValueError(f"checkpoint={str(path)!r} cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"checkpoint={str(path)!r} is cut short, damaged or no checkpoint ({error}); "
            "use another one, or start anew"
        ) from None
    if version != VERSION:
        raise ValueError(
            f"checkpoint={str(path)!r} has version {version}, this fpsim reads {VERSION}; "
            "use the fpsim that wrote it, or start anew"
        )
    if header.pop("sha256", None) != _digest(header, arrays):
        raise ValueError(f"checkpoint={str(path)!r} is damaged: its checksum differs; start anew")
    return header, arrays


def _digest(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        total.update(np.ascontiguousarray(arrays[name]).view(np.uint8).tobytes())
    return total.hexdigest()
