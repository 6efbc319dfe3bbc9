"""A program's bits do not depend on what it has set in the processor's status register (law).

torch.set_flush_denormal(True) is one such setting; torch's own operations obey it outside of a
session, and the machine's never do.
"""

from __future__ import annotations

import pytest

from fpsim.kernels.status_register import HAS_STATUS
from tests.ipu.frontends.torch.framework import Session, machine, torch
from tests.processors import STATES, under

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

OPTIONS = {"f32_denormals": "ieee", "seed": 3}
torch.manual_seed(3)
X = torch.randn(8, 6) * 1e-39
X[0, :3] = torch.tensor([0.0, -0.0, 1e-45])
Y = torch.randn(3, 6) * 1e-3


def bits(results):
    """Codes as integers, which no setting of the processor changes."""
    return [
        r.detach().contiguous().view(torch.int32).tolist() if r.dtype == torch.float32
        else r.tolist() for r in results
    ]


def program() -> list[torch.Tensor]:
    """A step of a training, and operations that look for zeros."""
    weights = torch.nn.Parameter(Y.clone())
    optimiser = torch.optim.SGD([weights], lr=0.5, momentum=0.5)
    for _ in range(2):
        optimiser.zero_grad()
        output = X @ weights.T
        (output.relu() * 0.25 + output.tanh()).sum().backward()
        optimiser.step()
    return [
        weights, weights.grad, output, X.sum(), X.mean(0), X.sign(), X == 0, X.bool(), X != 0,
        X.abs(), X.amax(1), X.argmax(1), X.sort(1)[0], torch.where(X > 0, X, 0.0), X.clamp(min=0),
        torch.nonzero(X), X.unique(), torch.count_nonzero(X), X.any(1), X.norm(),
        X.logsumexp(1), torch.nn.functional.elu(X), X.to(torch.float64).to(torch.float32),
        torch.maximum(X, -X), X * 0.5, X / 3, X.floor(), X.cumsum(1),
    ]


def in_a_session() -> tuple[list[object], Session]:
    with machine(count=True, **OPTIONS) as session:
        results = program()
    return bits(results), session


@pytest.fixture(scope="module")
def usual():
    results, session = in_a_session()
    return results, str(session.report()["layers"])


@pytest.mark.parametrize("state", [state for state in STATES if state != "usual"])
def test_no_state_shows(usual, state):
    with under(state):
        results, session = in_a_session()
        layers = str(session.report()["layers"])
    assert results == usual[0]
    assert layers == usual[1]


def test_a_program_that_flushes_has_the_bits_of_one_that_does_not(usual):
    assert torch.set_flush_denormal(True)
    try:
        results, _ = in_a_session()
    finally:
        torch.set_flush_denormal(False)
    assert results == usual[0]


def test_torch_itself_would_show_it(usual):
    with under("flush_and_denormals"):
        flushed = program()
    assert bits(flushed) != usual[0]
