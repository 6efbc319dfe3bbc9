"""The networks in torch, where it is installed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from ipu.experiments.bench.steps.torch_networks import IMAGES, peers, torch_step
from ipu.experiments.bench.train import NETWORKS


def test_without_torch_there_is_no_peer(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert torch_step("MNIST CNN", np.zeros((2, 28, 28, 1), np.float32), np.zeros(2, int)) is None


SHAPES = {name: network.image for name, network in NETWORKS.items()} | IMAGES


def test_only_tools_that_are_installed_are_peers(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "qtorch" else find(name)
    )
    pytest.importorskip("torch")
    result = peers("MNIST CNN", np.zeros((2, 28, 28, 1), np.float32), np.zeros(2, np.int64))
    assert [peer.name.split()[0] for peer in result] == ["torch"]


def test_qpytorch_rounds_every_layer_to_binary16():
    torch = pytest.importorskip("torch")
    pytest.importorskip("qtorch")
    images = np.random.default_rng(0).standard_normal((2, 28, 28, 1), np.float32)
    logits_seen = []
    step = torch.nn.functional.cross_entropy
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            torch.nn.functional, "cross_entropy",
            lambda logits, labels: (logits_seen.append(logits.detach()), step(logits, labels))[1],
        )
        peers("MNIST CNN", images, np.zeros(2, np.int64))[1].call()
    assert torch.equal(logits_seen[0], logits_seen[0].half().float())


@pytest.mark.parametrize("name", SHAPES)
def test_a_step_runs(name):
    pytest.importorskip("torch")
    images = np.zeros((2, *SHAPES[name]), np.float32)
    peer = torch_step(name, images, np.zeros(2, np.int64))
    peer.call()
    assert peer.name.startswith("torch ")
