"""Optimisers of Keras around another one: gradients changed before it applies them.

Source    graphcore/tensorflow, tensorflow/python/ipu/keras/optimizers: names and arguments.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.training.cross_replica import cross_replica_mean
from ipu.frontends.tensorflow.training.map_gradient import (
    Mapping,
    Pairs,
    checked_mapping,
    mapped,
)

__all__ = ["CrossReplicaOptimizer", "MapGradientOptimizer", "Wrapper"]


class Wrapper(tf.keras.optimizers.Optimizer):  # type: ignore[misc]
    """Computes and applies gradients by another optimiser of Keras, whose state it shares.

    Raises    TypeError for another kind of optimiser.
    """

    def __init__(self, opt: Any, name: str) -> None:
        if not isinstance(opt, tf.keras.optimizers.Optimizer):
            raise TypeError(
                f"opt={opt!r} is not an optimiser of Keras; use one of tf.keras.optimizers"
            )
        super().__init__(name=name)
        self._opt = opt

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Pairs:
        """As the inner optimiser's."""
        pairs: Pairs = self._opt.compute_gradients(loss, var_list, tape)
        return pairs

    def apply_gradients(self, grads_and_vars: Any, **named: Any) -> Any:
        """As the inner optimiser's."""
        return self._opt.apply_gradients(list(grads_and_vars), **named)

    def build(self, var_list: Any) -> None:
        """Make the slots of the inner optimiser."""
        self._opt.build(var_list)

    @property
    def learning_rate(self) -> Any:
        """Of the inner optimiser."""
        return self._opt.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self._opt.learning_rate = value

    @property
    def iterations(self) -> Any:
        """Updates so far, of the inner optimiser."""
        return self._opt.iterations

    @property
    def variables(self) -> list[Any]:
        """Of the inner optimiser, after its own."""
        return [*self._variables, *self._opt.variables]

    def get_config(self) -> dict[str, Any]:
        """What `from_config` builds the optimiser from."""
        inner = tf.keras.optimizers.serialize(self._opt)
        return {"opt": inner, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """An optimiser as `get_config` describes it."""
        named = dict(config)
        opt = tf.keras.optimizers.deserialize(named.pop("opt"), custom_objects)
        return cls(opt, **named)


class CrossReplicaOptimizer(Wrapper):
    """Averages gradients over replicas before the inner optimiser applies them."""

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def apply_gradients(self, grads_and_vars: Any, **named: Any) -> Any:
        """Average, then apply."""
        averaged = [(None if g is None else cross_replica_mean(g), v) for g, v in grads_and_vars]
        return super().apply_gradients(averaged, **named)


class MapGradientOptimizer(Wrapper):
    """Changes each gradient by a function of it and its variable.

    gradient_mapping_function    takes a gradient and its variable; returns the new gradient.
    """

    def __init__(
        self, wrapped_optimizer: Any, gradient_mapping_function: Mapping,
        name: str = "MapGradientOptimizer",
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        self._map = checked_mapping(gradient_mapping_function)

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Pairs:
        """The inner optimiser's gradients, mapped; variables without one keep None."""
        return mapped(self._map, super().compute_gradients(loss, var_list, tape))

    def get_config(self) -> dict[str, Any]:
        """Refused: a function has no configuration.

        Raises    NotImplementedError.
        """
        raise NotImplementedError("gradient_mapping_function cannot be saved in a configuration")
