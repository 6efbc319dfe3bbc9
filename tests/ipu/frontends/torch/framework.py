"""torch, and networks small enough for tests; without torch the importing test file is skipped."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")

from ipu.frontends.torch import Session, machine  # noqa: E402

__all__ = [
    "Session", "agree_on_machine", "images", "machine", "mlp", "run", "torch", "train",
]

torch.set_num_threads(1)


def mlp(width=8):
    """Two dense layers with an activation and a norm between them."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(6, width), torch.nn.GELU(), torch.nn.LayerNorm(width),
        torch.nn.Linear(width, 3),
    )


def images():
    """A small convolutional network for 8x8 images."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(36, 3),
    )


def train(net, shape, steps, optimiser=torch.optim.SGD, on_output=None, **options):
    """Losses of a training on random data; `each` is called with the results of every step."""
    optimiser = optimiser(net.parameters(), **{"lr": 0.05} | options)
    torch.manual_seed(1)
    x, y = torch.randn(steps, 8, *shape), torch.randint(0, 3, (steps, 8))
    losses = []
    for i in range(steps):
        optimiser.zero_grad()
        output = net(x[i])
        if on_output is not None:
            on_output(output)
        loss = torch.nn.functional.cross_entropy(output, y[i])
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def agree_on_machine(results, tolerance):
    """`results()`, tensors, are those of torch itself, and nothing of them runs on the host."""
    expected = results()
    with machine() as session:
        got = results()
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, **tolerance)
    assert session.report()["host"]["elements"] == 0


def run(function, *arguments, machine_options=None, **options):
    """What a function gives on the machine, and the session."""
    with machine(**(machine_options or {})) as session:
        result = function(*arguments, **options)
    return result, session
