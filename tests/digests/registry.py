"""Cases by their names, and how what they yield is hashed."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpsim import Array

GOLDEN = Path(__file__).parents[1] / "golden" / "digests.json"
Item = Any
Items = Iterable[Item]


class Case(NamedTuple):
    """A named computation and its tags."""

    compute: Callable[[], Items]
    tags: frozenset[str]


#: Every case, by name.
CASES: dict[str, Case] = {}


def add(name: str, compute: Callable[..., Items], *arguments: Any, tags: str = "") -> None:
    """Register a case; a name is taken once."""
    assert name not in CASES, name
    CASES[name] = Case(partial(compute, *arguments), frozenset(tags.split()))


def digest(items: Items) -> str:
    """SHA-256 of values and shapes.

    >>> digest([np.uint8([1, 2])]) == digest([np.int64([1, 2])]) != digest([1, 2])
    True
    """
    total = hashlib.sha256()
    for item in items:
        total.update(_canonical(item))
    return total.hexdigest()


def _canonical(item: Item) -> bytes:
    """Kind, shape and value as bytes."""
    if isinstance(item, str):
        text = item.encode()
        return b"s%d:" % len(text) + text
    if isinstance(item, (bool, int, np.integer, np.bool_)):
        return b"i%d;" % int(item)
    if isinstance(item, float):
        return b"f" + struct.pack("<d", item)
    if isinstance(item, (tuple, list)):
        return b"(" + b"".join(map(_canonical, item)) + b")"
    codes = item.codes() if isinstance(item, Array) else np.asarray(item)
    if codes.dtype.kind not in "iub":
        raise TypeError(f"{codes.dtype} is not hashed; give codes")
    shape = ",".join(map(str, codes.shape)).encode()
    return b"a" + shape + b":" + np.ascontiguousarray(codes).astype("<u8").tobytes()


def run(name: str) -> str:
    """The digest of a case; numpy's warnings about signalling NaNs are no matter."""
    with np.errstate(all="ignore"):
        return digest(CASES[name].compute())


def golden() -> dict[str, str]:
    """The recorded digests."""
    recorded: dict[str, str] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return recorded
