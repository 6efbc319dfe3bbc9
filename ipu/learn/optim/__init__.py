"""Optimisers: pure update rules in a chosen format, and the applying of gradients around them."""

from ipu.learn.optim.adam import Adam, AdamW
from ipu.learn.optim.base import (
    Observer,
    Optimizer,
    Pairs,
    Slots,
    Step,
    Update,
    compute_contributions,
    compute_gradients,
)
from ipu.learn.optim.rmsprop import RMSProp
from ipu.learn.optim.sgd import SGD, CastGradientsSGD

__all__ = [
    "SGD", "Adam", "AdamW", "CastGradientsSGD", "Observer", "Optimizer", "Pairs", "RMSProp",
    "Slots", "Step", "Update", "compute_contributions", "compute_gradients",
]
