"""Inputs and outputs of calls: orders and shapes of the output modes (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import options, poptorch, torch

from ipu.frontends.poptorch import outputs  # isort: skip

Mode = poptorch.OutputMode


def rows(n, replicas=1):
    """Micro-batch i returns a batch of two and a scalar."""
    return [(torch.tensor([10.0 * i, 10.0 * i + 1]), torch.tensor(float(i))) for i in range(n)]


@pytest.mark.parametrize(
    ("mode", "period", "replicas", "batch", "scalar"),
    [
        (Mode.All, 1, 1, [0, 1, 10, 11, 20, 21, 30, 31], [0, 1, 2, 3]),
        (Mode.Final, 1, 1, [30, 31], [3]),
        (Mode.Final, 1, 2, [20, 21, 30, 31], [2, 3]),
        (Mode.EveryN, 2, 1, [10, 11, 30, 31], [1, 3]),
        (Mode.Sum, 1, 1, [60, 64], [6]),
        (Mode.Sum, 1, 2, [20, 22, 40, 42], [2, 4]),
    ],
)
@pytest.mark.source("S2-32")
def test_modes(mode, period, replicas, batch, scalar):
    results = outputs.assemble(rows(4), mode, period, replicas, torch.add)
    assert [x.tolist() for x in results] == [batch, scalar]


def test_structures_come_back():
    outcomes = [{"a": torch.ones(1), "b": [torch.zeros(1)]} for _ in range(2)]
    results = outputs.assemble(outcomes, Mode.All, 1, 1, torch.add)
    assert results["a"].tolist() == [1, 1]
    assert results["b"][0].tolist() == [0, 0]


def test_a_batch_is_cut_along_the_first_axis():
    parts = outputs.cut(((torch.arange(6), 3), {"y": torch.arange(6)}), 3, "three")
    assert [p[0][0].tolist() for p in parts] == [[0, 1], [2, 3], [4, 5]]
    assert parts[1][0][1] == 3
    assert parts[2][1]["y"].tolist() == [4, 5]


def test_the_default_is_all_of_an_inference_and_the_last_of_a_training():
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x):
            y = self.layer(x)
            return y, torch.nn.functional.mse_loss(y, torch.zeros_like(y))

    run_options = poptorch.Options().deviceIterations(3)
    y, loss = poptorch.trainingModel(Loss(), run_options)(torch.ones(6, 2))
    assert (tuple(y.shape), tuple(loss.shape)) == ((2, 1), (1,))
    y, loss = poptorch.inferenceModel(Loss(), run_options.clone())(torch.ones(6, 2))
    assert (tuple(y.shape), tuple(loss.shape)) == ((6, 1), (3,))


def test_sums_are_computed_in_the_type_of_the_tensor():
    class Halves(torch.nn.Module):
        def forward(self, x):
            return x

    run_options = poptorch.Options().deviceIterations(2).outputMode(Mode.Sum)
    result = poptorch.inferenceModel(Halves(), run_options)(torch.tensor([2048.0, 1.0]).half())
    assert result.item() == 2048  # 2049 is no binary16 number
    whole = poptorch.inferenceModel(Halves(), run_options.clone())(torch.tensor([2**24, 1]).int())
    assert (whole.item(), whole.dtype) == (2**24 + 1, torch.int32)  # integers are not rounded


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: outputs.cut((3,), 2, "x"), "needs an input tensor with a batch axis"),
        (lambda: outputs.cut((torch.ones(4), torch.ones(2)), 2, "x"), r"batches of \[2, 4\] samp"),
        (lambda: outputs.cut((torch.ones(7),), 2, "G=2"), "7 samples is no multiple of 2, which"),
        (lambda: outputs.assemble(rows(4), Mode.EveryN, 3, 1, torch.add), "does not divide the 4"),
    ],
)
def test_bad_input_is_one_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_an_incomplete_batch_is_refused():
    model = poptorch.inferenceModel(torch.nn.Linear(2, 1), options(count=1, iterations=4))
    with pytest.raises(ValueError, match="deviceIterations=4 times gradientAccumulation=1 times"):
        model(torch.ones(6, 2))
