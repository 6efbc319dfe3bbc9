"""Steps whose rules run in one call are those one operation after the other (law)."""

from __future__ import annotations

import pytest

from fpsim.products.row_program import RowProgram
from tests.ipu.frontends.torch.framework import machine, torch
from tests.tiers import pick

_ALL = [(p, sr) for p in ("f16", "f32", "p=f32,c=f16", "p=f32,c=bf16") for sr in (False, True)]
POLICIES = pick([("f16", True), ("f32", False), ("p=f32,c=f16", True)], _ALL, _ALL)


class EveryRule(torch.nn.Module):
    """Attention with a mask, norms and every activation that has a marked rule."""

    def __init__(self):
        super().__init__()
        self.norm, self.groups = torch.nn.LayerNorm(12), torch.nn.GroupNorm(1, 4)
        self.attend = torch.nn.MultiheadAttention(12, 2, batch_first=True)
        self.cell, self.out = torch.nn.LSTM(12, 6, batch_first=True), torch.nn.Linear(6, 3)

    def forward(self, x):
        x = self.norm(x + self.groups(x))
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y, _ = self.attend(x, x, x, attn_mask=mask, need_weights=False)
        y, _ = self.cell(torch.nn.functional.gelu(y, approximate="tanh"))
        return self.out(torch.tanh(y)[:, -1]).log_softmax(-1)


def trained(policy, *, sr, in_one_call):
    torch.manual_seed(0)
    net, told = EveryRule(), []
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    with machine(policy, sr=sr) as run:
        run.device.in_one_call = in_one_call
        for step in range(4):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(5, 4, 12, generator=generator)
            optimiser.zero_grad()
            loss = -net(x)[:, 0].mean() * (float("inf") if step == 2 else 1.0)
            loss.backward()
            told += [loss.item().hex(), *(p.grad.numpy().tobytes() for p in net.parameters())]
            if step != 2:  # the gradients there are not finite
                optimiser.step()
        told.append((run.device.vector_cycles, run.device.status, run.report()["operations"]))
    return told, [p.detach().numpy().tobytes() for p in net.parameters()]


@pytest.mark.parametrize(("policy", "sr"), POLICIES)
def test_steps_in_one_call_are_those_of_single_operations(monkeypatch, policy, sr):
    outcomes, run = [], RowProgram.run

    def noted(self, *arguments):
        outcome = run(self, *arguments)
        outcomes.append(outcome is not None)
        return outcome

    monkeypatch.setattr(RowProgram, "run", noted)
    joined = trained(policy, sr=sr, in_one_call=True)
    assert outcomes.count(True) > 10
    assert joined == trained(policy, sr=sr, in_one_call=False)
