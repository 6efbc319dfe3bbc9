"""torch, PopTorch and a network with blocks; without torch the importing test file is skipped."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")

from ipu.frontends import poptorch  # noqa: E402
from ipu.frontends.torch import machine as session_of  # noqa: E402

__all__ = [
    "STRATEGIES",
    "Net",
    "bits",
    "data",
    "options",
    "poptorch",
    "session_of",
    "sgd",
    "staged",
    "torch",
    "train",
]

torch.set_num_threads(1)
NAMES = ("B1", "B2", "B3", "B4")


class Net(torch.nn.Module):
    """Four blocks: a skip through all of them, a norm, dropout, a write into a stage's input."""

    def __init__(self, width=8):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(6, width), torch.nn.Linear(width, width)
        self.c, self.d = torch.nn.Linear(width, width), torch.nn.Linear(width, 3)
        self.norm, self.drop = torch.nn.BatchNorm1d(width), torch.nn.Dropout(0.3)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        with poptorch.Block("B1"):
            x = skip = torch.relu(self.a(x))
        with poptorch.Block("B2"):
            x = self.drop(torch.relu(self.norm(self.b(x)))) * 1.0
            skip = skip * 2 + x
        with poptorch.Block("B3"):
            x.mul_(0.5)
            x = torch.tanh(self.c(x)) + skip
        with poptorch.Block("B4"):
            x = self.d(x + skip)
            if labels is None:
                return x
            return x, self.loss(x, labels)


def staged(*groups):
    """A pipeline of these stages, each written as its blocks."""
    stages = (poptorch.Stage(*blocks.split()) for blocks in groups)
    return poptorch.PipelinedExecution(*(block.ipu(i) for i, block in enumerate(stages)))


#: The same network, cut and scheduled in every way.
STRATEGIES = {
    "pipelined": lambda: poptorch.PipelinedExecution(*NAMES),
    "two stages": lambda: staged("B1 B2", "B3 B4"),
    "sharded": lambda: poptorch.ShardedExecution(*NAMES),
    "unsplit": lambda: staged("B1 B2 B3 B4"),
    "phased": lambda: poptorch.SerialPhasedExecution(*NAMES),
}


def options(strategy=None, count=7, *, iterations=1, replicas=1, sr=True):
    """Options of a training whose outputs all come back."""
    result = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    result.Training.gradientAccumulation(count)
    result.Precision.enableStochasticRounding(sr)
    result.outputMode(poptorch.OutputMode.All)
    if strategy is not None:
        result.setExecutionStrategy(strategy)
    return result


def sgd(parameters, **extra):
    return poptorch.optim.SGD(
        parameters, **{"lr": 0.05, "momentum": 0.9, "loss_scaling": 64.0} | extra
    )


def data(n, half=True, seed=1):
    """Random samples and labels."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    return x.half() if half else x, torch.randint(0, 3, (n,), generator=generator)


def train(run_options, optimiser=sgd, *, net=None, half=True, steps=2, batch=3, **extra):
    """The model after some calls, and the losses of the last one."""
    net = Net() if net is None else net
    net = net.half() if half else net
    model = poptorch.trainingModel(net, run_options, optimiser(net.parameters(), **extra))
    n = run_options.device_iterations * run_options.replication_factor
    n *= batch * run_options.Training.gradient_accumulation
    losses = None
    for step in range(steps):
        _, losses = model(*data(n, half, step))
    return model, losses


def bits(model):
    """Every number of a model, buffers too."""
    return {name: x.clone() for name, x in model.model.state_dict().items()}


def same(one, other):
    """Whether two models have equal numbers, as `bits` gives them."""
    return all(torch.equal(x, other[name]) for name, x in one.items())
