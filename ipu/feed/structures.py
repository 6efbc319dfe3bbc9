"""Nested structures: tuples, lists, dictionaries, named tuples and dataclasses around leaves.

A queue handles leaves; the structure of its first element says how they are put together again.

Source    tf.nest, which the documents' queues use; there dictionaries are sorted, here they keep
          the order of the first element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

__all__ = ["LEAF", "Structure", "leaves_of", "rebuild", "structure_of"]


@dataclass(frozen=True)
class Structure:
    """How values are nested.

    kind        tuple, list, dict, a named tuple or a dataclass; None for a leaf.
    keys        positions, keys or names of fields.
    children    one for each key.

    >>> structure_of({"loss": 0.5, "pair": (1, 2)}).paths
    ("['loss']", "['pair'][0]", "['pair'][1]")
    """

    kind: type | None = None
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Where each leaf stands, as Python would write it; empty for a leaf alone."""
        return tuple(self._paths(""))

    def _paths(self, above: str) -> Iterator[str]:
        if self.kind is None:
            yield above
        for key, child in zip(self.keys, self.children, strict=True):
            yield from child._paths(above + self.step(key))

    def step(self, key: Any) -> str:
        """One step of a path."""
        by_index = self.kind in (tuple, list, dict)
        return f"[{key!r}]" if by_index else f".{key}"

    def __str__(self) -> str:
        if self.kind is None:
            return "leaf"
        parts = zip(self.keys, self.children, strict=True)
        return f"{self.kind.__name__}({', '.join(f'{key}: {child}' for key, child in parts)})"


LEAF = Structure()


#: What values of a class are nested as; None where they are leaves.
_KINDS: dict[type, Any] = {}


def _kind(cls: type) -> Any:
    try:
        return _KINDS[cls]
    except KeyError:
        return _KINDS.setdefault(cls, _kind_of_class(cls))


def _kind_of_class(cls: type) -> type | None:
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return cls
    for family in (tuple, list):
        if issubclass(cls, family):
            return family
    if issubclass(cls, Mapping):
        return dict
    return cls if is_dataclass(cls) else None


def _keys(value: Any, kind: Any) -> tuple[Any, ...]:
    if kind in (tuple, list):
        return tuple(range(len(value)))
    if kind is dict:
        return tuple(value)
    if issubclass(kind, tuple):
        return tuple(kind._fields)
    return tuple(field.name for field in fields(kind))


def _child(value: Any, kind: type, key: Any) -> Any:
    return value[key] if kind in (tuple, list, dict) else getattr(value, key)


def structure_of(value: Any) -> Structure:
    """The structure of a value."""
    kind = _kind(type(value))
    if kind is None:
        return LEAF
    keys = _keys(value, kind)
    return Structure(kind, keys, tuple(structure_of(_child(value, kind, key)) for key in keys))


def leaves_of(value: Any, structure: Structure) -> list[Any]:
    """The leaves of a value that has this structure, in its order.

    Raises    TypeError for a value of another structure; the sentence says where it differs.

    >>> leaves_of({"b": 1, "a": 2}, structure_of({"a": 0, "b": 0}))
    [2, 1]
    """
    leaves: list[Any] = []
    _collect(value, structure, "", leaves)
    return leaves


def _collect(value: Any, structure: Structure, path: str, leaves: list[Any]) -> None:
    kind = _kind(type(value))
    if kind is not structure.kind or (kind is not None and not _has_keys(value, structure)):
        raise TypeError(f"it is {structure_of(value)}{f' at {path}' if path else ''}, "
                        f"not {structure}")
    if kind is None:
        leaves.append(value)
        return
    for key, child in zip(structure.keys, structure.children, strict=True):
        item = _child(value, kind, key)
        if child.kind is None and _kind(type(item)) is None:
            leaves.append(item)
        else:
            _collect(item, child, path + structure.step(key), leaves)


def _has_keys(value: Any, structure: Structure) -> bool:
    if structure.kind is dict:
        return len(value) == len(structure.keys) and all(key in value for key in structure.keys)
    return structure.kind not in (tuple, list) or len(value) == len(structure.keys)


def rebuild(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The value of a structure with these leaves; checks in a dataclass's `__post_init__` do not
    run, since they may be about one element and not about a stack of them.

    >>> structure = structure_of([(1, 2), {"a": 3}])
    >>> rebuild(structure, "xyz")
    [('x', 'y'), {'a': 'z'}]
    """
    return _build(structure, iter(leaves))


def _build(structure: Structure, leaves: Iterator[Any]) -> Any:
    kind = structure.kind
    if kind is None:
        return next(leaves)
    children = [_build(child, leaves) for child in structure.children]
    if kind in (tuple, list):
        return kind(children)
    if kind is dict:
        return dict(zip(structure.keys, children, strict=True))
    if issubclass(kind, tuple):
        return kind(*children)
    value = object.__new__(kind)
    for name, child in zip(structure.keys, children, strict=True):
        object.__setattr__(value, name, child)
    return value
