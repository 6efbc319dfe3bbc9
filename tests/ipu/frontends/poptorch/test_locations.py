"""Locations: printed as PopTorch prints, placement in plans (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch

Settings = poptorch.TensorLocationSettings


def placement(own, replicas=1, training=True):
    return own.TensorLocations.placement(replicas, own.execution_strategy, training)


@pytest.mark.source("S2-29")
def test_locations_print_as_in_the_tutorial():
    own = poptorch.Options()
    own.TensorLocations.setOptimizerLocation(Settings().useOnChipStorage(False))
    assert "location_optimizer={'onChip': 0}" in repr(own.TensorLocations)
    assert placement(own)["offload"] == ("state",)
    assert Settings().useOnChipStorage(False).is_remote
    assert not Settings().useOnChipStorage(False).useOnChipStorage(None).is_remote


def test_each_kind_has_its_place():
    own, remote = poptorch.Options(), Settings().useOnChipStorage(False)
    own.TensorLocations.setActivationLocation(remote).setWeightLocation(remote)
    own.TensorLocations.setAccumulatorLocation(remote)
    assert placement(own)["offload"] == ("accumulators", "activations", "weights")


@pytest.mark.source("S3-33", "S3-38")
def test_shards_need_replicas_and_lie_on_the_chip_or_off_it():
    own = poptorch.Options()
    settings = Settings().useReplicatedTensorSharding().minElementsForReplicatedTensorSharding(4)
    own.TensorLocations.setOptimizerLocation(settings)
    assert not placement(own)["shard_state"]
    assert placement(own, replicas=2) == {"offload": (), "shard_state": True, "shard_minimum": 4}
    own.TensorLocations.setOptimizerLocation(settings.useOnChipStorage(False))
    result = placement(own, replicas=2)
    assert (result["shard_state"], result["shard_minimum"]) == (True, 4)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: poptorch.Options().TensorLocations.numIOTiles(33), ValueError, "even number"),
        (lambda: poptorch.Options().TensorLocations.numIOTiles(16), ValueError, "from 32 to 192"),
        (lambda: poptorch.Options().TensorLocations.setWeightLocation({}), TypeError,
         "is not a poptorch.TensorLocationSettings"),
        (lambda: Settings().useOnChipStorage(0), TypeError, "use True or False"),
        (lambda: Settings().minElementsForReplicatedTensorSharding(-1), ValueError, "0 or more"),
    ],
)
def test_bad_input_is_one_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: poptorch.Options().TensorLocations.numIOTiles(32).io_tiles(2),
        lambda: Settings().minElementsForOffChip(2),
        lambda: Settings().useIOTilesToLoad(),
        lambda: Settings().useIOTilesToStore(),
    ],
)
def test_what_is_not_modelled_says_so(call, monkeypatch):
    from ipu.frontends.poptorch import dictionary

    monkeypatch.setattr(dictionary, "_told", set())
    with pytest.warns(UserWarning, match="has no effect here"):
        call()
