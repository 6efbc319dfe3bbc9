"""The networks in torch, where it is installed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from ipu.experiments.bench.torch_networks import torch_step
from ipu.experiments.bench.train import NETWORKS


def test_without_torch_there_is_no_peer(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert torch_step("MNIST CNN", np.zeros((2, 28, 28, 1), np.float32), np.zeros(2, int)) is None


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_runs(name):
    pytest.importorskip("torch")
    images = np.zeros((2, *NETWORKS[name].image), np.float32)
    peer = torch_step(name, images, np.zeros(2, np.int64))
    peer.call()
    assert peer.name.startswith("torch ")
