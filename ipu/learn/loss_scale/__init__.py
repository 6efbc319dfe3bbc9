"""Loss scales: static, dynamic and automatic ones, and the search for the highest."""

from ipu.learn.loss_scale.automatic import AutomaticLossScale
from ipu.learn.loss_scale.dynamic import DynamicLossScale
from ipu.learn.loss_scale.histogram import ALL_GRADIENTS, PRODUCTS, EdgeHistogram
from ipu.learn.loss_scale.keras import KerasLossScale
from ipu.learn.loss_scale.scaling import (
    EPSILON,
    GRADIENTS,
    LEARNING_RATE,
    LossScale,
    NoLossScale,
    Scaling,
    StaticLossScale,
    Statistic,
    as_loss_scale,
)
from ipu.learn.loss_scale.search import find_loss_scale

__all__ = [
    "ALL_GRADIENTS", "EPSILON", "GRADIENTS", "LEARNING_RATE", "PRODUCTS", "AutomaticLossScale",
    "DynamicLossScale", "EdgeHistogram", "KerasLossScale", "LossScale", "NoLossScale", "Scaling",
    "StaticLossScale", "Statistic", "as_loss_scale", "find_loss_scale",
]
