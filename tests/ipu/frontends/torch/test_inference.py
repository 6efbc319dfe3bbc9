"""Trained models in blocks: weights alone, with activations, caches, by layer (differential)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from tests.ipu.frontends.torch.framework import torch

from fpsim.torch import evaluate, evaluate_layers, machine  # isort: skip


def model_and_batches():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.ReLU(), torch.nn.Linear(48, 6))
    batches = [(torch.randn(10, 32), torch.arange(10) % 6) for _ in range(2)]
    return model, batches


def test_scores_are_those_of_torch_and_the_model_stays():
    model, batches = model_and_batches()
    before = [p.clone() for p in model.parameters()]
    plain, half, blocks = evaluate(model, batches, ["fp32", "fp16", "nvfp4-plain"])
    logits = torch.cat([model(x) for x, _ in batches])
    targets = torch.cat([t for _, t in batches])
    loss = torch.nn.functional.cross_entropy(logits, targets)
    assert plain.loss == pytest.approx(loss.item(), rel=1e-5)
    assert plain.perplexity == pytest.approx(np.exp(loss.item()), rel=1e-4)
    assert plain.accuracy == (logits.argmax(1) == targets).double().mean().item()
    assert plain.targets == 20
    assert plain.loss != blocks.loss != half.loss
    assert {row["operand"] for row in blocks.operands} == {"x", "w"}
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_weights_alone_are_those_decoded_by_hand():
    model, batches = model_and_batches()
    (evaluation,) = evaluate(model, batches, ["nvfp4-plain+weights-only"])
    with torch.no_grad():
        for layer in (model[0], model[2]):
            w = fp.round_to(layer.weight.numpy(), fp.BFLOAT16)
            values = fp.quantize(w, "nvfp4", axis=1).values
            layer.weight.copy_(torch.from_numpy(np.float32(fp.round_to(values, fp.BFLOAT16))))
    with machine("bf16-mixed", target="hypothetical"), torch.no_grad():
        logits = [model(x).double() for x, _ in batches]
    loss = torch.nn.functional.cross_entropy(
        torch.cat(logits), torch.cat([t for _, t in batches]))
    assert evaluation.loss == pytest.approx(loss.item(), rel=1e-12)
    assert {row["operand"] for row in evaluation.operands} == {"w"}


def test_layers_one_by_one():
    model, batches = model_and_batches()
    base, first, last = evaluate_layers(model, batches, "mxfp4")
    assert (base.way, first.way, last.way) == (
        "bf16-mixed", "bf16-mixed+0=mxfp4", "bf16-mixed+2=mxfp4")
    assert {row["layer"] for row in first.operands} == {"0"}
    with pytest.raises(ValueError, match="has no layer in blocks"):
        evaluate_layers(model, batches, "bf16-mixed+0=bf16-mixed")


def attend(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def test_a_cache_holds_keys_and_values_in_blocks():
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, 3, 5, 32)).astype("f4") for _ in range(3))
    bf16 = [np.asarray(fp.round_to(x, fp.BFLOAT16), np.float32) for x in (q, k, v)]
    decoded = [bf16[0], *(
        np.float32(fp.round_to(fp.quantize(x.reshape(-1, 32), "mxfp4").values, fp.BFLOAT16))
        .reshape(x.shape) for x in bf16[1:])]
    with machine("bf16-mixed", target="hypothetical"), torch.no_grad():
        expected = attend(*(torch.from_numpy(x) * 1 for x in decoded))
    from fpsim.torch import Changes

    with machine("bf16-mixed", target="hypothetical", changes=Changes(cache="mxfp4")):
        with torch.no_grad():
            cached = attend(*(torch.from_numpy(x) * 1 for x in (q, k, v)))
        training = attend(*(torch.from_numpy(x) * 1 for x in (q, k, v)))
    assert torch.equal(cached, expected)
    assert not torch.equal(training, cached)


def test_caches_that_nothing_reads_and_heads_that_do_not_fit_are_told():
    from fpsim.torch import Changes

    x = torch.ones(1, 1, 2, 24)
    session = machine("bf16-mixed", target="hypothetical", changes=Changes(cache="mxfp8"))
    with pytest.raises(ValueError, match="heads have 24 numbers, no multiple of the 32"), (
            session), torch.no_grad():
        attend(x, x, x)
    session = machine("bf16-mixed", target="hypothetical", changes=Changes(cache="mxfp8"))

    def nothing():
        with session:
            torch.ones(2) + 1

    with pytest.warns(RuntimeWarning, match="nothing was read from blocks"):
        nothing()
    with pytest.raises(ValueError, match="cache='mxfp9' is not known"):
        Changes(cache="mxfp9")
    with pytest.raises(ValueError, match="nothing to evaluate"):
        evaluate(torch.nn.Linear(2, 2), [], ["fp32"])
