"""A `TrainingState` as JSON and arrays of codes, and back with every field checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.state.streams import XoroshiroStreams
from ipu.learn.checkpoint.state import Kept, Number, Replica, TrainingState, format_named
from ipu.machine.delayed import DelayedScales

__all__ = ["Codes", "from_record", "to_record"]

Codes = dict[str, NDArray[Any]]

#: Key of the words of the random streams.
_STREAMS = "streams"


def to_record(state: TrainingState) -> tuple[dict[str, Any], Codes]:
    """The state as JSON, and the codes that it refers to."""
    arrays: Codes = {}
    record = asdict(state)
    record |= _packed_fields(state, "", arrays)
    record["replicas"] = [
        asdict(replica) | _packed_fields(replica, f"replicas/{r}/", arrays)
        for r, replica in enumerate(state.replicas, 1)
    ]
    if state.streams is not None:
        arrays[_STREAMS], record["streams"] = state.streams, _STREAMS
    return record, arrays


def _packed_fields(of: TrainingState | Replica, prefix: str, arrays: Codes) -> dict[str, Any]:
    """Parameters and slots; their codes go to the arrays."""
    return {
        "parameters": {
            name: _packed(f"{prefix}parameters/{name}", item, arrays)
            for name, item in of.parameters.items()
        },
        "slots": {
            name: [_packed(f"{prefix}slots/{name}/{i}", x, arrays) for i, x in enumerate(slots)]
            for name, slots in of.slots.items()
        },
    }


def _packed(key: str, item: Any, arrays: Codes) -> Any:
    """Numbers as they are; the codes of values go to the arrays, their key and format stay."""
    if not isinstance(item, Kept):
        return item
    arrays[key] = to_codes(item.values, item.record)
    return {"key": key, "format": item.format}


def from_record(record: Any, arrays: Mapping[str, NDArray[Any]]) -> TrainingState:
    """The state of a record.

    Raises    ValueError that names the first field whose content no `TrainingState` has.
    """
    names = {field.name for field in fields(TrainingState)}
    if not isinstance(record, dict) or record.keys() != names:
        raise ValueError(f"a state has the fields {', '.join(sorted(names))}")
    built, scale = _texts(record, "built"), _texts(record, "loss_scale")
    _check("built", all(isinstance(v, str) for v in built.values()))
    _check("loss_scale", all(_is_moving(v) for v in scale.values()))
    for name in ("position", "step"):
        _check(name, _is_count(record[name]))
    if record["progress"] is not None:
        numbers = _texts(record, "progress").values()
        _check("progress", all(_is_number(v) for v in numbers))
    _check("replicas", isinstance(record["replicas"], list))
    replicas = tuple(_replica(item, arrays) for item in record["replicas"])
    streams = None if record["streams"] is None else _streams(record["streams"], arrays)
    packed = _checked(record, arrays)
    return TrainingState(**{**record, **packed, "replicas": replicas, "streams": streams})


def _replica(record: Any, arrays: Mapping[str, NDArray[Any]]) -> Replica:
    names = {field.name for field in fields(Replica)}
    _check("replicas", isinstance(record, dict) and record.keys() == names)
    return Replica(**{**record, **_checked(record, arrays)})


def _checked(record: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Parameters and slots of a replica, after its registers have been checked."""
    _check("flags", all(_is_count(v) for v in _texts(record, "flags").values()))
    for name in ("operation", "status"):
        _check(name, _is_count(record[name]))
    _check("counts", record["counts"] is None or _are_counts(record["counts"]))
    _check("delayed", _are_scales(_texts(record, "delayed")))
    parameters = {
        name: _values("parameters", item, arrays)
        for name, item in _texts(record, "parameters").items()
    }
    slots = {
        name: tuple(_slot(item, arrays) for item in _items(items))
        for name, items in _texts(record, "slots").items()
    }
    return {"parameters": parameters, "slots": slots}


def _check(field: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{field} is not what a state has there")


def _texts(record: dict[str, Any], name: str) -> dict[str, Any]:
    _check(name, isinstance(record[name], dict))
    content: dict[str, Any] = record[name]
    return content


def _items(items: Any) -> list[Any]:
    _check("slots", isinstance(items, list))
    content: list[Any] = items
    return content


def _slot(item: Any, arrays: Mapping[str, NDArray[Any]]) -> Kept | Number:
    if isinstance(item, dict):
        return _values("slots", item, arrays)
    _check("slots", _is_number(item))
    number: Number = item
    return number


def _values(field: str, item: Any, arrays: Mapping[str, NDArray[Any]]) -> Kept:
    _check(field, isinstance(item, dict) and item.keys() == {"key", "format"})
    _check(field, isinstance(item["key"], str) and item["key"] in arrays)
    codes = arrays[item["key"]]
    try:
        fmt = format_named(item["format"])
    except (ValueError, TypeError, AssertionError):
        raise ValueError(f"{field} has the format {item['format']!r}") from None
    _check(field, codes.dtype.kind == "u" and (codes.size == 0 or int(codes.max()) < fmt.n_codes))
    return Kept(item["format"], from_codes(codes, fmt))


def _streams(key: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint64]:
    _check("streams", key == _STREAMS and key in arrays)
    try:
        return XoroshiroStreams(arrays[key]).states
    except (TypeError, ValueError):
        raise ValueError("streams is not what a state has there") from None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _is_moving(value: Any) -> bool:
    return _is_number(value) or (isinstance(value, list) and all(_is_number(v) for v in value))


def _are_scales(state: dict[str, Any]) -> bool:
    try:
        DelayedScales().load(state)
    except (TypeError, ValueError, IndexError):
        return False
    return True


def _are_counts(rows: Any) -> bool:
    """Rows [tensor, operation, {counter: n}]."""
    return isinstance(rows, list) and all(
        isinstance(row, list) and len(row) == 3
        and isinstance(row[0], str) and isinstance(row[1], str) and isinstance(row[2], dict)
        and all(_is_count(n) for n in row[2].values())
        for row in rows
    )
