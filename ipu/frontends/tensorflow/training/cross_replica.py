"""Sums and means over replicas, and the optimiser that averages gradients with them.

On one replica the sum is its operand. On several, the machine adds in the order that
`ipu.plan.orders` declares for its ring, then multiplies once by 1/R rounded to the format.

Source    graphcore/tensorflow, tensorflow/python/ipu/ops/cross_replica_ops.py,
          optimizers/cross_replica_optimizer.py; docs/semantics.md §9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.engine.machine import EVALUATION, Machine
from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.frontends.tensorflow.training.gathering import of_all
from ipu.frontends.tensorflow.training.wrapper import IpuOptimizer, applied
from ipu.plan.orders import additions, parts

__all__ = ["CrossReplicaOptimizer", "cross_replica_mean", "cross_replica_sum"]


def cross_replica_sum(
    x: Any, replica_group_size: int | None = None, name: str | None = None
) -> Any:
    """The sum of a tensor over all replicas, or over groups of neighbours.

    replica_group_size    replicas of a group; None: all.
    """
    return _reduced(x, "CrossReplicaSum", replica_group_size, name)


def cross_replica_mean(
    x: Any, replica_group_size: int | None = None, name: str | None = None
) -> Any:
    """The mean of a tensor over all replicas, or over groups of neighbours."""
    return _reduced(x, "CrossReplicaMean", replica_group_size, name)


def _reduced(x: Any, composite: str, group: int | None, name: str | None) -> Any:
    if group is not None and group < 1:
        raise ValueError(f"replica_group_size={group} is not a number of replicas; use 1 or more")
    x = tf.convert_to_tensor(x)
    with marked(kernel=composite, group=group or 0, direction="optimizer"):
        result = tf.numpy_function(np.asarray, [x], x.dtype, name=name or composite)
    result.set_shape(x.shape)
    return result


class CrossReplicaOptimizer(IpuOptimizer):
    """Averages gradients over replicas before the inner optimiser applies them."""

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        """Average, then apply."""
        averaged = [
            (None if gradient is None else cross_replica_mean(gradient), variable)
            for gradient, variable in grads_and_vars
        ]
        return applied(self._opt, averaged, global_step, name)


# The machine ------------------------------------------------------------------------------------


def _joint(composite: str, is_mean: bool) -> None:
    rounding = "each addition once, in the ring's order" + ("; the mean once" if is_mean else "")

    @kernel(composite, rounding=rounding, is_any=True, keeps=True, is_joint=True)
    def build(site: NodeSite) -> Run:
        def run(inputs: Sequence[Sequence[Any]]) -> list[Any]:
            machine = site.machine
            values = of_all(machine, [x for (x,) in inputs], site.node.name)
            size = site.node.marks["group"] or len(values)
            if len(values) % size:
                raise ValueError(
                    f"replica_group_size={size} does not divide the {len(values)} replicas"
                )
            results: list[Any] = []
            for first in range(0, len(values), size):
                total = _sum(site, values[first : first + size])
                if is_mean and size > 1:
                    total = ops.multiply.value(
                        site.device, total, site.constant(1 / size, total.format)
                    )
                results += [total] * size
            return results[machine.first_replica :][: len(inputs)]

        return run


_joint("CrossReplicaSum", is_mean=False)
_joint("CrossReplicaMean", is_mean=True)


def _sum(site: NodeSite, values: Sequence[Any]) -> Any:
    """The sum of one group, chunk by chunk in the ring's order."""
    first, replicas = values[0], len(values)
    if replicas == 1:
        return first
    if not isinstance(first, Array):
        return np.sum(np.stack(values), axis=0, dtype=first.dtype)
    _place(site.machine, site.node.name)
    flat = [value.reshape(-1) for value in values]
    total = np.empty(first.size, first.format.carrier)
    order = site.machine.replica_set.order
    for part in parts(order, replicas, first.size, first.storage_bytes):
        operands = [x[part.start : part.stop] for x in flat]
        for addition in additions(part.tree):
            pair = operands[addition.left], operands[addition.right]
            operands.append(ops.add.value(site.device, *pair))
        total[part.start : part.stop] = operands[-1].carrier
    return site.device.context(first.format).wrap(total.reshape(first.shape), copy=False)


def _place(machine: Machine, name: str) -> None:
    """Replicas draw equal bits in what they do together."""
    machine.clock.place = machine.place(name, EVALUATION if machine.is_evaluating else "optimizer")
