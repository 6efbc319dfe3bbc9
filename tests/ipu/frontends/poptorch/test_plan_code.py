"""A plan as PopTorch code: the model that it makes has that plan (law)."""

from __future__ import annotations

import pytest

from ipu.plan.plan import Plan
from tests.ipu.frontends.poptorch.framework import poptorch, torch

plan_code = pytest.importorskip("ipu.frontends.poptorch.plan_code").plan_code



class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4)))

    def forward(self, x):
        y = self.layers(x)
        return y, poptorch.identity_loss(y.square(), reduction="mean")


@pytest.mark.parametrize("plan", [
    Plan([abs] * 3, schedule="popart", count=8, recompute=True, offload=("state",)),
    Plan([abs] * 2, schedule="sequential", count=4, offload=("weights", "accumulators")),
    Plan([abs] * 2, schedule="popart", count=4, recompute=True, replicas=2, shard_state=True,
         shard_minimum=8192, offload=("activations",)),
    Plan([abs] * 3, mapping=[0, 1, 0], schedule="popart", count=8, recompute=True, offload=()),
    Plan([abs], schedule="popart", count=2, replicas=2, offload=()),
])
def test_the_code_of_a_plan_makes_that_plan(plan):
    model = Model()
    code = plan_code(plan, ["layers.1", "layers.3"][: plan.n_stages - 1])
    names = {"poptorch": poptorch, "model": model}
    exec(code, names)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.1)
    training = poptorch.trainingModel(model, options=names["options"], optimizer=optimizer)
    training.compile(torch.ones(2 * plan.count * plan.replicas, 4))
    written = training.plan
    for name in (
        "n_stages", "places", "count", "replicas", "recomputation", "offloaded", "shard_state",
        "programs",
    ):
        assert getattr(written, name) == getattr(plan, name), name
    assert written.shard_minimum == plan.shard_minimum or not plan.shard_state
