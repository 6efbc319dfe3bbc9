"""Locations: printed as PopTorch prints, placement in plans (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch

Settings = poptorch.TensorLocationSettings


def placement(options, replicas=1, training=True):
    return options.TensorLocations.placement(replicas, options.execution_strategy, training)


@pytest.mark.source("S2-29")
def test_locations_print_as_in_the_tutorial():
    options = poptorch.Options()
    options.TensorLocations.setOptimizerLocation(Settings().useOnChipStorage(False))
    assert "location_optimizer={'onChip': 0}" in repr(options.TensorLocations)
    assert placement(options)["offload"] == ("state",)
    assert Settings().useOnChipStorage(False).is_remote
    assert not Settings().useOnChipStorage(False).useOnChipStorage(None).is_remote


def test_each_kind_has_its_place():
    options, remote = poptorch.Options(), Settings().useOnChipStorage(False)
    options.TensorLocations.setActivationLocation(remote).setWeightLocation(remote)
    options.TensorLocations.setAccumulatorLocation(remote)
    assert placement(options)["offload"] == ("accumulators", "activations", "weights")


@pytest.mark.source("S3-33", "S3-38")
def test_shards_need_replicas_and_lie_on_the_chip_or_off_it():
    options = poptorch.Options()
    settings = Settings().useReplicatedTensorSharding().minElementsForReplicatedTensorSharding(4)
    options.TensorLocations.setOptimizerLocation(settings)
    assert not placement(options)["shard_state"]
    assert placement(options, replicas=2) == {
        "offload": (), "shard_state": True, "shard_minimum": 4,
    }
    options.TensorLocations.setOptimizerLocation(settings.useOnChipStorage(False))
    result = placement(options, replicas=2)
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
