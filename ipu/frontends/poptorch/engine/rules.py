"""Updates of parameters by PopART's equations, with the device's arithmetic.

s is the gradient of an update: of one micro-batch, or accumulated. `unscale` is 1 / (loss scale ·
G) where the mean over G micro-batches is taken at the end, else 1 / loss scale. Each operation
rounds once in the format of the slot that it computes; a product with the learning rate and the
difference of the weight are computed in the wider of the slot's and the weight's format, and
rounded once into the weight's (ASSUMED).

Source    PopART, sgd.hpp, adam.hpp, adamupdaterx.cpp, adaptive.hpp, lamb: equations and the order
          of operations; `facts` of loss scaling there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.values import widest

__all__ = ["Rule", "adam", "combined_decay", "combined_share", "lamb", "rmsprop", "sgd"]

Slots = dict[str, Array]
Group = Mapping[str, Any]


class Rule:
    """The verbs that equations are written in: formats are brought together first."""

    def __init__(self, call: Call) -> None:
        self.call, self.device = call, call.device
        #: What the last `moved` added to its weight.
        self.term: NDArray[Any] | None = None

    def times(self, x: Array, factor: float) -> Array:
        """x · a constant of its format; a factor of 1 is no operation."""
        if factor == 1:
            return x
        return self.device.multiply(x, self.call.constant(factor, x.format))

    def plus(self, x: Array, y: Array) -> Array:
        """x + y in the format of x."""
        return self.device.add(x, self.device.cast(y, x.format))

    def blend(self, x: Array, kept: float, y: Array, share: float) -> Array:
        """kept · x + share · y in the format of x; without x (kept is 0) the second alone."""
        new = self.times(self.device.cast(y, x.format), share)
        return new if kept == 0 else self.device.add(self.times(x, kept), new)

    def moved(self, w: Array, step: Array, rate: float) -> Array:
        """w - rate · step, in the wider of both formats, rounded into that of w."""
        device, wide = self.device, widest((w.format, step.format))
        change = self.times(device.cast(step, wide), rate)
        self.term = -np.asarray(change.carrier, np.float32)
        return device.cast(device.subtract(device.cast(w, wide), change), w.format)

    def decayed(self, s: Array, w: Array, decay: float) -> Array:
        """s + decay · w in the format of s."""
        return s if decay == 0 else self.plus(s, self.times(self.device.cast(w, s.format), decay))

    def norm(self, x: Array) -> float:
        """The square root of the sum of squares, in binary32."""
        device, wide = self.device, self.device.cast(x, BINARY32)
        squares = device.multiply(wide, wide)
        total = device.reduce_sum(squares, tuple(range(squares.ndim))) if squares.ndim else squares
        return float(np.asarray(device.sqrt(total).carrier).reshape(()))


def sgd(
    rule: Rule, w: Array, s: Array, slots: Slots, group: Group, unscale: float
) -> tuple[Array, Slots]:
    """v ← mm·v + (1-dm)·vs·unscale·s + (1-dm)·wd·vs·w;  w ← w - (lr/vs)·v.

    Without momentum there is no v: w ← w - lr·(1-dm)·(unscale·s + wd·w), dampened too. Nesterov
    (INFERRED from torch): w moves by g + mm·v.
    """
    momentum, rate, decay = group["momentum"], group["lr"], group["weight_decay"]
    if group["use_combined_accum"]:
        return _combined_sgd(rule, w, s, group)
    if momentum == 0:
        g = rule.decayed(rule.times(s, unscale), w, decay)
        return rule.moved(w, g, rate * (1 - group["dampening"])), {}
    v, scale = slots["velocity"], group["velocity_scaling"]
    share = (1 - group["dampening"]) * scale
    v = rule.blend(v, momentum, s, share * unscale)
    v = rule.decayed(v, w, share * decay)
    step = v
    if group["nesterov"]:
        g = rule.decayed(rule.times(rule.device.cast(s, v.format), scale * unscale), w,
                         scale * decay)
        step = rule.plus(g, rule.times(v, momentum))
    return rule.moved(w, step, rate / scale), {"velocity": v}


def combined_share(group: Group, unscale: float) -> float:
    """What each micro-batch's gradient is multiplied by before it is added to the velocity."""
    share: float = (1 - group["dampening"]) * group["velocity_scaling"] * unscale
    return share


def combined_decay(group: Group) -> float:
    """What a weight is multiplied by where its decay is added to a combined velocity."""
    decay: float = (1 - group["dampening"]) * group["weight_decay"] * group["velocity_scaling"]
    return decay


def _combined_sgd(rule: Rule, w: Array, v: Array, group: Group) -> tuple[Array, Slots]:
    """w ← w - (lr/vs)·v;  v ← mm·v + (1-dm)·wd·vs·w, where v has the gradients already."""
    w = rule.moved(w, v, group["lr"] / group["velocity_scaling"])
    v = rule.times(v, group["momentum"])
    return w, {"velocity": rule.decayed(v, w, combined_decay(group))}


def _corrections(group: Group, step: int) -> tuple[float, float]:
    """1 - b^t for both moments, in binary32 as PopART computes them."""
    if not group.get("bias_correction", True):
        return 1.0, 1.0
    one, t = np.float32(1), np.float32(step)
    first, second = (float(one - np.float32(b) ** t) for b in group["betas"])
    return first, second


def _moments(
    rule: Rule, w: Array, s: Array, slots: Slots, group: Group, unscale: float, *, decoupled: bool
) -> tuple[Array, Slots]:
    """The updater term x of Adam and LAMB, and the moments."""
    device, (b1, b2), decay = rule.device, group["betas"], group["weight_decay"]
    step = int(slots["step"].carrier) + 1
    s = rule.times(s, unscale)
    if not decoupled:
        s = rule.decayed(s, w, decay)
    m = rule.blend(slots["exp_avg"], b1, s, 1 - b1)
    v = slots["exp_avg_sq"]
    wide = device.cast(s, v.format)
    v = device.add(rule.times(v, b2), device.multiply(rule.times(wide, 1 - b2), wide))
    first, second = _corrections(group, step)
    m_hat, v_hat = _divided(rule, m, first), _divided(rule, v, second)
    epsilon = rule.call.constant(group["eps"], v.format)
    x = device.divide(device.cast(m_hat, v.format), device.add(device.sqrt(v_hat), epsilon))
    x = device.cast(x, w.format)
    if decoupled:
        x = rule.decayed(x, w, decay)
    count = device.context(BINARY32).wrap(np.asarray(step, np.float32))
    return x, {"exp_avg": m, "exp_avg_sq": v, "step": count}


def _divided(rule: Rule, x: Array, divisor: float) -> Array:
    if divisor == 1:
        return x
    return rule.device.divide(x, rule.call.constant(divisor, x.format))


def adam(
    rule: Rule, w: Array, s: Array, slots: Slots, group: Group, unscale: float
) -> tuple[Array, Slots]:
    """w ← w - lr · x with x = m̂ / (√v̂ + eps), and the decay in s (Adam) or in x (AdamW)."""
    x, slots = _moments(rule, w, s, slots, group, unscale, decoupled=group["decoupled"])
    return rule.moved(w, x, group["lr"]), slots


def lamb(
    rule: Rule, w: Array, s: Array, slots: Slots, group: Group, unscale: float
) -> tuple[Array, Slots]:
    """w ← w - (min(‖w‖, largest) / ‖x‖) · lr · x; the ratio is 1 where a norm is 0."""
    x, slots = _moments(rule, w, s, slots, group, unscale, decoupled=True)
    of_weight = min(rule.norm(w), group["max_weight_norm"])
    of_update = rule.norm(x)
    ratio = of_weight / of_update if of_weight and of_update else 1.0
    return rule.moved(w, x, ratio * group["lr"]), slots


def rmsprop(
    rule: Rule, w: Array, s: Array, slots: Slots, group: Group, unscale: float
) -> tuple[Array, Slots]:
    """x = s / (√v + eps), centred: √(v - m²); w ← w - lr · (momentum · u + x).

    use_tf_variant: eps inside the root, and the momentum holds lr · x.
    """
    device, alpha = rule.device, group["alpha"]
    s = rule.decayed(rule.times(s, unscale), w, group["weight_decay"])
    v = slots["square_avg"]
    wide = device.cast(s, v.format)
    v = device.add(rule.times(v, alpha), device.multiply(rule.times(wide, 1 - alpha), wide))
    after: Slots = {"square_avg": v}
    spread = v
    if group["centered"]:
        m = rule.blend(slots["grad_avg"], alpha, s, 1 - alpha)
        after["grad_avg"] = m
        narrow = device.cast(m, v.format)
        spread = device.subtract(v, device.multiply(narrow, narrow))
    epsilon = rule.call.constant(group["eps"], v.format)
    if group["use_tf_variant"]:
        root = device.sqrt(device.add(spread, epsilon))
    else:
        root = device.add(device.sqrt(spread), epsilon)
    x, rate = device.divide(wide, root), group["lr"]
    if group["momentum"]:
        u = slots["momentum_buffer"]
        share = rate if group["use_tf_variant"] else 1.0
        x = rule.blend(u, group["momentum"], x, share)
        after["momentum_buffer"] = x
        rate = 1.0 if group["use_tf_variant"] else rate
    return rule.moved(w, x, rate), after
