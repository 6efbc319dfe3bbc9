"""`keras.optimizer_v2.optimizer_v2`: the class that Keras 2.6 gives every optimiser.

The optimisers of Keras 2.21 have another one, and `keras.optimizers.legacy` this. An optimiser of
both kinds is an instance here; what derives from this class is an optimiser of the older kind.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2 as _Legacy

__all__ = ["OptimizerV2"]

_KINDS = (_Legacy, tf.keras.optimizers.Optimizer)


class _Kinds(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return issubclass(type(instance), cls)

    def __subclasscheck__(cls, other: type) -> bool:
        kinds = _KINDS if vars(cls).get("stands_for_all") else ()
        return super().__subclasscheck__(other) or issubclass(other, kinds)


class OptimizerV2(_Legacy, metaclass=_Kinds):  # type: ignore[misc]
    """An optimiser of Keras; `isinstance` knows every kind."""

    stands_for_all = True
