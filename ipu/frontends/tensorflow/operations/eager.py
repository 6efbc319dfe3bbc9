"""`tensorflow.python.ipu.eager`: the package of `backprop`."""

from __future__ import annotations

from ipu.frontends.tensorflow.operations import capture as backprop

__all__ = ["backprop"]

#: The vendor's name is a package; its module is found by its own name.
__path__: list[str] = []
