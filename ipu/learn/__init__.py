"""Training on the simulated machine: tape, primitives, variables, loss scaling, optimisers.

What a network of one's own takes is here by one name (docs/your-network.md); the modules have more.
"""

from ipu.learn.loss_scale import AutomaticLossScale, DynamicLossScale, StaticLossScale
from ipu.learn.nn import (
    average_pool,
    batch_norm,
    conv,
    dense,
    dropout,
    flatten,
    gelu,
    group_norm,
    layer_norm,
    max_pool,
    relu,
    sigmoid,
    softmax,
    tanh,
)
from ipu.learn.optim import SGD, Adam, AdamW, RMSProp
from ipu.learn.policy import FP8, FP16, FP32, FP64, MIXED, LayerPolicies, Policy
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer
from ipu.ops import concat, reshape, transpose

__all__ = [
    "FP8", "FP16", "FP32", "FP64", "MIXED", "SGD", "Adam", "AdamW", "AutomaticLossScale",
    "DynamicLossScale", "LayerPolicies", "Policy", "RMSProp", "StaticLossScale", "Tensor",
    "Trainer", "average_pool", "batch_norm", "concat", "conv", "dense", "dropout", "flatten",
    "gelu", "group_norm", "layer_norm", "max_pool", "relu", "reshape", "sigmoid", "softmax", "tanh",
    "transpose",
]
