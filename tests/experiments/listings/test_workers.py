"""The guide's estimators train on one worker (golden: what the guide says of them)."""

from __future__ import annotations

import os
import re

import pytest

from ipu.experiments.listings.workers import LISTINGS
from tests.experiments.listings.runs import run, sources


@pytest.mark.tier("full")
@pytest.mark.source("TensorFlow user guide §7.4, §7.8")
@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)
def test_twenty_steps_lower_the_loss(listing, tmp_path, monkeypatch):
    sources()
    if not os.environ.get("FPSIM_DATA"):
        pytest.skip("FPSIM_DATA names no folder with MNIST")
    monkeypatch.setenv("TF_CONFIG", '{"cluster":{"worker":["localhost:3737"]},"task":'
                       '{"type":"worker","index":0}}')  # fmt: skip
    printed = run(listing, tmp_path, with_log=True)
    first = re.search(r"^INFO:tensorflow:loss = (\d+\.\d+), step = 0", printed, re.MULTILINE)
    last = re.search(r"Loss for final step: (\d+\.\d+)", printed)
    assert float(last[1]) < 0.7 * float(first[1])
