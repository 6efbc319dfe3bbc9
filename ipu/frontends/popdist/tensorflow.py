"""An IPUConfig of TensorFlow for the replicas that poprun deals to this process.

Source    Graphcore, PopDist and PopRun user guide: popdist.tensorflow.set_ipu_config.
"""

from __future__ import annotations

from typing import Any

from ipu.frontends.popdist import environment

__all__ = ["set_ipu_config"]


def set_ipu_config(
    config: Any, ipus_per_replica: int | None = None, configure_device: bool = True
) -> None:
    """Ask for the IPUs of this process's replicas, and write down which process it is.

    ipus_per_replica    what the program needs; None: as poprun was told.
    configure_device    take IPUs; else only the process is written.

    Raises    ValueError where poprun was told another number of IPUs.
    """
    count = environment.getNumIpusPerReplica()
    if ipus_per_replica not in (None, count):
        raise ValueError(
            f"ipus_per_replica={ipus_per_replica} and poprun has --ipus-per-replica {count}; use "
            "one number in both"
        )
    if configure_device:
        config.auto_select_ipus = count * environment.getNumLocalReplicas()
    distribution = config.experimental.multi_replica_distribution
    distribution.process_count = environment.getNumInstances()
    distribution.process_index = environment.getInstanceIndex()
