"""Options of PopTorch for the replicas that poprun deals to this process.

Source    Graphcore, PopDist and PopRun user guide: popdist.poptorch.Options.
"""

from __future__ import annotations

from ipu.frontends.popdist import environment
from ipu.frontends.poptorch import Options as _Options

__all__ = ["Options"]


class Options(_Options):
    """`poptorch.Options` with this process's number and replicas.

    ipus_per_replica    what the program needs; None: as poprun was told.

    Raises    ValueError where poprun was told another number of IPUs.
    """

    def __init__(self, ipus_per_replica: int | None = None) -> None:
        super().__init__()
        if ipus_per_replica is not None and not environment.checkNumIpusPerReplica(
            ipus_per_replica
        ):
            raise ValueError(
                f"ipus_per_replica={ipus_per_replica} and poprun has --ipus-per-replica "
                f"{environment.getNumIpusPerReplica()}; use one number in both"
            )
        self.replicationFactor(environment.getNumLocalReplicas())
        self.Distributed.configureProcessId(
            environment.getInstanceIndex(), environment.getNumInstances()
        )
