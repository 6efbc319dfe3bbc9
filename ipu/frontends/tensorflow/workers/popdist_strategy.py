"""`PopDistStrategy`: a program whose replicas poprun has dealt to processes.

Everything that replicas do together is done over the replicas of all processes, in one order:
poplibs' ring for the size (`auto`), unless `poprun --order` names another.

Source    graphcore/tensorflow, tensorflow/python/ipu/distributed/popdist_strategy.py: names,
          arguments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from ipu.frontends.popdist import environment as popdist
from ipu.frontends.tensorflow.engine.replica_set import dealt
from ipu.frontends.tensorflow.strategy import IPUStrategyV1
from ipu.frontends.tensorflow.workers.group import join
from ipu.members.cluster import Cluster

__all__ = ["PopDistStrategy"]


class PopDistStrategy:
    """The replicas of all processes of poprun; without it, those of this process.

    add_ipu_cross_replica_reductions    gradients of Keras are averaged over replicas, always here.

    Raises    JoinError for processes that do not come.
    """

    def __init__(
        self, ipu_device: str = "/device:IPU:0", add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True, enable_keras_extensions: bool = True,
    ) -> None:
        if not add_ipu_cross_replica_reductions:
            raise ValueError(
                "add_ipu_cross_replica_reductions=False is not modelled: replicas would drift "
                "apart; leave it out"
            )
        self.workers = join(Cluster.from_environment(os.environ), "strategy: popdist")
        self._program = IPUStrategyV1(
            ipu_device, enable_dataset_iterators=enable_dataset_iterators,
            enable_keras_extensions=enable_keras_extensions,
        )
        self._program.replica_set = self.workers.replica_set
        self.workers.replica_set.local = popdist.getNumLocalReplicas()
        dealt.processes = self.workers.size

    @property
    def num_replicas_in_sync(self) -> int:
        """Replicas of all processes."""
        return popdist.getNumTotalReplicas()

    @property
    def input_context(self) -> Any:
        """Which share of a data set this process reads."""
        return tf.distribute.InputContext(
            num_input_pipelines=self.workers.size, input_pipeline_id=self.workers.rank,
            num_replicas_in_sync=self.num_replicas_in_sync,
        )

    @contextmanager
    def scope(self) -> Iterator[PopDistStrategy]:
        """Models and programs inside run on the replicas of all processes.

        Raises    NotImplementedError for a program of TensorFlow 1.
        """
        if not tf.compat.v1.executing_eagerly_outside_functions():
            dealt.refuse_graphs()
        with self._program.scope():
            yield self

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Call a function on the machine: one launch, on every process."""
        return self._program.run(fn, args, kwargs, options)

    def update_ipu_config(self, config: Any) -> None:
        """Write this process and how many there are into an IPUConfig."""
        distribution = config.experimental.multi_replica_distribution
        distribution.process_count = self.workers.size
        distribution.process_index = self.workers.rank
