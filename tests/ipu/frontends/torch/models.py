"""Twelve models of torchvision, transformers and timm, small, with random weights."""

from __future__ import annotations

import sys
import warnings

from tests.ipu.frontends.torch.framework import torch

__all__ = ["MODELS", "Case", "build"]

functional = torch.nn.functional


def _torchvision():
    """torchvision's models; its compiled operators, which they do not use, need not load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from torchvision import models
        except RuntimeError:  # they are built for another torch, so their names are missing
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]
            _define_operators()
            from torchvision import models
    return models


def _define_operators():
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    ):
        library.define(schema)
    _KEPT.append(library)


_KEPT: list[object] = []


class Case:
    """A model, its inputs, and its loss.

    module    the network.
    inputs    keyword arguments or one tensor.
    targets   classes.
    """

    def __init__(self, module, inputs, targets):
        self.module, self.inputs, self.targets = module, inputs, targets

    def loss(self, module=None, dtype=None):
        """The loss of a module (this one's by default) on the inputs in a data type."""
        module, inputs = module or self.module, self.inputs
        if isinstance(inputs, dict):
            output = module(**inputs)[0]
        else:
            output = module(inputs if dtype is None else inputs.to(dtype))
        logits = output.reshape(-1, output.shape[-1])
        return functional.cross_entropy(logits, self.targets)


def _images(name, size, batch=4, **options):
    def make():
        network = getattr(_torchvision(), name)(num_classes=10, **options)
        return Case(network, torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,)))

    return make


def _vit():
    network = _torchvision().VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64,
        num_classes=10,
    )
    return Case(network, torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,)))


def _text(name, configuration, *, per_token=True, classes=64, **options):
    def make():
        import transformers

        config = getattr(transformers, configuration)(**options)
        network = getattr(transformers, name)(config)
        words = torch.randint(0, 64, (2, 12))
        targets = torch.randint(0, classes, (24,) if per_token else (2,))
        return Case(network, {"input_ids": words}, targets)

    return make


def _convnext():
    from timm.models.convnext import ConvNeXt

    network = ConvNeXt(num_classes=10, depths=(1, 1, 2, 1), dims=(8, 16, 32, 64))
    return Case(network, torch.randn(2, 3, 32, 32), torch.randint(0, 10, (2,)))


def _mixer():
    from timm.models.mlp_mixer import MlpMixer

    network = MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=2, embed_dim=32)
    return Case(network, torch.randn(2, 3, 32, 32), torch.randint(0, 10, (2,)))


_SMALL = {"vocab_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "hidden_size": 32, "intermediate_size": 64}

#: How each is made.
MODELS = {
    "resnet18": _images("resnet18", 32),
    "mobilenet_v3": _images("mobilenet_v3_small", 64),
    "squeezenet": _images("squeezenet1_1", 64, batch=2),
    "shufflenet": _images("shufflenet_v2_x0_5", 64),
    "efficientnet_b0": _images("efficientnet_b0", 32),
    "vit": _vit,
    "bert": _text("BertForSequenceClassification", "BertConfig", per_token=False, classes=2,
                  max_position_embeddings=16, hidden_dropout_prob=0.0,
                  attention_probs_dropout_prob=0.0, **_SMALL),
    "gpt2": _text("GPT2LMHeadModel", "GPT2Config", vocab_size=64, n_positions=16, n_embd=32,
                  n_layer=2, n_head=4, attn_pdrop=0.0),
    "llama": _text("LlamaForCausalLM", "LlamaConfig", **_SMALL),
    "t5_encoder": _text("T5EncoderModel", "T5Config", classes=32, vocab_size=64, d_model=32,
                        d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0),
    "convnext": _convnext,
    "mixer": _mixer,
}


def build(name, seed=0):
    """A model in training mode, without dropout, so that runs compare."""
    _torchvision()  # transformers imports it too
    torch.manual_seed(seed)
    case = MODELS[name]()
    case.module.train()
    for module in case.module.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if type(module).__name__ in ("StochasticDepth", "DropPath"):
            module.p = module.drop_prob = 0.0
    return case
