"""A convolutional network of the size of a tutorial's on images of digits (differential, law).

Digits are the test images of MNIST: 8000 to train with, 2000 kept. The training images are not to
be had where these tests run.
"""

from __future__ import annotations

import pytest

from fpsim.state import threads
from ipu.feed.data import mnist
from tests.ipu.frontends.torch.framework import machine, torch
from tests.vectors import data_path

nn = torch.nn
functional = torch.nn.functional
HALF = {"policy": "p=f16,c=f16", "sr": True, "seed": 0}


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        nn.Sequential(nn.Linear(320, 256), nn.ReLU(), nn.Linear(256, 10)),
    )


class Recomputed(nn.Module):
    """The network with its first two blocks recomputed in the backward pass."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks

    def forward(self, x):
        for block in self.blocks[:2]:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return self.blocks[2](x)


class Plain(Recomputed):
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(scope="module")
def digits():
    """Images and classes to train with, and those kept."""
    sets = mnist("t10k:8000/2000", data_path("mnist").parent)
    return [
        (torch.from_numpy((part.pixels.transpose(0, 3, 1, 2) / 255 - 0.1307) / 0.3081).float(),
         torch.from_numpy(part.labels.astype("int64")))
        for part in (sets.learn, sets.test)
    ]


def train(net, images, classes, steps, *, lr, on_output=None, batch=40, seed=2):
    """Losses of steps of AdamW over batches in a shuffled order, epoch after epoch."""
    optimiser = torch.optim.AdamW(net.parameters(), lr=lr, eps=1e-4)
    generator, losses = torch.Generator().manual_seed(seed), []
    while len(losses) < steps:
        order = torch.randperm(len(images), generator=generator)
        for rows in order.split(batch)[: steps - len(losses)]:
            optimiser.zero_grad()
            output = net(images[rows])
            if on_output is not None:
                on_output(output)
            loss = functional.cross_entropy(output, classes[rows])
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return losses


def test_fifty_steps_in_binary16_with_stochastic_rounding(digits):
    with machine(**HALF) as run:
        losses = train(network(), *digits[0], 50, lr=1e-3)
    assert sum(losses[-5:]) / 5 <= 0.65
    assert run.report()["native"] == run.report()["host"]["elements"] == 0


def test_binary32_follows_torch(digits):
    """Of three orders; torch with another number of threads leaves its own course after step 25 of
    some of them, by 3e-4, as numbers near a maximum or a zero change places."""
    worst = []
    for seed in (3, 4, 5):
        expected = train(network(), *digits[0], 50, lr=1e-3, seed=seed)
        with machine(f32_denormals="ieee"):
            losses = train(network(), *digits[0], 50, lr=1e-3, seed=seed)
        gaps = [abs(a - b) for a, b in zip(losses, expected, strict=True)]
        assert max(gaps[:16]) <= 2e-6
        worst.append(max(gaps))
    assert min(worst) <= 2e-6


def bits(digits, kind=Plain, on_output=None):
    """Losses and parameters after four steps."""
    net = kind(network())
    with machine(**HALF):
        losses = train(net, *digits[0], 4, lr=1e-3, on_output=on_output)
    return losses, [p.detach().clone() for p in net.parameters()]


def same(a, b):
    return a[0] == b[0] and all(map(torch.equal, a[1], b[1]))


def test_bits_are_those_of_the_program_alone(digits):
    """Two runs, one and two threads, a diagnostic operation, recomputation."""
    first = bits(digits)
    before = threads.get_threads()
    try:
        for n in (1, 2):
            threads.set_threads(n)
            torch.set_num_threads(n)
            assert same(first, bits(digits))
    finally:
        threads.set_threads(before)
        torch.set_num_threads(1)
    assert same(first, bits(digits, on_output=lambda y: (y.mean(), y.std(), (y * 2).sum())))
    assert same(first, bits(digits, Recomputed))


def accuracy(net, images, classes):
    with torch.no_grad():
        right = [
            net(x).argmax(1).eq(y)
            for x, y in zip(images.split(500), classes.split(500), strict=True)
        ]
    return int(torch.cat(right).sum()) / len(classes)


@pytest.mark.tier("full")
@pytest.mark.parametrize("options", [{}, HALF], ids=["binary32", "binary16 with SR"])
def test_three_epochs_are_as_good_as_with_torch(digits, options):
    native, net = network(), network()
    train(native, *digits[0], 600, lr=1e-3)
    with machine(**options):
        train(net, *digits[0], 600, lr=1e-3)
        ours = accuracy(net, *digits[1])
    theirs = accuracy(native, *digits[1])
    print(ours, theirs)
    assert ours >= 0.945
    assert abs(ours - theirs) <= 0.005
