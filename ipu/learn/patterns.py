"""Patterns of layer names, as policies and loss scales take them: those of file names.

A layer's name is its scope inside the model, as block1/conv, without the scope around the model.

`first2` and `last2` are patterns by order. They mean blocks where a program has two or more: layers
inside of numbered parts, as `blocks.10.attn.qkv` in `blocks.10` or `block1/conv` in `block1`; what
stands outside of blocks, as a head, is none of them. In other programs they mean layers with
weights, one by one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase

__all__ = ["check_patterns", "is_by_order", "matches", "meant"]

_BY_ORDER = re.compile(r"(first|last)([1-9]\d*)")


def matches(layer: str, pattern: str) -> bool:
    """Whether the pattern means the layer of that name.

    >>> matches("block1/conv", "block1/*"), matches("h", "H")
    (True, False)
    """
    return fnmatchcase(layer, pattern)


def is_by_order(pattern: str) -> bool:
    """Whether a pattern means so many layers at one end of a program.

    >>> is_by_order("last2"), is_by_order("last"), is_by_order("blocks.*")
    (True, False, False)
    """
    return _BY_ORDER.fullmatch(pattern) is not None


def meant(pattern: str, layers: Sequence[str]) -> list[str]:
    """The blocks or layers of a pattern by order, among these layers with weights.

    Raises    ValueError where there are fewer.

    >>> names = ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down", "head"]
    >>> meant("last1", names), meant("last1", ["hidden", "output"])
    (['blocks.1'], ['output'])
    """
    side, count = _BY_ORDER.fullmatch(pattern).groups()  # type: ignore[union-attr]
    blocks, n = _blocks(layers), int(count)
    units = blocks or list(dict.fromkeys(layers))
    if not units:
        raise ValueError(f"pattern {pattern!r} finds no layer with weights here; name layers")
    if n > len(units):
        kind = "blocks" if blocks else "layers with weights"
        raise ValueError(
            f"pattern {pattern!r} asks for {n} of {len(units)} {kind} ({', '.join(units)}); use "
            f"{side}1 to {side}{len(units)}, or name layers"
        )
    return units[-n:] if side == "last" else units[:n]


def _blocks(layers: Sequence[str]) -> list[str]:
    """The numbered parts that hold layers, in order; none where there are fewer than two."""
    for is_number in (str.isdigit, _ends_in_number):
        blocks = dict.fromkeys(filter(None, (_part(name, is_number) for name in layers)))
        if len(blocks) > 1:
            return list(blocks)
    return []


def _ends_in_number(part: str) -> bool:
    return part[-1:].isdigit()


def _part(layer: str, is_number: Callable[[str], bool]) -> str:
    """The beginning of a name up to its first numbered part that is not its end."""
    pieces = re.split(r"([./])", layer)
    for end in range(0, len(pieces) - 1, 2):
        if is_number(pieces[end]):
            return "".join(pieces[: end + 1])
    return ""


def check_patterns(argument: str, patterns: Iterable[str], layers: Collection[str]) -> None:
    """Refuse a pattern that no layer matches.

    >>> check_patterns("layers", ["ouput"], ["hidden", "output"])
    Traceback (most recent call last):
    ...
    ValueError: layers='ouput' matches no layer; did you mean 'output'? There are hidden, output
    """
    for pattern in patterns:
        if is_by_order(pattern):
            continue
        if not any(matches(layer, pattern) for layer in layers):
            close = difflib.get_close_matches(pattern, layers, 1)
            hint = f"did you mean {close[0]!r}? There are" if close else "use one of"
            names = ", ".join(sorted(layers)) or "(no layers)"
            raise ValueError(f"{argument}={pattern!r} matches no layer; {hint} {names}")
