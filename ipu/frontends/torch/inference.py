"""A trained model in formats of blocks: perplexity and accuracy, of the whole and layer by layer.

Each way is a session on a copy of the model, on the target hypothetical, which has bfloat16 and
blocks, without gradients. The model gives logits; what is computed from them is the host's, in
binary64.

Ways   nvfp4-plain                  weights and activations
       nvfp4-plain+weights-only     weights alone, decoded into bfloat16 for products of bfloat16
       bf16-mixed+cache=mxfp8       keys and values of attention alone
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fpsim.state.processor import usual_arithmetic
from ipu.frontends.torch.session import Session, _make
from ipu.learn.policy import with_layer
from ipu.run.options import RunOptions
from ipu.run.ways import Way

__all__ = ["Evaluation", "evaluate", "evaluate_layers"]

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Evaluation:
    """What a model in a way gives for batches.

    loss         mean of -log p(target), in nats.
    accuracy     share of targets that have the largest logit, the first of equal ones.
    targets      how many.
    operands     signal-to-noise ratio, gain and others by layer and operand (`Run.report`).
    uncovered    products that the recipe does not cover.

    >>> e = Evaluation("mxfp8", loss=2.0, accuracy=0.25, targets=8, operands=(), uncovered=())
    >>> print(e)
    mxfp8: perplexity 7.3891, accuracy 25.00% of 8
    """

    way: str
    loss: float
    accuracy: float
    targets: int
    operands: Sequence[dict[str, Any]]
    uncovered: Sequence[dict[str, Any]]

    @property
    def perplexity(self) -> float:
        """exp of the loss."""
        return math.inf if self.loss > 700 else math.exp(self.loss)

    def __str__(self) -> str:
        return (
            f"{self.way}: perplexity {self.perplexity:.4f}, accuracy {self.accuracy:.2%} of "
            f"{self.targets}"
        )


def evaluate(
    model: torch.nn.Module, batches: Batches, ways: Iterable[str | Way], *, seed: int = 0
) -> list[Evaluation]:
    """A model in each way; the model stays as it is.

    batches    pairs of inputs and targets (integers, of the shape of the logits but for the last
               axis); a target below 0 is left out.

    Raises    ValueError for no batch, and a way in which the model cannot be run.

    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> model, x = torch.nn.Linear(32, 4), torch.randn(8, 32)
    >>> [e.way for e in evaluate(model, [(x, torch.arange(8) % 4)], ["fp32", "nvfp4-plain"])]
    ['fp32', 'nvfp4-plain']
    """
    pairs = list(batches)
    if not pairs:
        raise ValueError("batches=[] has nothing to evaluate; give pairs of inputs and targets")
    listed = [Way.parse(way) if isinstance(way, str) else way for way in ways]
    return [_evaluated(model, pairs, way, seed) for way in listed]


def evaluate_layers(
    model: torch.nn.Module, batches: Batches, way: str | Way, *, base: str = "bf16-mixed",
    seed: int = 0,
) -> list[Evaluation]:
    """Each layer with products in blocks by itself, all others in the base; the base comes first.

    Raises    ValueError for a way whose recipe covers no layer of the model.

    >>> model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 4))
    >>> batches = [(torch.ones(8, 32), torch.arange(8) % 4)]
    >>> [e.way for e in evaluate_layers(model, batches, "nvfp4-plain")]
    ['bf16-mixed', 'bf16-mixed+0=nvfp4-plain', 'bf16-mixed+1=nvfp4-plain']
    """
    whole = Way.parse(way) if isinstance(way, str) else way
    (of_all,) = evaluate(model, batches, [whole], seed=seed)
    layers = list(dict.fromkeys(row["layer"] for row in of_all.operands))
    if not layers:
        raise ValueError(f"way={str(whole)!r} has no layer in blocks; use a recipe, as nvfp4-plain")
    plain = Way.parse(base)
    alone = [
        Way(with_layer(plain.policy, layer, whole.policy.of(layer)), whole.sr, whole.changes)
        for layer in layers
    ]
    return evaluate(model, batches, [plain, *alone], seed=seed)


def _evaluated(
    model: torch.nn.Module, pairs: Batches, way: Way, seed: int
) -> Evaluation:
    options = RunOptions(
        policy=way.policy, sr=way.sr, seed=seed, count=True, changes=way.changes,
        target="hypothetical",
    )
    session: Session = _make(options, None, 0)
    logits = []
    with warnings.catch_warnings():
        # What no recipe covers stands in the result.
        warnings.filterwarnings("ignore", "recipe=.* covers products", RuntimeWarning)
        with session, torch.no_grad():
            model = copy.deepcopy(model).eval()
            logits = [model(inputs).detach().double().numpy() for inputs, _ in pairs]
    loss, accuracy, n = _scores(logits, [targets.numpy() for _, targets in pairs])
    report = session.report()
    return Evaluation(str(way), loss, accuracy, n, report["operands"], report["uncovered"])


@usual_arithmetic
def _scores(logits: Sequence[Any], targets: Sequence[Any]) -> tuple[float, float, int]:
    """Mean loss, accuracy and number of targets."""
    losses, hits = [], []
    for z, t in zip(logits, targets, strict=True):
        if t.shape != z.shape[:-1]:
            raise ValueError(
                f"targets have shape {t.shape} and logits {z.shape}; give one target for each row"
            )
        rows, labels = z.reshape(-1, z.shape[-1]), t.reshape(-1)
        rows, labels = rows[labels >= 0], labels[labels >= 0]
        top = rows.max(axis=1, keepdims=True)
        total = top[:, 0] + np.log(np.exp(rows - top).sum(axis=1))
        losses.append(total - rows[np.arange(len(labels)), labels])
        hits.append(rows.argmax(axis=1) == labels)
    everything, right = np.concatenate(losses), np.concatenate(hits)
    if not everything.size:
        raise ValueError("batches have no target of 0 or more; give one at least")
    return float(everything.mean()), float(right.mean()), int(everything.size)
