"""The guide's listings about feeds run as printed (golden: what the guide says of them)."""

from __future__ import annotations

import re

import pytest

from ipu.experiments.listings.feeds import LISTINGS
from tests.experiments.listings.runs import run
from tests.vectors import data_of_documents, documents

BY_NAME = {listing.name: listing for listing in LISTINGS}


@pytest.mark.source("TensorFlow user guide §6.1, §6.2, §6.7, §6.10")
@pytest.mark.parametrize(
    "name",
    ["feed_loop", "implicit_iterator", "next_in_loop", "cast_gradients", "benchmark_json"],
)
def test_listing_runs_as_printed(name, tmp_path):
    assert run(BY_NAME[name], tmp_path).splitlines()[-1] == "same"


@pytest.mark.source("TensorFlow user guide §6.2")
def test_a_hundred_executions_print_a_hundred_losses(tmp_path):
    printed = run(BY_NAME["iterated_outfeed"], tmp_path).splitlines()
    losses = [float(line.removeprefix("Loss: ")) for line in printed if line.startswith("Loss: ")]
    assert len(losses) == 100
    assert losses[-1] < 1e-3 < losses[0]


@pytest.mark.source("TensorFlow user guide §6.3")
def test_a_thread_sees_every_loss_once_and_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("FPSIM_DATA", str(data_of_documents()))
    rows = re.findall(r"^Step (\d+) loss =  (\S+)$", run(BY_NAME["dequeue_thread"], tmp_path), re.M)
    assert [int(step) for step, _ in rows] == list(range(100))
    losses = [float(loss) for _, loss in rows]
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_what_cannot_run_is_no_python(tmp_path):
    with pytest.raises(SyntaxError):
        compile(BY_NAME["concurrent_stages"].program(documents()), "listing", "exec")
