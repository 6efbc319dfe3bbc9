"""Small random models and data without downloads, as examples of the libraries have them."""

from __future__ import annotations

import os

# Nothing is downloaded: a name of a model on the hub is an error at once.
os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"

from tests.ipu.frontends.torch.framework import torch

__all__ = ["WAYS", "Sentences", "bits", "classifier", "points"]

#: Options of sessions: what torch itself computes, and formats that resuming has to know.
WAYS = {"fp32": {}, "mixed+sr": {"policy": "mixed", "sr": True}}


def bits(module):
    """The state of a module, bit by bit."""
    return {name: x.detach().float().numpy().tobytes() for name, x in module.state_dict().items()}


def points(n=32):
    """Points of six numbers in two classes."""
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


def classifier():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


class Sentences(torch.utils.data.Dataset):
    """Random sentences of twelve tokens; with classes, or themselves as labels."""

    def __init__(self, n=32, classes=0):
        self._n, self._classes = n, classes

    def __len__(self):
        return self._n

    def __getitem__(self, i):
        ids = torch.randint(2, 64, (12,), generator=torch.Generator().manual_seed(i))
        labels = int(ids[0]) % self._classes if self._classes else ids
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
