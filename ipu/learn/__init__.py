"""Training on the simulated machine: tape, primitives, variables, loss scaling, optimisers.

What a network of one's own takes is here by one name (docs/your-network.md); the modules have more.

>>> import numpy as np
>>> from ipu import learn
>>> def network(x):
...     x = learn.relu(learn.batch_norm(learn.conv(x, 4, 3, "conv"), "norm"))
...     x = learn.concat(learn.max_pool(x, 2), learn.average_pool(x, 2), axis=3)
...     x = learn.dropout(learn.gelu(learn.group_norm(x, 2, "groups")), 0.1)
...     x = learn.transpose(learn.dense(learn.flatten(x), 8, "hidden"), axes=(0, 1))
...     return learn.dense(learn.softmax(learn.layer_norm(x, "last")), 3, "output")
>>> images, labels = np.ones((2, 4, 4, 1), np.float32), np.array([0, 2])
>>> for rule in (learn.AdamW(1e-3, epsilon=1e-4), learn.RMSProp(1e-3, epsilon=1e-4)):
...     for policy in (learn.FP16, learn.FP32, learn.MIXED):
...         trainer = learn.Trainer(network, rule, policy=policy)
...         assert 0.8 < trainer.step(images, labels) < 1.6  # about log 3
>>> scaled = learn.Trainer(
...     network, learn.SGD(1e-3), policy=learn.FP16, loss_scale=learn.AutomaticLossScale(256.0))
>>> 0.8 < scaled.step(images, labels) < 1.6
True
>>> learn.FP8.compute.name, learn.FP64.compute.name
('f143', 'binary64')
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
