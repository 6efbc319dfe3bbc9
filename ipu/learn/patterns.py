"""Patterns of layer names, as policies and loss scales take them: those of file names.

A layer's name is its scope inside the model, as block1/conv, without the scope around the model.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

__all__ = ["check_patterns", "matches"]


def matches(layer: str, pattern: str) -> bool:
    """Whether the pattern means the layer of that name.

    >>> matches("block1/conv", "block1/*"), matches("h", "H")
    (True, False)
    """
    return fnmatchcase(layer, pattern)


def check_patterns(argument: str, patterns: Iterable[str], layers: Collection[str]) -> None:
    """Refuse a pattern that no layer matches.

    >>> check_patterns("layers", ["ouput"], ["hidden", "output"])
    Traceback (most recent call last):
    ...
    ValueError: layers='ouput' matches no layer; did you mean 'output'? There are hidden, output
    """
    for pattern in patterns:
        if not any(matches(layer, pattern) for layer in layers):
            close = difflib.get_close_matches(pattern, layers, 1)
            hint = f"did you mean {close[0]!r}? There are" if close else "use one of"
            names = ", ".join(sorted(layers)) or "(no layers)"
            raise ValueError(f"{argument}={pattern!r} matches no layer; {hint} {names}")
