"""Benchmarks of data sets: golden (the fields of the documents' JSON), corners."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ipu.feed.batches import Batches
from ipu.feed.data import Images
from ipu.feed.infeed import EndOfDataError, Infeed
from ipu.feed.throughput import benchmark

FIELDS = {
    "elements_processed", "total_bytes_processed", "time_elapsed", "elements_per_second",
    "bandwidth",
}


def forever():
    while True:
        yield np.zeros(100, np.float32), np.uint8(1)


def check(result, epochs, elements):
    parsed = json.loads(result.to_json())
    assert parsed.keys() == {"epochs"}
    assert len(parsed["epochs"]) == epochs
    for epoch in parsed["epochs"]:
        assert epoch.keys() == FIELDS
        assert all(isinstance(x, float) and x > 0 for x in epoch.values())
        assert epoch["elements_processed"] == elements
        assert epoch["total_bytes_processed"] == elements * 401
        seconds = epoch["time_elapsed"]
        assert epoch["elements_per_second"] == pytest.approx(elements / seconds)
        assert epoch["bandwidth"] == pytest.approx(elements * 401 / 1e9 / seconds)


@pytest.mark.source("S0-72")
def test_a_data_set_gives_the_documents_fields():
    check(benchmark(forever, 10, 512), 10, 512)


@pytest.mark.source("S0-73")
def test_an_infeed_gives_them_too_and_goes_on_afterwards():
    with Infeed(forever) as infeed:
        check(benchmark(infeed, 3, 20), 3, 20)
        assert infeed.position == 60
        infeed.dequeue()


@pytest.mark.parametrize("wrap", [list, Infeed])
def test_too_few_elements_are_reported(wrap):
    with pytest.raises(EndOfDataError, match="fewer"):
        benchmark(wrap([1.0] * 5), 2, 3)


def test_a_source_with_a_position_goes_on_from_it():
    batches = Batches(Images(np.arange(6.0)[:, np.newaxis], np.arange(6)), 2)
    batches.position = 7
    benchmark(batches, 1, 2)
    assert batches.position == 9


@pytest.mark.parametrize("counts", [(0, 1), (1, 0), (True, 1), (1, 2.0)])
def test_counts_are_checked(counts):
    with pytest.raises(ValueError, match="is not a count; use 1 or more"):
        benchmark([1.0], *counts)
