"""Layers: the names under which a reader finds what nodes did.

A node's scope is that of its forward node, without loops and gradients (engine.node). Its layer is

    the scope of a variable that ends a beginning of the node's scope: `sequential/dense/Tensordot`
    belongs to the layer `dense`, which has `dense/kernel`; numbers that TensorFlow adds when a
    scope is opened again do not count, so `conv_1` belongs to `conv`;
    else the node's scope, without the model's name: `sequential/flatten` is `flatten`.

Source    docs/tensorflow.md (the report).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["OPTIMIZER", "ScopeLayers", "layer_of_variable"]

#: The layer of what an optimiser computes.
OPTIMIZER = "optimizer"
_AGAIN = re.compile(r"_\d+(?=/|$)")


def layer_of_variable(name: str) -> str:
    """The layer of a variable: its scope, or its own name where it has none.

    >>> layer_of_variable("net/dense/kernel"), layer_of_variable("w")
    ('net/dense', 'w')
    """
    return name.rpartition("/")[0] or name


class ScopeLayers:
    """The layers of a program's scopes.

    variables    names of the variables of the program.

    >>> layers = ScopeLayers(["sequential/dense/Tensordot", "sequential/flatten"], ["dense/kernel"])
    >>> layers["sequential/dense/Tensordot"], layers["sequential/flatten"]
    ('dense', 'flatten')
    """

    def __init__(self, scopes: Iterable[str], variables: Iterable[str]) -> None:
        self._scopes = {name.rpartition("/")[0] for name in variables} - {""}
        self._layers: dict[str, str] = {}
        others, models = [], set()
        for scope in dict.fromkeys(scopes):
            model, layer = self._of_variable(scope)
            if layer:
                self._layers[scope] = layer
                models.add(model)
            else:
                others.append(scope)
        for scope in others:
            inside = [model for model in models - {""} if scope.startswith(model)]
            self._layers[scope] = scope.removeprefix(max(inside, key=len, default=""))

    def __getitem__(self, scope: str) -> str:
        return self._layers.get(scope, scope)

    def _of_variable(self, scope: str) -> tuple[str, str]:
        """What stands before the layer in a scope, and the layer; "" where no variable is."""
        for name in (scope, _AGAIN.sub("", scope)):
            parts = name.split("/")
            for end in range(1, len(parts) + 1):
                for start in range(end):
                    layer = "/".join(parts[start:end])
                    if layer in self._scopes:
                        return "".join(f"{part}/" for part in parts[:start]), layer
        return "", ""
