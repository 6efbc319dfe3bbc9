"""Where tensors live: on the chip or off it, whole or in a part for each replica.

Source    graphcore/popart, include/popart/tensorlocation.hpp.
"""

from __future__ import annotations

from enum import Enum

from ipu.frontends.popart.checking import Checked

__all__ = [
    "ReplicatedTensorSharding", "TensorLocation", "TensorLocationSettings", "TensorStorage",
]


class TensorStorage(Enum):
    """In the IPU's memory, or in remote memory.

    >>> TensorLocation(storage=TensorStorage.OffChip).storage.name
    'OffChip'
    """

    OffChip = 0
    OnChip = 1


class ReplicatedTensorSharding(Enum):
    """Whether each replica keeps 1/R of a tensor.

    >>> location = TensorLocation(replicatedTensorSharding=ReplicatedTensorSharding.On)
    >>> TensorLocationSettings(location=location).is_sharded
    True
    """

    Off = 0
    On = 1


class TensorLocation(Checked):
    """Storage and sharding of a kind of tensors.

    >>> TensorLocation(storage=TensorStorage.OffChip).replicatedTensorSharding.name
    'Off'
    """

    storage: TensorStorage = TensorStorage.OnChip
    replicatedTensorSharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off


class TensorLocationSettings(Checked):
    """A location, and from how many elements on a tensor has it.

    >>> location = TensorLocation(storage=TensorStorage.OffChip)
    >>> settings = TensorLocationSettings(location=location, minElementsForOffChip=1024)
    >>> settings.is_remote, settings.minElementsForOffChip
    (True, 1024)
    """

    location: TensorLocation
    minElementsForOffChip: int = 2
    minElementsForReplicatedTensorSharding: int = 8192

    def __init__(self, **values: object) -> None:
        super().__init__(**({"location": TensorLocation()} | values))

    @property
    def is_remote(self) -> bool:
        """Whether the tensors live off the chip."""
        return self.location.storage is TensorStorage.OffChip

    @property
    def is_sharded(self) -> bool:
        """Whether each replica keeps a part."""
        return self.location.replicatedTensorSharding is ReplicatedTensorSharding.On
