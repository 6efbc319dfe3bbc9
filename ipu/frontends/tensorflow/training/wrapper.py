"""An optimiser around another one, as the vendor's optimisers are."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["IpuOptimizer", "applied"]


class IpuOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Computes and applies gradients by another optimiser; subclasses act in between.

    opt    an optimiser of tf.compat.v1.train.

    Raises    TypeError for something else.
    """

    def __init__(self, opt: Any, name: str) -> None:
        if isinstance(opt, type) or not hasattr(opt, "apply_gradients"):
            raise TypeError(
                f"{type(self).__name__}: {opt!r} is not an optimiser; use one of "
                "tf.compat.v1.train, as tf.compat.v1.train.GradientDescentOptimizer(0.1)"
            )
        super().__init__(False, name)
        self._opt = opt

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        """As the inner optimiser's."""
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        """As the inner optimiser's."""
        return applied(self._opt, grads_and_vars, global_step, name)

    def get_slot(self, var: Any, name: str) -> Any:
        """As the inner optimiser's."""
        return self._opt.get_slot(var, name)

    def get_slot_names(self) -> Any:
        """As the inner optimiser's."""
        return self._opt.get_slot_names()

    def variables(self) -> Any:
        """As the inner optimiser's."""
        return self._opt.variables()


def applied(opt: Any, pairs: Any, global_step: Any = None, name: Any = None) -> Any:
    """Apply gradients by an optimiser of either kind: Keras' know no global step."""
    pairs = list(pairs)
    if isinstance(opt, tf.compat.v1.train.Optimizer):
        return opt.apply_gradients(pairs, global_step, name)
    return opt.apply_gradients(pairs)
