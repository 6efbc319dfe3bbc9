"""Optimisers that accumulate the gradients of several mini-batches before each update.

Source    graphcore/tensorflow, tensorflow/python/ipu/optimizers/gradient_accumulation_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.settings.notes import note
from ipu.frontends.tensorflow.training.composites import Accumulators
from ipu.frontends.tensorflow.training.cross_replica import CrossReplicaOptimizer
from ipu.frontends.tensorflow.training.enclosing import check_accumulation, check_no_pipeline
from ipu.frontends.tensorflow.training.reductions import GradientAccumulationReductionMethod
from ipu.frontends.tensorflow.training.wrapper import IpuOptimizer, applied

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer", "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer", "GradientAccumulationOptimizerV2",
]

Method = GradientAccumulationReductionMethod
_SUM = Method.SUM


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Applies the accumulated gradients of num_mini_batches iterations of a loop.

    opt                 the optimiser that applies them.
    offload_weight_update_variables, replicated_optimizer_state_sharding
                        where the optimiser's state lies; no bit changes.
    dtype               of the accumulators: None (each variable's), a type, or a function of the
                        variable. The inner optimiser gets gradients of that type.
    reduction_method    SUM, MEAN or RUNNING_MEAN, or its name.

    Raises    ValueError for less than one mini-batch; tf.errors.FailedPreconditionError outside a
              loop, and where num_mini_batches does not divide its iterations.
    """

    def __init__(
        self, opt: Any, num_mini_batches: int, offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False, dtype: Any = None,
        reduction_method: Method | str = _SUM, name: str = "GradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(opt, name)
        _check_count(num_mini_batches)
        check_state_placement(offload_weight_update_variables, replicated_optimizer_state_sharding)
        self._accumulators = Accumulators(
            num_mini_batches, Method.parse(reduction_method), dtype,
            offload_state=offload_weight_update_variables is not False,
            shard_state=bool(replicated_optimizer_state_sharding),
        )

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        """Accumulate; after the last mini-batch apply what was accumulated."""
        check_no_pipeline(type(self).__name__)
        check_accumulation(self._accumulators.count)
        pairs = [(g, variable) for g, variable in grads_and_vars if g is not None]
        if not pairs:
            raise ValueError("No gradients provided for any variable.")
        added = self._accumulators.add(pairs)
        return self._accumulators.update(
            [variable for _, variable in pairs], added,
            lambda accumulated: applied(self._opt, accumulated, global_step, name),
        )


def _check_count(mini_batches: Any) -> None:
    if isinstance(mini_batches, bool) or not isinstance(mini_batches, int | np.integer):
        raise TypeError(f"num_mini_batches={mini_batches!r} is not an integer; use 1, 2, 3 …")
    if mini_batches < 1:
        raise ValueError("num_mini_batches must be a positive number.")


def check_state_placement(offload: bool | None, sharded: bool | None) -> None:
    """Say that placement changes no bit; refuse shards of a state that stays on the chip.

    Raises    ValueError.
    """
    if sharded and offload is False:
        raise ValueError(
            "replicated_optimizer_state_sharding=True with offload_weight_update_variables=False: "
            "the optimizer state must be offloaded to be sharded"
        )
    if sharded or offload:
        note("where the state of an optimiser lies changes no bit; the simulation keeps it whole")


class CrossReplicaGradientAccumulationOptimizerV2(IpuOptimizer):
    """As `GradientAccumulationOptimizerV2`; accumulated gradients are averaged over replicas."""

    def __init__(
        self, opt: Any, num_mini_batches: int, offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False, dtype: Any = None,
        reduction_method: Method | str = _SUM,
        name: str = "CrossReplicaGradientAccumulationOptimizerV2",
    ) -> None:
        inner = GradientAccumulationOptimizerV2(
            CrossReplicaOptimizer(opt), num_mini_batches, offload_weight_update_variables,
            replicated_optimizer_state_sharding, dtype, reduction_method, name,
        )
        super().__init__(inner, name)


class GradientAccumulationOptimizer(IpuOptimizer):
    """The older one: sums gradients in their own type, for SGD with and without momentum.

    verify_usage    whether other optimisers are refused.
    """

    def __init__(
        self, opt: Any, num_mini_batches: int, verify_usage: bool = True,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        super().__init__(opt, name)
        _check_count(num_mini_batches)
        if verify_usage:
            _check_linear(opt)
        self._count = num_mini_batches
        self._inner: GradientAccumulationOptimizerV2 | None = None

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        """Accumulate; after the last mini-batch apply what was accumulated."""
        check_no_pipeline(type(self).__name__)
        pairs: Sequence[Any] = list(grads_and_vars)
        kinds = {v.ref(): g.dtype for g, v in pairs if g is not None}
        if self._inner is None:
            self._inner = GradientAccumulationOptimizerV2(
                self._opt, self._count, dtype=lambda v: kinds[v.ref()]
            )
        return self._inner.apply_gradients(pairs, global_step, name)


def _check_linear(opt: Any) -> None:
    """Refuse what is neither SGD nor momentum, also inside of wrappers."""
    while isinstance(opt, IpuOptimizer):
        opt = opt._opt
    linear = (tf.compat.v1.train.GradientDescentOptimizer, tf.compat.v1.train.MomentumOptimizer)
    if not isinstance(opt, linear):
        raise ValueError(
            f"opt={type(opt).__name__}: GradientAccumulationOptimizer supports "
            "GradientDescentOptimizer and MomentumOptimizer only; use "
            "GradientAccumulationOptimizerV2, or verify_usage=False"
        )


class CrossReplicaGradientAccumulationOptimizer(IpuOptimizer):
    """As `GradientAccumulationOptimizer`; the accumulated gradients are averaged over replicas."""

    def __init__(
        self, opt: Any, num_mini_batches: int, verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ) -> None:
        inner = GradientAccumulationOptimizer(
            CrossReplicaOptimizer(opt), num_mini_batches, verify_usage, name
        )
        super().__init__(inner, name)
