"""Small PyTorch networks: shapes, and float16 as users ask for it (law)."""

from __future__ import annotations

import pytest

from ipu.experiments.training.half_networks import MODELS

torch = pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [2, 5])
def test_logits_for_each_image(name, n):
    torch.manual_seed(0)
    model = MODELS[name](torch).half()
    output = model(torch.rand(n, 1, 8, 8).half())
    assert (output.shape, output.dtype) == ((n, 10), torch.float16)
    assert all(p.dtype == torch.float16 for p in model.parameters())
