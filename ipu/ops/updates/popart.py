"""PopART's updates, as PopTorch names them.

s is the gradient of an update: of one micro-batch, or accumulated. `unscale` is 1 / (loss scale ·
G) where the mean over G micro-batches is taken at the end, else 1 / loss scale. Options have
PopTorch's names. Each operation rounds once in the format of the slot that it computes; a product
with the learning rate and the difference of the weight are computed in the wider of the slot's and
the weight's format, and rounded once into the weight's (ASSUMED). A factor of 1 is no operation.

Source    PopART, sgd.hpp, adam.hpp, accumulatex.cpp (moments), adamupdaterx.cpp (update),
          adaptive.hpp, lamb: equations and the order of operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY16, BINARY32
from ipu.machine.device import Device
from ipu.ops.updates.row import ALONE, Around, Slots, Updated, UpdateRow, Verbs, widest

__all__ = ["ROWS", "clipping", "combined_decay", "combined_share", "scaled", "started_velocity"]


class PopartVerbs(Verbs):
    """The verbs that equations are written in: formats are brought together first."""

    def times(self, x: Array, factor: float) -> Array:
        """x · a constant of its format."""
        if factor == 1:
            return x
        return self.device.multiply(x, self.constant(factor, x.format))

    def plus(self, x: Array, y: Array) -> Array:
        """x + y in the format of x."""
        return self.device.add(x, self.device.cast(y, x.format))

    def blend(self, x: Array, decay: float, y: Array, share: float) -> Array:
        """decay · x + share · y in the format of x; without x (decay is 0) the second alone."""
        new = self.times(self.device.cast(y, x.format), share)
        return new if decay == 0 else self.device.add(self.times(x, decay), new)

    def moved(self, w: Array, step: Array, rate: float, slots: tuple[Any, ...]) -> Updated:
        """w - rate · step, in the wider of both formats, rounded into that of w."""
        device, wide = self.device, widest(w.format, step.format)
        change = self.times(device.cast(step, wide), rate)
        value = device.cast(device.subtract(device.cast(w, wide), change), w.format)
        return Updated(value, slots, change, step)

    def decayed(self, s: Array, w: Array, decay: float) -> Array:
        """s + decay · w in the format of s."""
        return s if decay == 0 else self.plus(s, self.times(self.device.cast(w, s.format), decay))

    def divided(self, x: Array, divisor: float) -> Array:
        """x / a constant of its format."""
        if divisor == 1:
            return x
        return self.device.divide(x, self.constant(divisor, x.format))

    def norm(self, x: Array) -> float:
        """The square root of the sum of squares, in binary32."""
        device, wide = self.device, self.device.cast(x, BINARY32)
        squares = device.multiply(wide, wide)
        total = device.reduce_sum(squares, tuple(range(squares.ndim))) if squares.ndim else squares
        return float(np.asarray(device.sqrt(total).carrier).reshape(()))


# Before the equations ---------------------------------------------------------------------------


def clipping(
    device: Device, gradients: Sequence[Array], unscale: float, largest: float
) -> float:
    """What all gradients are multiplied by, so that their common norm has a largest value."""
    if math.isinf(largest) or not gradients:
        return 1.0
    do = PopartVerbs(device, ALONE)
    norm = math.hypot(*(do.norm(s) for s in gradients)) * unscale
    return largest / max(norm, largest)


def scaled(device: Device, x: Array, factor: float, around: Around = ALONE) -> Array:
    """x · a constant of its format."""
    return PopartVerbs(device, around).times(x, factor)


def combined_share(dampening: float, velocity_scaling: float, unscale: float) -> float:
    """What each micro-batch's gradient is multiplied by before it is added to the velocity."""
    return (1 - dampening) * velocity_scaling * unscale


def combined_decay(dampening: float, weight_decay: float, velocity_scaling: float) -> float:
    """What a weight is multiplied by where its decay is added to a combined velocity."""
    return (1 - dampening) * weight_decay * velocity_scaling


def started_velocity(device: Device, w: Array, decay: float, velocity: Array) -> Array:
    """A combined velocity before the first update: the decay of the weight.

    Rounding  on the host, in the slot's format, to nearest (sgd1decompose.cpp).
    """
    kind: Any = np.float16 if velocity.format == BINARY16 else np.float32
    start = np.asarray(w.carrier, kind) * kind(decay)
    return device.from_host(start.astype(np.float32), velocity.format)


# Equations --------------------------------------------------------------------------------------


def _sgd(
    do: PopartVerbs, w: Array, s: Array, slots: Slots, *, lr: float, momentum: float,
    dampening: float, weight_decay: float, nesterov: bool, velocity_scaling: float,
    use_combined_accum: bool, unscale: float,
) -> Updated:
    """v ← mm·v + (1-dm)·vs·unscale·s + (1-dm)·wd·vs·w;  w ← w - (lr/vs)·v.

    Without momentum there is no v: w ← w - lr·(1-dm)·(unscale·s + wd·w), dampened too. Nesterov
    (INFERRED from torch): w moves by g + mm·v. A combined v has the gradients already.
    """
    if use_combined_accum:
        decay = combined_decay(dampening, weight_decay, velocity_scaling)
        moved = do.moved(w, s, lr / velocity_scaling, ())
        velocity = do.decayed(do.times(s, momentum), moved.value, decay)
        return moved._replace(slots=(velocity,))
    if momentum == 0:
        g = do.decayed(do.times(s, unscale), w, weight_decay)
        return do.moved(w, g, lr * (1 - dampening), (None,))
    share = (1 - dampening) * velocity_scaling
    v = do.blend(slots[0], momentum, s, share * unscale)
    v = do.decayed(v, w, share * weight_decay)
    step = v
    if nesterov:
        g = do.times(do.device.cast(s, v.format), velocity_scaling * unscale)
        g = do.decayed(g, w, velocity_scaling * weight_decay)
        step = do.plus(g, do.times(v, momentum))
    return do.moved(w, step, lr / velocity_scaling, (v,))


def _corrections(betas: tuple[float, float], step: int, *, wanted: bool) -> tuple[float, float]:
    """1 - b^t for both moments, in binary32 as PopART computes them."""
    if not wanted:
        return 1.0, 1.0
    one, t = np.float32(1), np.float32(step)
    first, second = (float(one - np.float32(b) ** t) for b in betas)
    return first, second


def _mean_square(do: PopartVerbs, v: Array, s: Array, share: float) -> Array:
    """share · v + ((1 - share) · s) · s, s in the format of v."""
    device = do.device
    return device.add(do.times(v, share), device.multiply(do.times(s, 1 - share), s))


def _direction(
    do: PopartVerbs, w: Array, s: Array, slots: Slots, *, betas: tuple[float, float], eps: float,
    weight_decay: float, bias_correction: bool, decoupled: bool,
) -> tuple[Array, tuple[Array, Array, Array]]:
    """The updater term x of Adam and LAMB, and the slots."""
    device, (b1, b2) = do.device, betas
    m, v, step = slots
    t = int(step.carrier) + 1
    if not decoupled:
        s = do.decayed(s, w, weight_decay)
    m = do.blend(m, b1, s, 1 - b1)
    v = _mean_square(do, v, device.cast(s, v.format), b2)
    first, second = _corrections(betas, t, wanted=bias_correction)
    m_hat, v_hat = do.divided(m, first), do.divided(v, second)
    root = device.add(device.sqrt(v_hat), do.constant(eps, v.format))
    x = device.cast(device.divide(device.cast(m_hat, v.format), root), w.format)
    if decoupled:
        x = do.decayed(x, w, weight_decay)
    return x, (m, v, device.context(BINARY32).wrap(np.asarray(t, np.float32)))


def _adam(
    do: PopartVerbs, w: Array, s: Array, slots: Slots, *, lr: float, betas: tuple[float, float],
    eps: float, weight_decay: float, bias_correction: bool, decoupled: bool, unscale: float,
) -> Updated:
    """w ← w - lr · x with x = m̂ / (√v̂ + eps), and the decay in s (Adam) or in x (AdamW)."""
    x, slots = _direction(
        do, w, do.times(s, unscale), slots, betas=betas, eps=eps, weight_decay=weight_decay,
        bias_correction=bias_correction, decoupled=decoupled,
    )
    return do.moved(w, x, lr, slots)


def _lamb(
    do: PopartVerbs, w: Array, s: Array, slots: Slots, *, lr: float, betas: tuple[float, float],
    eps: float, weight_decay: float, bias_correction: bool, max_weight_norm: float, unscale: float,
) -> Updated:
    """w ← w - (min(‖w‖, largest) / ‖x‖) · lr · x; the ratio is 1 where a norm is 0."""
    x, slots = _direction(
        do, w, do.times(s, unscale), slots, betas=betas, eps=eps, weight_decay=weight_decay,
        bias_correction=bias_correction, decoupled=True,
    )
    of_weight, of_update = min(do.norm(w), max_weight_norm), do.norm(x)
    ratio = of_weight / of_update if of_weight and of_update else 1.0
    return do.moved(w, x, ratio * lr, slots)


def _rmsprop(
    do: PopartVerbs, w: Array, s: Array, slots: Slots, *, lr: float, alpha: float, eps: float,
    weight_decay: float, momentum: float, centered: bool, use_tf_variant: bool, unscale: float,
) -> Updated:
    """x = s / (√v + eps), centred: √(v - m²); w ← w - lr · (momentum · u + x).

    use_tf_variant: eps inside the root, and the momentum holds lr · x.
    """
    device = do.device
    s = do.decayed(do.times(s, unscale), w, weight_decay)
    square, mean, buffer = slots
    wide = device.cast(s, square.format)
    square = _mean_square(do, square, wide, alpha)
    spread = square
    if centered:
        mean = do.blend(mean, alpha, s, 1 - alpha)
        narrow = device.cast(mean, square.format)
        spread = device.subtract(square, device.multiply(narrow, narrow))
    epsilon = do.constant(eps, square.format)
    if use_tf_variant:
        root = device.sqrt(device.add(spread, epsilon))
    else:
        root = device.add(device.sqrt(spread), epsilon)
    x, rate = device.divide(wide, root), lr
    if momentum:
        share, rate = (lr, 1.0) if use_tf_variant else (1.0, lr)
        x = buffer = do.blend(buffer, momentum, x, share)
    return do.moved(w, x, rate, (square, mean, buffer))


def _row(
    name: str, equation: Callable[..., Updated], slots: tuple[str, ...], rounding: str, source: str,
    *, by_element: bool = True,
) -> UpdateRow:
    return UpdateRow(
        f"popart {name}", equation, slots, rounding, f"PopART, {source}", PopartVerbs,
        by_element=by_element,
    )


_ADAM = ("m·b1 + s·(1 - b1); v·b2 + (s·(1 - b2))·s; m / c1, v / c2; √v + eps; m / it; + w·decay; "
         "w - it·lr")
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")

#: PopART's equations.
ROWS = (
    _row("sgd", _sgd, ("velocity",), "v·momentum + s·share + w·decay; w - v·(lr / scale)",
         "sgd.hpp, sgd1decompose.cpp"),
    _row("adam", _adam, _MOMENTS, _ADAM, "adam.hpp, accumulatex.cpp, adamupdaterx.cpp"),
    _row("lamb", _lamb, _MOMENTS, f"{_ADAM}·(‖w‖ / ‖it‖)", "adam.hpp, lamb",
         by_element=False),
    _row("rmsprop", _rmsprop, ("square_avg", "grad_avg", "momentum_buffer"), "v·a + (s·(1 - a))·s; "
         "√v + eps; s / it; u·momentum + it; w - it·lr", "adaptive.hpp"),
)
