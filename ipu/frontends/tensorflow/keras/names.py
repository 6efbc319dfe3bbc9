"""`tensorflow.python.ipu.keras`, which is `tf.keras.ipu` too: layers and optimisers."""

from __future__ import annotations

from ipu.frontends.tensorflow.keras import layers, optimizers

__all__ = ["layers", "optimizers"]

#: The vendor's name is a package; its modules are found by their own names.
__path__: list[str] = []
