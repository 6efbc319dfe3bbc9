"""Where tensors live: on the chip or in remote memory, whole on each replica or in parts.

Locations move bytes and time in the account, and no bit.

Source    Graphcore's PopTorch, python/options.py; PopART: defaults of the minima (2, 8192).
"""

from __future__ import annotations

from typing import Any

from ipu.frontends.poptorch.dictionary import OptionsDict, check_bool, check_number, once
from ipu.frontends.poptorch.strategies import Strategy

__all__ = ["TensorLocationSettings", "TensorLocations"]

#: What a plan calls these.
_KINDS = {
    "location_activation": "activations", "location_weight": "weights",
    "location_optimizer": "state", "location_accumulator": "accumulators",
}


class TensorLocationSettings(OptionsDict):
    """Where tensors of one kind live; what is not said stays on the chip.

    >>> TensorLocationSettings().useOnChipStorage(False)
    TensorLocationSettings(onChip=0)
    """

    def minElementsForOffChip(self, min_elements: int) -> TensorLocationSettings:
        """Smaller tensors stay on the chip."""
        check_number("minElementsForOffChip", min_elements, 0)
        once("minElementsForOffChip", "the account keeps tensors below 128 bytes on the chip")
        self.createOrSet(minElementsForOffChip=min_elements)
        return self

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> TensorLocationSettings:
        """Smaller tensors are whole on each replica."""
        check_number("minElementsForReplicatedTensorSharding", min_elements, 0)
        self.createOrSet(minElementsForReplicatedTensorSharding=min_elements)
        return self

    def useOnChipStorage(self, use: bool | None = True) -> TensorLocationSettings:
        """On the chip, in remote memory (False), or not said (None)."""
        if use is None:
            self.deleteIfExists("onChip")
            return self
        check_bool("useOnChipStorage", use)
        self.createOrSet(onChip=int(use))
        return self

    def useReplicatedTensorSharding(self, use: bool = True) -> TensorLocationSettings:
        """Each replica keeps 1/R of every tensor."""
        check_bool("useReplicatedTensorSharding", use)
        self.createOrSet(useReplicatedTensorSharding=int(use))
        return self

    def useIOTilesToLoad(self, use: bool = True) -> TensorLocationSettings:
        """Tensors come through I/O tiles."""
        check_bool("useIOTilesToLoad", use)
        once("useIOTilesToLoad", "PopART's schedule has no I/O overlap in ipu.plan")
        self.createOrSet(useIOTilesToLoad=int(use))
        return self

    def useIOTilesToStore(self, use: bool = True) -> TensorLocationSettings:
        """Tensors leave through I/O tiles."""
        check_bool("useIOTilesToStore", use)
        once("useIOTilesToStore", "PopART's schedule has no I/O overlap in ipu.plan")
        self.createOrSet(useIOTilesToStore=int(use))
        return self

    @property
    def is_remote(self) -> bool:
        """Whether the tensors live in remote memory."""
        return self.toDict().get("onChip") == 0


class TensorLocations(OptionsDict):
    """Locations by kind of tensor, and the number of I/O tiles."""

    def numIOTiles(self, num_tiles: int) -> TensorLocations:
        """Tiles that only transfer: an even number from 32 to 192."""
        check_number("numIOTiles", num_tiles)
        if num_tiles % 2 or not 32 <= num_tiles <= 192:
            raise ValueError(f"numIOTiles({num_tiles}): use an even number from 32 to 192")
        self.createOrSet(numIOTiles=num_tiles)
        return self

    def _place(self, name: str, location: Any) -> TensorLocations:
        if not isinstance(location, TensorLocationSettings):
            raise TypeError(
                f"location={location!r} is not a poptorch.TensorLocationSettings; use "
                "poptorch.TensorLocationSettings().useOnChipStorage(False)"
            )
        self.createOrSet(**{name: location.toDict()})
        return self

    def setActivationLocation(self, location: TensorLocationSettings) -> TensorLocations:
        """Of activations that wait for the backward pass."""
        return self._place("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> TensorLocations:
        """Of parameters."""
        return self._place("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> TensorLocations:
        """Of the optimiser's state."""
        return self._place("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> TensorLocations:
        """Of accumulated gradients."""
        return self._place("location_accumulator", location)

    def io_tiles(self, n_stages: int) -> int:
        """Tiles that transfer beside computation; a pipeline has none (PopART's schedule)."""
        tiles = int(self.toDict().get("numIOTiles", 0))
        if tiles and n_stages > 1:
            once("numIOTiles", "PopART's schedule has no I/O overlap in ipu.plan")
            return 0
        return tiles

    def placement(self, replicas: int, strategy: Strategy, training: bool) -> dict[str, Any]:
        """Arguments of a plan: offload, shard_state, shard_minimum."""
        values = self.toDict()
        away = {kind for name, kind in _KINDS.items() if values.get(name, {}).get("onChip") == 0}
        away |= getattr(strategy, "offload", frozenset())
        state = values.get("location_optimizer", {})
        shard = bool(state.get("useReplicatedTensorSharding")) and replicas > 1 and training
        return {
            "offload": tuple(sorted(away)), "shard_state": shard,
            "shard_minimum": state.get("minElementsForReplicatedTensorSharding", 8192),
        }
