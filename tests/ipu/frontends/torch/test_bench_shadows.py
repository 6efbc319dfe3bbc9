"""What `fpsim bench shadows` times of PyTorch: golden (rows)."""

from __future__ import annotations

from ipu.experiments.bench import shadows
from ipu.experiments.bench.timing import Size, run
from tests.ipu.frontends.torch.framework import torch


def test_a_step_is_timed_with_shadows_and_with_digests():
    assert torch.is_grad_enabled()
    records = list(run(shadows.cases(Size(n=1, repeats=1), quick=True), 1))
    rows = {(r.topic, r.format, r.rounding) for r in records}
    assert {
        (f"{kind} torch", *way) for kind in ("shadow", "digest")
        for way in (("binary16", "SR"), ("binary32", "RNE"))
    } <= rows
    assert all(r.ratio for r in records)
