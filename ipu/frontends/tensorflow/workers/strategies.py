"""`IPUMultiWorkerStrategy` and `IPUHorovodStrategy`: data-parallel workers in several processes.

Inside of a strategy's scope optimisers of TensorFlow 1 sum gradients over the workers before they
apply them, the latest layer first; under an estimator it is the mean. Models of Keras that are made
in a scope of TensorFlow 2 run on the machine, and the replicas of all workers are those of one
program: gradients are averaged over them as in one process. Variables are each worker's own, and
equal: root's values at the start, the same updates after that.

variables_on_host    variables and state are off the chip in the account of a run. Updates are
                     TensorFlow's on the host as far as the program applies gradients in its
                     host_call, else the machine's.

Source    graphcore/tensorflow, tensorflow/python/ipu/ipu_multi_worker_strategy.py,
          horovod/ipu_horovod_strategy.py: names, arguments, reductions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.engine.launch import failures
from ipu.frontends.tensorflow.engine.subnormals import keeping_subnormals
from ipu.frontends.tensorflow.settings.notes import note
from ipu.frontends.tensorflow.strategy import IPUStrategyV1
from ipu.frontends.tensorflow.training.wrapper import IpuOptimizer
from ipu.frontends.tensorflow.workers.group import Workers, cluster_of, join
from ipu.members.cluster import Cluster

__all__ = ["IPUHorovodStrategy", "IPUMultiWorkerStrategy", "IPUMultiWorkerStrategyV1"]

_SUM, _MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


class _Strategy:
    """What both strategies do.

    workers    this process among those of the run.
    """

    def __init__(self, workers: Workers, variables_on_host: bool) -> None:
        self.workers = workers
        self.variables_on_host = variables_on_host
        if variables_on_host:
            current().variables_on_host = True
            note(
                "variables_on_host: variables and the optimiser's state are off the chip in the "
                "account; updates are the machine's inside of a program, TensorFlow's in a "
                "host_call"
            )
        self._is_mean = False
        self._program: IPUStrategyV1 | None = None

    @property
    def num_replicas_in_sync(self) -> int:
        """Workers."""
        return self.workers.size

    @property
    def input_context(self) -> Any:
        """Which part of a data set this worker reads."""
        return tf.distribute.InputContext(
            num_input_pipelines=self.workers.size, input_pipeline_id=self.workers.rank,
            num_replicas_in_sync=self.workers.size,
        )

    @contextmanager
    def scope(self) -> Iterator[_Strategy]:
        """Optimisers inside sum gradients over the workers before they apply them."""
        _active.append(self)
        try:
            with self._of_program.scope() if tf.executing_eagerly() else nullcontext():
                yield self
        finally:
            _active.pop()

    @property
    def _of_program(self) -> IPUStrategyV1:
        """The strategy that models of Keras see: its replicas are those of all workers."""
        if self._program is None:
            self._program = IPUStrategyV1()
            self._program.replica_set = self.workers.replica_set
        return self._program

    @contextmanager
    def estimator_scope(self) -> Iterator[None]:
        """As `scope`, for an estimator: gradients are averaged."""
        before, self._is_mean = self._is_mean, True
        try:
            with self.scope():
                yield
        finally:
            self._is_mean = before

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None) -> Any:
        """Call a function in the scope."""
        with self.scope():
            return fn(*args, **(kwargs or {}))

    experimental_run_v2 = run

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
        """The sum or mean of a tensor over the workers.

        Raises    ValueError for an axis, which workers do not have.
        """
        if axis is not None:
            raise ValueError(f"axis={axis!r}: a worker has one value; use axis=None")
        return self._reduced(value, tf.distribute.ReduceOp(reduce_op) is _MEAN, "value")

    def _reduced(self, value: Any, mean: bool, name: str) -> Any:
        """A node that sums over the workers, on the host."""
        value = tf.convert_to_tensor(value)
        if self.workers.size == 1:
            return value

        def reduce(x: Any) -> Any:
            outgoing = current().outgoing
            times = nullcontext() if outgoing is None else outgoing.summing(name, self.workers.size)
            try:
                with keeping_subnormals(), times:
                    return self.workers.reduced(x, mean=mean, name=name)
            except BaseException as error:
                failures.append(error)  # TensorFlow's runtime keeps its text alone
                raise

        if tf.executing_eagerly():
            return tf.constant(reduce(value.numpy()))
        result = tf.numpy_function(reduce, [value], value.dtype, name=f"{name}_all_reduce")
        result.set_shape(value.shape)
        return result

    def reduced_gradients(self, pairs: Any) -> list[Any]:
        """Gradients summed over the workers, in one order on all: the latest layer first."""
        results: list[Any] = []
        for gradient, variable in reversed(list(pairs)):
            if gradient is not None:
                name = variable.name.partition(":")[0].replace("/", "_")
                with tf.control_dependencies([g for g, _ in results[-1:] if g is not None]):
                    gradient = self._reduced(gradient, self._is_mean, name)
            results.append((gradient, variable))
        return results[::-1]


_active: list[_Strategy] = []


def reduce_in_scopes() -> None:
    """Optimisers of TensorFlow 1 obey the scopes of strategies from now on."""
    apply = tf.compat.v1.train.Optimizer.apply_gradients
    if hasattr(apply, "_obeys_workers"):
        return

    def apply_gradients(
        self: Any, grads_and_vars: Any, global_step: Any = None, name: Any = None
    ) -> Any:
        if _active and not isinstance(self, IpuOptimizer):
            grads_and_vars = _active[-1].reduced_gradients(grads_and_vars)
        return apply(self, grads_and_vars, global_step, name)

    apply_gradients._obeys_workers = True  # type: ignore[attr-defined]
    tf.compat.v1.train.Optimizer.apply_gradients = apply_gradients


reduce_in_scopes()


class IPUMultiWorkerStrategyV1(_Strategy):
    """The workers of a cluster, over gRPC.

    Raises    ClusterError for what is no cluster; JoinError for workers that do not come.
    """

    def __init__(
        self, cluster_resolver: Any, ipu_device: str = "/device:IPU:0",
        variables_on_host: bool = False,
    ) -> None:
        cluster = cluster_of(cluster_resolver, os.environ)
        super().__init__(join(cluster, "strategy: multi-worker"), variables_on_host)
        self.cluster_resolver = cluster_resolver


#: Its name of earlier releases.
IPUMultiWorkerStrategy = IPUMultiWorkerStrategyV1


class IPUHorovodStrategy(_Strategy):
    """The processes of Horovod, which `hvd.init()` has started.

    Raises    ValueError before that; JoinError where they run with other policies or seeds.
    """

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False) -> None:
        from ipu.frontends.horovod.runtime import running

        cluster = Cluster.from_environment()
        order = None if cluster is None else cluster.order
        run = running()
        workers = Workers(run.members, run.sums, order)
        if workers.size > 1:
            workers.compare(current().choices.lines)
        super().__init__(workers, variables_on_host)
